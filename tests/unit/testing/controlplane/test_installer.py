import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from navarchos.stopping import StopToken
from navarchos.testing.controlplane.__main__ import main
from navarchos.testing.controlplane.binaries import Cache, Lookup
from navarchos.testing.controlplane.errors import BinariesMissing, CacheUnusable
from navarchos.testing.controlplane.installer import BuildFailed, ToolInstaller
from navarchos.testing.controlplane.releases import ReleaseUnusable
from navarchos.testing.controlplane.tools import ETCD, KWOK, PROMETHEUS, Tool, ToolVersion
from navarchos.threads import ThreadGroup

VersionOf = Callable[[Tool, Path], ToolVersion | None]


class World:
    """A fake download and a fake build."""

    def __init__(self, directory: Path, version_of: VersionOf) -> None:
        self.cache = Cache(directory / "cache")
        self.lookup = Lookup(environ={"PATH": ""}, cache=self.cache, version_of=version_of)
        self.lines: list[str] = []
        self.calls: list[str] = []
        self.released: dict[Tool, str] = {}
        self.buildable: dict[Tool, str] = {}
        self.in_debian = ""

    def fetch(self, tool: Tool, target: Path) -> None:
        self.calls.append(f"fetch {tool.name}")
        if tool not in self.released:
            target.with_name("leftover").write_text("half a file")
            raise ReleaseUnusable("https://releases.example.com", "cannot be reached")
        target.write_text(self.released[tool])

    def fetch_from_debian(self, tool: Tool, target: Path) -> None:
        self.calls.append(f"apt {tool.name}")
        if not self.in_debian:
            raise ReleaseUnusable(f"the Debian package {tool.project}", "no apt-get on the PATH")
        target.write_text(self.in_debian)

    def build(self, tool: Tool, target: Path, module: Path | None) -> None:
        self.calls.append(f"build {tool.name}")
        if tool not in self.buildable:
            raise BuildFailed("there is no go toolchain on the PATH")
        target.write_text(self.buildable[tool])

    def obtainer(self) -> ToolInstaller:
        return ToolInstaller(
            self.lookup,
            module=None,
            report=self.lines.append,
            fetch=self.fetch,
            fetch_from_debian=self.fetch_from_debian,
            build=self.build,
        )


@pytest.fixture
def world(tmp_path: Path, version_in_file: VersionOf) -> World:
    return World(tmp_path, version_in_file)


def test_a_release_is_kept_in_the_cache_and_not_fetched_again(world: World) -> None:
    world.released[ETCD] = str(ETCD.pinned)
    [first] = world.obtainer().obtain([ETCD])
    [second] = world.obtainer().obtain([ETCD])
    assert (first.source, second.source) == ("release", "cache")
    assert first.path == second.path == world.cache.path("etcd")
    assert world.calls == ["fetch etcd"]
    assert world.lines[-1] == f"etcd: {ETCD.pinned} from cache: {first.path}"


def test_what_cannot_be_fetched_is_built(world: World) -> None:
    world.buildable[ETCD] = str(ETCD.pinned)
    [binary] = world.obtainer().obtain([ETCD])
    assert binary.source == "build"
    assert world.calls == ["fetch etcd", "build etcd"]


def test_nothing_but_programs_stays_in_the_cache(world: World) -> None:
    world.buildable[ETCD] = str(ETCD.pinned)
    with pytest.raises(BinariesMissing):
        world.obtainer().obtain([ETCD, KWOK])
    assert {path.name for path in world.cache.directory.iterdir()} == {".lock", "etcd"}


def test_a_build_of_another_version_is_not_kept(world: World) -> None:
    world.buildable[ETCD] = "v0.0.0"
    with pytest.raises(BinariesMissing, match=f"reports v0.0.0, expected {ETCD.pinned}"):
        world.obtainer().obtain([ETCD])
    assert not world.cache.path("etcd").exists()


def test_if_every_attempt_fails_the_message_names_each_with_its_error(
    world: World,
) -> None:
    with pytest.raises(BinariesMissing) as caught:
        world.obtainer().obtain([ETCD])
    text = str(caught.value)
    for line in (
        "missing programs: etcd;",
        "etcd: KUBEBUILDER_ASSETS: not set",
        "etcd: PATH: no etcd found",
        "etcd: cache: no executable file ",
        "etcd: release: https://releases.example.com: cannot be reached",
        "etcd: build: there is no go toolchain on the PATH",
    ):
        assert line in text


def test_a_package_of_debian_may_be_of_a_later_minor_and_is_fetched_once(world: World) -> None:
    world.in_debian = "v2.53.3"
    [first] = world.obtainer().obtain([PROMETHEUS])
    [second] = world.obtainer().obtain([PROMETHEUS])
    assert (first.source, second.source) == ("Debian", "cache")
    assert first.version == second.version == ToolVersion(2, 53, 3)
    assert world.calls == ["apt prometheus"]
    assert world.lines[-1] == f"prometheus: v2.53.3 from cache: {first.path}"


def test_a_cached_package_that_is_too_old_by_now_is_fetched_again(world: World) -> None:
    old = world.cache.path("prometheus")
    old.parent.mkdir()
    old.write_text("v2.33.5")
    old.chmod(0o755)
    world.in_debian = "v2.42.0"
    [binary] = world.obtainer().obtain([PROMETHEUS])
    assert (binary.source, old.read_text()) == ("Debian", "v2.42.0")


def test_a_package_of_debian_that_is_too_old_is_not_kept(world: World) -> None:
    world.in_debian = "v2.33.5"
    with pytest.raises(BinariesMissing, match=r"reports v2\.33\.5, expected v2\.42\.0"):
        world.obtainer().obtain([PROMETHEUS])
    assert not world.cache.path("prometheus").exists()


def test_where_there_is_no_debian_the_advice_is_the_path(world: World) -> None:
    with pytest.raises(BinariesMissing, match="install the programs on the PATH") as caught:
        world.obtainer().obtain([PROMETHEUS])
    why = "the Debian package prometheus: no apt-get on the PATH"
    assert ("prometheus: Debian", why) in caught.value.attempts
    assert world.calls == ["apt prometheus"]


def test_a_second_run_waits_for_the_first_and_uses_what_it_brought(world: World) -> None:
    world.released[ETCD] = str(ETCD.pinned)
    waiting = threading.Event()
    world.lines = []
    obtainer = ToolInstaller(
        world.lookup,
        module=None,
        report=lambda line: waiting.set() if "waiting" in line else world.lines.append(line),
        fetch=world.fetch,
        build=world.build,
    )
    stop = StopToken()
    threads = ThreadGroup("obtain", stop=stop)
    with world.cache.locked(lambda: None):
        threads.start("second", lambda: obtainer.obtain([ETCD]))
        assert waiting.wait(30)
        with world.cache.staging() as directory:
            staged = directory / "etcd"
            staged.write_text(str(ETCD.pinned))
            staged.chmod(0o755)
            world.cache.install(staged, "etcd")
    assert threads.join(30)
    threads.raise_failure()
    assert world.calls == []
    assert "from cache" in world.lines[0]


def test_what_a_killed_run_left_half_written_is_removed(world: World) -> None:
    left = world.cache.directory / ".new-killed"
    left.mkdir(parents=True)
    (left / "etcd").write_text("half of it")
    world.buildable[ETCD] = str(ETCD.pinned)
    world.obtainer().obtain([ETCD])
    assert {path.name for path in world.cache.directory.iterdir()} == {".lock", "etcd"}


def test_a_full_disk_is_reported_and_no_further_program_is_tried(world: World) -> None:
    def fetch(tool: Tool, target: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    obtainer = ToolInstaller(
        world.lookup, module=None, report=world.lines.append, fetch=fetch, build=world.build
    )
    with pytest.raises(CacheUnusable, match="No space left on device") as caught:
        obtainer.obtain([ETCD, KWOK])
    assert caught.value.directory == world.cache.directory
    assert world.calls == []
    assert {path.name for path in world.cache.directory.iterdir()} == {".lock"}


def test_a_cache_that_cannot_be_created_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = tmp_path / "file" / "cache"
    environ = {"PATH": "", "KUBEBUILDER_ASSETS": ""}
    done = CliRunner(env=environ).invoke(main, ["etcd", "--cache", str(cache)])
    assert done.exit_code == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"Error: cannot write the program cache {cache}: ")


def test_no_cache_is_needed_where_all_is_there(
    tmp_path: Path, make_program: Callable[[Path, str, str], Path]
) -> None:
    program = make_program(tmp_path / "assets", "etcd", str(ETCD.pinned))
    (tmp_path / "file").touch()
    cache = str(tmp_path / "file" / "cache")
    environ = {"KUBEBUILDER_ASSETS": str(program.parent)}
    done = CliRunner(env=environ).invoke(main, ["etcd", "--cache", cache])
    assert (done.exit_code, done.stdout) == (0, f"{program}\n")


def test_the_command_prints_paths_and_says_where_they_come_from(
    tmp_path: Path, make_program: Callable[[Path, str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = make_program(tmp_path, "etcd", "v3.4.0")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    done = CliRunner().invoke(main, ["etcd", "--cache", str(tmp_path / "cache")])
    assert done.exit_code == 0
    assert done.stdout == f"{program}\n"
    meant = f"(the tests expect {ETCD.pinned})"
    assert done.stderr == f"etcd: v3.4.0 {meant} from KUBEBUILDER_ASSETS: {program}\n"


def test_the_command_refuses_an_unknown_program_in_one_line() -> None:
    done = CliRunner().invoke(main, ["etdc"])
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: tool='etdc': it must be one of")
    assert done.stderr.count("\n") == 1
