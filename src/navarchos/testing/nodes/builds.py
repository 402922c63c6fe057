"""Images built from a Dockerfile on bases of Debian, without a container engine.

Each instruction that changes files makes a layer. Layers are cached by everything that they depend
on, as container engines do it: the layers below, the instruction, its variables, and the content of
copied files. So a build does only the steps after the first change.

RUN runs in namespaces that end with it, on an overlayfs. COPY needs no mount: it reads the layers
as overlayfs shows them, and writes a folder.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Final, Literal, assert_never

from navarchos.testing.nodes import dockerfile
from navarchos.testing.nodes.chroot import Chroot, ChrootFailed, MachineSettings, OverlayMount
from navarchos.testing.nodes.debian import DebianBase
from navarchos.testing.nodes.dockerfile import BuildStage, Instruction, Keyword
from navarchos.testing.nodes.images import History, Image, ImageConfig, ImageError
from navarchos.testing.nodes.layers import (
    CachedLayer,
    CopiedFiles,
    LayerCache,
    Tree,
    fingerprint,
    key_of,
)

__all__ = ["ImageBuilder", "StepFailed"]

_SHOWN: Final = 72
# Times are left out of layers, so what is built must not depend on them: compiled Python names the
# checksum of its source, archives have this time.
_ENV: Final = {"HOME": "/root", "SOURCE_DATE_EPOCH": "0"}
_DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


_Described = Literal[Keyword.ENTRYPOINT, Keyword.ENV, Keyword.EXPOSE, Keyword.LABEL, Keyword.USER]
"""The instructions that only change how containers run."""


class StepFailed(ImageError):
    """A command of a Dockerfile failed.

    Attributes:
        line: The number of the line where the instruction begins.
        failure: The command, and the end of its output.
    """

    def __init__(self, line: int, failure: ChrootFailed) -> None:
        super().__init__(line, failure)
        self.line = line
        self.failure = failure

    def __str__(self) -> str:
        return f"Dockerfile, line {self.line}: {self.failure}"


# -- builds -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _StageState:
    """A stage after some of its instructions.

    Attributes:
        stage: The number of the stage.
        key: Names everything that the state depends on.
        layers: The layers, lowest first.
        config: How containers run.
        variables: The variables of ARG.
        history: The instructions so far.
        has_command: Whether CMD was in this Dockerfile, rather than in the base only.
    """

    stage: int
    key: str
    layers: tuple[CachedLayer, ...]
    config: ImageConfig
    variables: Mapping[str, str] = field(default_factory=dict)
    history: tuple[History, ...] = ()
    has_command: bool = False

    @property
    def visible(self) -> dict[str, str]:
        """The variables that instructions can use."""
        return {**self.variables, **self.config.env}

    @property
    def tree(self) -> Tree:
        """The files."""
        return Tree(tuple(layer.folder for layer in self.layers))

    def path(self, given: str) -> str:
        """Return the name of a path that may be relative to the working directory."""
        return os.path.normpath(PurePosixPath("/", self.config.directory, given)).lstrip("/")

    def after(self, instruction: Instruction, config: ImageConfig) -> "_StageState":
        """Return the state after an instruction that changes no files."""
        history = (*self.history, History(str(instruction), has_layer=False))
        return replace(self, config=config, history=history)

    def with_layer(self, instruction: Instruction, layer: CachedLayer) -> "_StageState":
        """Return the state after an instruction that made a layer."""
        history = (*self.history, History(str(instruction), has_layer=True))
        return replace(self, key=layer.key, layers=(*self.layers, layer), history=history)


class ImageBuilder:
    """Builds the image of a Dockerfile.

    Args:
        context: The folder that COPY reads from; it may have a `.dockerignore`.
        bases: The images that FROM may name.
        directory: The cache folder of layers.
        arguments: The values of build arguments.
        settings: How commands reach package indexes; by default as this machine does.
        report: Receives progress messages for the user, one line each.
    """

    def __init__(
        self,
        context: Path,
        *,
        bases: Mapping[str, DebianBase],
        directory: Path,
        arguments: Mapping[str, str],
        report: Callable[[str], None],
        settings: MachineSettings | None = None,
    ) -> None:
        patterns = dockerfile.read_ignore_file(context)
        self._context = Tree((context,), lambda name: dockerfile.is_ignored(name, patterns))
        self._bases = bases
        self._layers = LayerCache(directory)
        self._arguments = arguments
        self._settings = settings if settings is not None else MachineSettings.read()
        self._report = report
        self._built: dict[int, _StageState] = {}
        self._stages: list[BuildStage] = []
        self._globals: dict[str, str] = {}

    def build(self, text: str) -> Image:
        """Return the image of the last stage; stages that it does not need are not built.

        Layers that no build has used lately are removed from the cache.

        Args:
            text: The content of the Dockerfile.

        Raises:
            DockerfileInvalid: An instruction is wrong or not supported, or a copied file is
                missing.
            StepFailed: A command failed.
            CannotBuild: This machine cannot run commands in other root file systems.
            OSError: The cache cannot be written.
        """
        self._globals, self._stages = dockerfile.read_dockerfile(text, self._arguments)
        self._built.clear()
        with self._layers.locked(lambda: self._report("waiting for another build")):
            last = self._stage(self._stages[-1])
            self._layers.sweep()
            layers = tuple(layer.packed() for layer in last.layers)
        return Image(layers, last.config, last.history)

    def _stage(self, stage: BuildStage) -> _StageState:
        if stage.number not in self._built:
            state = self._base(stage.base, stage.number)
            for instruction in stage.instructions:
                state = self._step(state, instruction)
            self._built[stage.number] = state
        return self._built[stage.number]

    def _earlier(self, name: str, number: int) -> _StageState | None:
        """Return the last stage of a name before the stage of a number."""
        for stage in reversed(self._stages[:number]):
            if stage.is_called(name):
                return self._stage(stage)
        return None

    def _base(self, name: str, number: int) -> _StageState:
        if name == "scratch":
            return _StageState(number, key_of("scratch"), (), ImageConfig())
        earlier = self._earlier(name, number)
        if earlier is not None:
            return replace(earlier, stage=number, variables={}, has_command=False)
        if name not in self._bases:
            known = ", ".join(sorted(self._bases)) or "none"
            raise ImageError(f"the Dockerfile needs the image {name}; there are: {known}")
        base = self._bases[name]
        layer = CachedLayer(key_of(base.key), base.root, base.layer.path)
        history = (History(name, has_layer=True),)
        return _StageState(number, layer.key, (layer,), base.image.config, history=history)

    def _step(self, state: _StageState, instruction: Instruction) -> _StageState:
        match instruction.keyword:
            case Keyword.RUN:
                return self._run(state, instruction)
            case Keyword.COPY:
                return self._copy(state, instruction)
            case Keyword.WORKDIR:
                return self._enter(state, instruction)
            case Keyword.ARG:
                return self._declare(state, instruction)
            case Keyword.CMD:
                command = dockerfile.argument_list(instruction)
                config = replace(state.config, command=command)
                return replace(state.after(instruction, config), has_command=True)
            case Keyword.FROM:
                raise AssertionError("stages do not contain FROM")
            case keyword:
                return state.after(instruction, self._configured(state, instruction, keyword))

    def _configured(
        self,
        state: _StageState,
        instruction: Instruction,
        keyword: _Described,
    ) -> ImageConfig:
        config = state.config
        match keyword:
            case Keyword.ENV:
                return config.with_env(**dockerfile.pairs(instruction, state.visible))
            case Keyword.LABEL:
                values = dockerfile.pairs(instruction, state.visible)
                return replace(config, labels={**config.labels, **values})
            case Keyword.EXPOSE:
                words = dockerfile.words(instruction, state.visible)
                ports = [word if "/" in word else f"{word}/tcp" for word in words]
                return replace(config, ports=(*config.ports, *ports))
            case Keyword.ENTRYPOINT:
                # The command of a base would become arguments of this program.
                # mutant: command-of-the-base
                command = config.command if state.has_command else ()
                entrypoint = dockerfile.argument_list(instruction)
                return replace(config, entrypoint=entrypoint, command=command)
            case Keyword.USER:
                return replace(config, user=self._word(state, instruction))
            case _:
                assert_never(keyword)

    @staticmethod
    def _word(state: _StageState, instruction: Instruction) -> str:
        match dockerfile.words(instruction, state.visible):
            case [word]:
                return word
            case _:
                raise instruction.invalid(f"{instruction.keyword} needs one word")

    def _declare(self, state: _StageState, instruction: Instruction) -> _StageState:
        # A name without a default has the value from before the first FROM.
        known = dict(self._arguments)
        for name, default in dockerfile.declarations(instruction, state.visible).items():
            if default is None and name in self._globals:
                known.setdefault(name, self._globals[name])
        values = dockerfile.argument_values(instruction, state.visible, known)
        changed = replace(state, variables={**state.variables, **values})
        return changed.after(instruction, state.config)

    def _enter(self, state: _StageState, instruction: Instruction) -> _StageState:
        name = state.path(self._word(state, instruction))
        entered = replace(state.config, directory=f"/{name}")
        resolved = state.tree.resolve(name)
        if state.tree.is_folder(resolved):
            return state.after(instruction, entered)
        layer = self._layer(
            state,
            instruction,
            lambda folder, _: CopiedFiles(state.tree, folder, (0, 0)).make_folder(resolved),
            resolved,
        )
        return replace(state.with_layer(instruction, layer), config=entered)

    # -- steps that make layers

    def _layer(
        self,
        state: _StageState,
        instruction: Instruction,
        make: Callable[[Path, Path], None],
        *facts: object,
    ) -> CachedLayer:
        def reported(folder: Path, scratch: Path) -> None:
            self._report(f"step: {str(instruction)[:_SHOWN]}")
            make(folder, scratch)

        return self._layers.obtain(key_of(state.key, str(instruction.keyword), *facts), reported)

    def _run(self, state: _StageState, instruction: Instruction) -> _StageState:
        command = dockerfile.argument_list(instruction)
        user = _numbers(instruction, state.config.user)
        env = {"PATH": _DEFAULT_PATH, **_ENV, **state.visible}

        def make(folder: Path, scratch: Path) -> None:
            (scratch / "root").mkdir()
            chroot = Chroot(
                scratch / "root",
                OverlayMount(state.tree.folders, folder, scratch),
                env={**self._settings.env, **env},
                directory=state.config.directory or "/",
                user=user,
                binds={str(path): path for path in self._settings.files},
            )
            try:
                chroot.run(*command)
            except ChrootFailed as error:
                raise StepFailed(instruction.line, error) from error

        # mutant: variables-change-nothing
        facts = (command, sorted(env.items()), state.config.directory, user)
        return state.with_layer(instruction, self._layer(state, instruction, make, *facts))

    def _copy(self, state: _StageState, instruction: Instruction) -> _StageState:
        *sources, target = dockerfile.words(instruction, state.visible)
        if not sources:
            raise instruction.invalid("COPY needs a source and a target")
        owner = _numbers(instruction, instruction.options.get("chown", "0:0"))
        tree, origin = self._origin(state, instruction)
        files = list(_copied(state, instruction, tree, sources, target))
        # mutant: changed-files-are-cached
        origin = origin or [fingerprint(name, path) for name, path in files]

        def make(folder: Path, _: Path) -> None:
            copy = CopiedFiles(state.tree, folder, owner, is_shared=tree is not self._context)
            try:
                for name, path in files:
                    copy.put(name, path)
            except (NotADirectoryError, IsADirectoryError) as error:
                raise instruction.invalid(str(error)) from error

        facts = (origin, sources, state.path(target), target.endswith("/"), owner)
        return state.with_layer(instruction, self._layer(state, instruction, make, *facts))

    def _origin(self, state: _StageState, instruction: Instruction) -> tuple[Tree, list[str]]:
        """Return where COPY reads, and what its content depends on if that is known."""
        name = instruction.options.get("from")
        if name is None:
            return self._context, []
        source = self._earlier(name, state.stage)
        if source is None:
            raise instruction.invalid(f"no earlier stage is called {name}")
        return source.tree, [source.key]


def _numbers(instruction: Instruction, user: str) -> tuple[int, int]:
    """Return the numbers of a user and its group; root without a user."""
    names = (user or "0").split(":")
    if len(names) > 2 or not all(name.isdecimal() for name in names):
        raise instruction.invalid(f"{user} is not UID:GID; names of users are not supported")
    return int(names[0]), int(names[1]) if len(names) == 2 else 0


def _copied(
    state: _StageState, instruction: Instruction, tree: Tree, sources: Sequence[str], target: str
) -> Iterator[tuple[str, Path]]:
    """Return each copied file: its name in the image, and where it is stored."""
    place = state.tree.resolve(state.path(target))
    is_into = len(sources) > 1 or target.endswith("/") or state.tree.is_folder(place)
    for source in sources:
        if set(source) & set("*?["):
            raise instruction.invalid(f"{source}: COPY does not support wildcards")
        name = tree.resolve(os.path.normpath(f"/{source}").lstrip("/"))
        path = tree.find(name)
        if path is None or (tree.is_hidden(name) and not tree.is_folder(name)):
            raise instruction.invalid(f"{source} does not exist")
        if tree.is_folder(name):
            yield place, path
            yield from ((f"{place}/{below}".lstrip("/"), each) for below, each in tree.walk(name))
        else:
            last = PurePosixPath(os.path.normpath(source)).name
            yield (f"{place}/{last}".lstrip("/") if is_into else place), path
