import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from navarchos.testing.nodes.builds import ImageBuilder, StepFailed
from navarchos.testing.nodes.chroot import MachineSettings
from navarchos.testing.nodes.debian import DebianBase
from navarchos.testing.nodes.dockerfile import DockerfileInvalid
from navarchos.testing.nodes.images import Image, ImageError, Layer

Build = Callable[..., Image]


class Bench:
    """Builds Dockerfiles in a folder and remembers the reported steps."""

    def __init__(self, folder: Path, base: DebianBase, settings: MachineSettings) -> None:
        self.context = folder / "context"
        self.context.mkdir()
        self._layers = folder / "layers"
        self._base = base
        self._settings = settings
        self.steps: list[str] = []

    def build(self, text: str, **arguments: str) -> Image:
        self.steps.clear()
        return ImageBuilder(
            self.context,
            bases={"test:1": self._base},
            directory=self._layers,
            arguments=arguments,
            settings=self._settings,
            report=lambda line: self.steps.append(line.removeprefix("step: ")),
        ).build(text)

    def forget(self) -> None:
        shutil.rmtree(self._layers)

    def write(self, *names: str, text: str = "") -> None:
        for name in names:
            path = self.context / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text or name)


@pytest.fixture
def bench(tmp_path: Path, base: DebianBase, settings: MachineSettings) -> Bench:
    return Bench(tmp_path, base, settings)


def content(layer: Layer) -> dict[str, str]:
    with tarfile.open(layer.path) as tar:
        found = {}
        for member in tar.getmembers():
            file = tar.extractfile(member) if member.isreg() else None
            found[member.name] = file.read().decode() if file is not None else ""
        return found


def test_a_command_makes_a_layer(bench: Bench, base: DebianBase) -> None:
    image = bench.build("FROM test:1\nRUN cat /etc/release > /etc/copy && rm /opt/old/file\n")
    assert image.layers[0] == base.layer
    assert content(image.layers[1]) == {
        "etc": "",
        "etc/copy": "base\n",
        "opt": "",
        "opt/old": "",
        "opt/old/.wh.file": "",
    }
    assert [(each.step[:8], each.has_layer) for each in image.history] == [
        ("test:1", True),
        ("RUN cat ", True),
    ]


def test_the_configuration_is_that_of_the_instructions(bench: Bench) -> None:
    image = bench.build(
        "ARG VERSION=1\n"
        "FROM test:1\n"
        "ARG VERSION\n"
        'LABEL version=$VERSION title="a tool"\n'
        "ENV HOME=/srv PATH=/opt/bin:$PATH\n"
        "WORKDIR /srv\n"
        "WORKDIR data\n"
        "USER 65532:65532\n"
        "EXPOSE 8080 53/udp\n"
        'ENTRYPOINT ["tool", "$HOME"]\n',
        VERSION="2",
    )
    config = image.config
    assert config.labels == {"version": "2", "title": "a tool"}
    assert config.env["HOME"] == "/srv"
    assert config.env["PATH"].startswith("/opt/bin:/usr/local/bin:")
    assert config.directory == "/srv/data"
    assert config.user == "65532:65532"
    assert config.ports == ("8080/tcp", "53/udp")
    assert config.entrypoint == ("tool", "$HOME")
    # /srv is in the base, so only the second WORKDIR makes a folder.
    assert [content(layer) for layer in image.layers[1:]] == [{"srv": "", "srv/data": ""}]


def test_an_entrypoint_replaces_the_command_of_the_base_only(bench: Bench) -> None:
    image = bench.build('FROM test:1\nENTRYPOINT ["tool"]\n')
    assert image.config.command == ()
    image = bench.build('FROM test:1\nCMD ["--help"]\nENTRYPOINT ["tool"]\n')
    assert image.config.command == ("--help",)
    image = bench.build('FROM test:1\nENTRYPOINT ["tool"]\nCMD --help\n')
    assert image.config.command == ("/bin/sh", "-c", "--help")


def test_commands_have_variables_a_folder_and_a_user(bench: Bench) -> None:
    image = bench.build(
        "FROM test:1\n"
        "ARG A=argument\n"
        "ENV B=variable\n"
        "WORKDIR /srv/data\n"
        "RUN echo $A $B $HOME $(pwd) $(id -u) > file; mkdir -m 777 open\n"
        "USER 65532\n"
        "RUN id -u > open/user\n"
    )
    made = [content(layer) for layer in image.layers[2:]]
    assert made[0]["srv/data/file"] == "argument variable /root /srv/data 0\n"
    assert made[1]["srv/data/open/user"] == "65532\n"
    with tarfile.open(image.layers[-1].path) as tar:
        assert tar.getmember("srv/data/open/user").uid == 65532
        assert tar.getmember("srv/data/open").mode == 0o777


def test_settings_of_the_machine_do_not_become_part_of_the_image(
    tmp_path: Path, base: DebianBase, settings: MachineSettings
) -> None:
    secret = tmp_path / "ca.crt"
    secret.write_text("an authority\n")
    (tmp_path / "sub").mkdir()
    with_secret = MachineSettings({"PIP_CERT": str(secret)}, (*settings.files, secret))
    bench = Bench(tmp_path / "sub", base, with_secret)
    image = bench.build('FROM test:1\nRUN cat "$PIP_CERT" > /srv/seen\n')
    assert content(image.layers[1]) == {"srv": "", "srv/seen": "an authority\n"}
    assert "PIP_CERT" not in image.config.env
    # The machine's settings are not a reason to build again.
    with_secret.files[-1].write_text("another authority\n")
    bench.build('FROM test:1\nRUN cat "$PIP_CERT" > /srv/seen\n')
    assert bench.steps == []


STAGES = """\
FROM test:1 AS dependencies
WORKDIR /build
COPY requirements ./
RUN cp requirements installed
FROM dependencies AS build
COPY src ./src
RUN cat installed src/* > result
FROM test:1 AS unused
RUN exit 1
FROM test:1
COPY --from=dependencies /build/installed /opt/one
COPY --from=build /build/result /opt/two
"""


def test_stages_build_on_each_other_and_unused_ones_are_not_built(bench: Bench) -> None:
    bench.write("requirements", "src/a", "src/b")
    image = bench.build(STAGES)
    assert content(image.layers[1])["opt/one"] == "requirements"
    assert content(image.layers[2])["opt/two"] == "requirementssrc/asrc/b"
    assert len(image.layers) == 3
    assert not any("exit 1" in step for step in bench.steps)


def test_a_stage_is_found_by_name_or_number_and_before_its_use_only(bench: Bench) -> None:
    image = bench.build(
        "FROM test:1 AS Test:1\n"
        "RUN echo one > /srv/one\n"
        "FROM test:1 AS again\n"
        "RUN cat /srv/one > /srv/two\n"
        "FROM test:1 AS again\n"
        "COPY --from=0 /srv/one /srv/three\n"
        "COPY --from=AGAIN /srv/two /srv/four\n"
    )
    assert [name for layer in image.layers[-2:] for name in content(layer)] == [
        *("srv", "srv/three"),
        *("srv", "srv/four"),
    ]
    assert content(image.layers[-1])["srv/four"] == "one\n"


def test_only_the_steps_after_a_change_are_done_again(bench: Bench) -> None:
    bench.write("requirements", "src/a")
    first = bench.build(STAGES)
    again = bench.build(STAGES)
    assert bench.steps == []
    assert again == first
    bench.write("src/a", text="changed")
    changed = bench.build(STAGES)
    assert bench.steps == [
        "COPY src ./src",
        "RUN cat installed src/* > result",
        "COPY --from=build /build/result /opt/two",
    ]
    assert changed.layers[:2] == first.layers[:2]
    assert content(changed.layers[2])["opt/two"] == "requirementschanged"


def test_files_that_are_not_copied_are_not_a_reason_to_build_again(bench: Bench) -> None:
    bench.write("requirements", "src/a")
    (bench.context / ".dockerignore").write_text("docs\n**/cache\n")
    bench.build(STAGES)
    bench.write("docs/index", "src/cache/a", "other")
    bench.build(STAGES)
    assert bench.steps == []


def test_a_build_without_a_cache_gives_the_same_image(bench: Bench) -> None:
    bench.write("requirements", "src/a")
    first = bench.build(STAGES)
    bench.forget()
    again = bench.build(STAGES)
    assert bench.steps != []
    assert [layer.digest for layer in again.layers] == [layer.digest for layer in first.layers]


def test_arguments_are_a_reason_to_build_again(bench: Bench) -> None:
    text = "FROM test:1\nARG A=1\nRUN echo $A > /srv/a\n"
    bench.build(text)
    image = bench.build(text, A="2")
    assert content(image.layers[1])["srv/a"] == "2\n"


@pytest.mark.parametrize(
    ("copy", "made"),
    [
        ("COPY a /srv/b", ["srv/b"]),
        ("COPY a /srv/", ["srv/a"]),
        ("COPY a /srv", ["srv/a"]),
        ("COPY a b /srv", ["srv/a", "srv/b"]),
        ("COPY a /link/x", ["srv/x"]),
        ("COPY a /new/deep/x", ["new", "new/deep", "new/deep/x"]),
        ("COPY d /srv", ["srv/e", "srv/e/f"]),
        ("COPY d /srv/d/", ["srv/d", "srv/d/e", "srv/d/e/f"]),
        ("COPY d/../a ./", ["a"]),
        ("COPY . /srv", ["srv/a", "srv/b", "srv/d", "srv/d/e", "srv/d/e/f", "srv/l"]),
        ("COPY l /srv/x", ["srv/x"]),
        ('WORKDIR /srv\nCOPY "a" x', ["srv/x"]),
    ],
)
def test_files_are_copied_as_docker_does_it(bench: Bench, copy: str, made: list[str]) -> None:
    bench.write("a", "b", "d/e/f")
    (bench.context / "l").symlink_to("a")
    image = bench.build(f"FROM test:1\n{copy}\n")
    assert [name for name in content(image.layers[-1]) if name != "srv"] == made


def test_copied_files_have_an_owner(bench: Bench) -> None:
    bench.write("a")
    image = bench.build("FROM test:1\nCOPY --chown=65532:7 a /srv/new/\n")
    with tarfile.open(image.layers[-1].path) as tar:
        owners = {entry.name: (entry.uid, entry.gid) for entry in tar.getmembers()}
    assert owners == {"srv": (0, 0), "srv/new": (65532, 7), "srv/new/a": (65532, 7)}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("COPY missing /srv/", "line 2: missing does not exist"),
        ("COPY hidden /srv/", "line 2: hidden does not exist"),
        ("COPY --from=other a /srv/", "no earlier stage is called other"),
        ("COPY --from=0 a /srv/", "no earlier stage is called 0"),
        ("COPY a* /srv/", "COPY does not support wildcards"),
        ("COPY a", "COPY needs a source and a target"),
        ("COPY a /etc/release/", "/etc/release is not a folder"),
        ("COPY --chown=user a /srv/", "names of users are not supported"),
        ("USER user\nRUN true", "names of users are not supported"),
        ("WORKDIR a b", "WORKDIR needs one word"),
    ],
)
def test_instructions_that_cannot_be_followed_are_refused(
    bench: Bench, text: str, why: str
) -> None:
    bench.write("a", "hidden", ".dockerignore", text="hidden")
    with pytest.raises(DockerfileInvalid, match=why):
        bench.build(f"FROM test:1\n{text}\n")


def test_an_unknown_base_is_refused_with_the_known_ones(bench: Bench) -> None:
    with pytest.raises(ImageError, match="needs the image other; there are: test:1"):
        bench.build("FROM other\n")


def test_a_failed_command_is_an_error_with_its_line_and_output(bench: Bench) -> None:
    text = "FROM test:1\nRUN true\nRUN echo no such package; exit 4\n"
    with pytest.raises(StepFailed) as caught:
        bench.build(text)
    assert caught.value.line == 3
    assert caught.value.failure.tail == "no such package"
    assert "failed with status 4" in str(caught.value)
    assert str(caught.value).startswith("Dockerfile, line 3: ")
    with pytest.raises(StepFailed):  # the failed step is not in the cache
        bench.build(text)
    assert bench.steps == ["RUN echo no such package; exit 4"]


def test_an_image_may_start_from_nothing(bench: Bench) -> None:
    bench.write("tool")
    image = bench.build('FROM scratch\nCOPY tool /bin/\nCMD ["/bin/tool"]\n')
    assert [content(layer) for layer in image.layers] == [{"bin": "", "bin/tool": "tool"}]
