import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from navarchos.testing.controlplane.binaries import (
    Binary,
    Cache,
    Lookup,
    cache_directory,
    find_binaries,
    installed_version,
)
from navarchos.testing.controlplane.errors import BinariesMissing
from navarchos.testing.controlplane.tools import APISERVER, ETCD, KIND, KWOK, Tool, ToolVersion

MakeProgram = Callable[[Path, str, str], Path]
VersionOf = Callable[[Tool, Path], ToolVersion | None]

PINNED = str(ETCD.pinned)


@pytest.fixture
def lookup(tmp_path: Path, version_in_file: VersionOf) -> Lookup:
    environ = {"KUBEBUILDER_ASSETS": str(tmp_path / "assets"), "PATH": str(tmp_path / "path")}
    return Lookup(environ=environ, cache=Cache(tmp_path / "cache"), version_of=version_in_file)


def found(lookup: Lookup, tool: Tool = ETCD) -> Binary:
    return find_binaries([tool], lookup)[tool]


def test_assets_win_over_the_path_and_that_over_the_cache(
    tmp_path: Path, lookup: Lookup, make_program: MakeProgram
) -> None:
    make_program(tmp_path / "cache", "etcd", PINNED)
    assert found(lookup).source == "cache"
    make_program(tmp_path / "path", "etcd", PINNED)
    assert found(lookup).source == "PATH"
    make_program(tmp_path / "assets", "etcd", PINNED)
    assert found(lookup).source == "KUBEBUILDER_ASSETS"


def test_assets_may_be_of_any_version(
    tmp_path: Path, lookup: Lookup, make_program: MakeProgram
) -> None:
    make_program(tmp_path / "assets", "etcd", "v3.4.0")
    assert found(lookup).version == ToolVersion(3, 4, 0)


def test_what_is_older_on_the_path_is_passed_over(
    tmp_path: Path, lookup: Lookup, make_program: MakeProgram
) -> None:
    make_program(tmp_path / "path", "etcd", "v3.5.21")
    make_program(tmp_path / "cache", "etcd", PINNED)
    assert found(lookup).source == "cache"


def test_what_is_newer_on_the_path_is_taken(
    tmp_path: Path, lookup: Lookup, make_program: MakeProgram
) -> None:
    make_program(tmp_path / "path", "etcd", "v3.7.0")
    assert found(lookup).version == ToolVersion(3, 7, 0)


def test_a_file_that_cannot_be_run_is_no_program(
    tmp_path: Path, lookup: Lookup, make_program: MakeProgram
) -> None:
    make_program(tmp_path / "assets", "etcd", PINNED).chmod(0o644)
    make_program(tmp_path / "cache", "etcd", PINNED)
    assert found(lookup).source == "cache"


def test_missing_programs_are_reported_with_every_attempt(
    tmp_path: Path, lookup: Lookup, make_program: MakeProgram
) -> None:
    make_program(tmp_path / "cache", "etcd", PINNED)
    old = make_program(tmp_path / "path", "kube-apiserver", "v1.20.2")
    with pytest.raises(BinariesMissing) as caught:
        find_binaries([ETCD, APISERVER, KWOK], lookup)
    assert caught.value.names == ("kube-apiserver", "kwok")
    attempts = dict(caught.value.attempts)
    assert attempts["kube-apiserver: PATH"] == f"{old} is v1.20.2, older than {APISERVER.pinned}"
    assert attempts["kwok: PATH"] == "no kwok found"
    assert "`python -m navarchos.testing.controlplane kube-apiserver kwok`" in str(caught.value)


def test_a_program_is_asked_for_its_version(tmp_path: Path, make_program: MakeProgram) -> None:
    program = make_program(tmp_path, "etcd", "v3.6.8")
    assert installed_version(ETCD, program) == ToolVersion(3, 6, 8)


def test_a_program_that_fails_tells_no_version(tmp_path: Path) -> None:
    program = tmp_path / "etcd"
    program.write_text("#!/bin/sh\necho etcd v3.6.8\nexit 1\n")
    program.chmod(0o755)
    assert installed_version(ETCD, program) is None
    assert installed_version(ETCD, tmp_path / "nothing") is None


def test_a_program_that_says_no_text_tells_no_version(tmp_path: Path) -> None:
    program = tmp_path / "etcd"
    program.write_text("#!/bin/sh\nprintf '\\377\\376'\n")
    program.chmod(0o755)
    assert installed_version(ETCD, program) is None


def test_the_cache_is_below_the_users_cache_folder_and_named_by_versions(tmp_path: Path) -> None:
    directory = cache_directory({"XDG_CACHE_HOME": str(tmp_path)})
    assert directory.parent == tmp_path / "navarchos" / "controlplane"
    assert directory.name.startswith(f"kubernetes-{str(APISERVER.pinned)[1:]}-etcd-")


def test_what_makes_no_control_plane_has_a_cache_of_its_own(tmp_path: Path) -> None:
    directory = cache_directory({"XDG_CACHE_HOME": str(tmp_path)}, [KIND.project])
    assert directory == tmp_path / "navarchos" / "controlplane" / f"kind-{str(KIND.pinned)[1:]}"


@pytest.mark.parametrize("environ", [{}, {"XDG_CACHE_HOME": ""}, {"XDG_CACHE_HOME": "relative"}])
def test_a_cache_folder_that_is_not_absolute_does_not_count(environ: dict[str, str]) -> None:
    home = Path.home() / ".cache" / "navarchos"
    assert cache_directory(environ).parents[1] == home


def test_a_discarded_folder_is_gone_as_a_whole(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    (tmp_path / "old" / "deep").mkdir(parents=True)
    (tmp_path / "new").mkdir()
    cache.discard("old")
    assert list(tmp_path.iterdir()) == [tmp_path / "new"]


def test_a_folder_is_out_of_sight_before_it_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    remove = shutil.rmtree

    def look_and_remove(path: Path) -> None:
        seen.append((tmp_path / "old").exists())
        remove(path)

    monkeypatch.setattr(shutil, "rmtree", look_and_remove)
    (tmp_path / "old").mkdir()
    Cache(tmp_path).discard("old")
    assert seen == [False]
