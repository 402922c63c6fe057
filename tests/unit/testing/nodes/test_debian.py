import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from navarchos.testing.controlplane.releases import ReleaseUnusable
from navarchos.testing.nodes import debian
from navarchos.testing.nodes.chroot import CannotBuild
from navarchos.testing.nodes.debian import DebianBase, obtain_base
from navarchos.testing.nodes.images import pack_layer

VERSIONS = {"python3": "3.11.2-1+b1", "libc6": "2.36-9+deb12u14"}

# Answers `--simulate` from a file, and refuses everything if the file does not exist.
APT_GET = """#!/bin/sh
case "$*" in
*" update") exit 100 ;;
*--simulate*) cat "$VERSIONS" || exit 100 ;;
*) echo "E: unexpected: $*"; exit 100 ;;
esac
"""

Offer = Callable[..., None]


@pytest.fixture
def offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Offer:
    """Return a function that sets the versions that apt-get offers."""
    programs, offered = tmp_path / "bin", tmp_path / "offered"
    programs.mkdir()
    (programs / "apt-get").write_text(APT_GET)
    (programs / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("VERSIONS", str(offered))

    def change(**versions: str) -> None:
        lines = [
            f"Inst {name} ({version} Debian:12.15/oldstable [amd64]) []\nConf {name}"
            for name, version in versions.items()
        ]
        offered.write_text("\n".join(["NOTE: only a simulation", *lines]) + "\n")

    return change


def put(directory: Path, versions: dict[str, str], age: int = 0) -> DebianBase:
    """Put a base into the cache, as if it had been made."""
    key = debian._key(versions)
    root = directory / key / "root"
    root.mkdir(parents=True)
    (root / "file").write_text(key)
    layer = pack_layer(root, directory / key / "layer.tar")
    (directory / key / "versions.json").write_text(json.dumps(versions))
    os.utime(directory / key / "versions.json", (1000 - age, 1000 - age))
    return DebianBase(key, root, layer, versions)


def test_a_base_with_the_offered_versions_is_used(tmp_path: Path, offer: Offer) -> None:
    offer(**VERSIONS)
    put(tmp_path / "bases", {**VERSIONS, "libc6": "2.36-9+deb12u13"})
    wanted = put(tmp_path / "bases", VERSIONS)
    lines: list[str] = []
    found = obtain_base(tmp_path / "bases", lines.append)
    assert (found, lines) == (wanted, [])
    assert found.python_version == "3.11"
    assert found.image.layers == (wanted.layer,)
    assert found.image.config.env["PATH"].startswith("/usr/local/bin:")


def test_without_apt_the_last_base_is_used(tmp_path: Path, offer: Offer) -> None:
    put(tmp_path / "bases", {**VERSIONS, "libc6": "2.36-9+deb12u13"}, age=1)
    last = put(tmp_path / "bases", VERSIONS)
    put(tmp_path / "bases", {**VERSIONS, "libc6": "2.36-9+deb12u12"}, age=2)
    lines: list[str] = []
    assert obtain_base(tmp_path / "bases", lines.append) == last
    (line,) = lines
    assert line.startswith("using the last base of Debian: the Debian packages ?essential, usr-is-")


def test_without_apt_and_without_a_base_the_cause_is_reported(tmp_path: Path, offer: Offer) -> None:
    with pytest.raises(ReleaseUnusable, match="apt-get failed"):
        obtain_base(tmp_path / "bases", lambda line: None)


def test_a_base_that_must_be_made_needs_root_and_keeps_the_others(
    tmp_path: Path, offer: Offer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    old = put(tmp_path / "bases", {**VERSIONS, "libc6": "2.36-9+deb12u13"})
    offer(**VERSIONS)
    with pytest.raises(CannotBuild):
        obtain_base(tmp_path / "bases", lambda line: None)
    assert old.root.is_dir()
    assert sorted(path.name for path in (tmp_path / "bases").iterdir()) == [".lock", old.key]


def test_a_failed_download_keeps_the_other_bases(
    tmp_path: Path, offer: Offer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debian, "check_machine", lambda: None)
    old = put(tmp_path / "bases", {**VERSIONS, "libc6": "2.36-9+deb12u13"})
    offer(**VERSIONS)
    lines: list[str] = []
    with pytest.raises(ReleaseUnusable):
        obtain_base(tmp_path / "bases", lines.append)
    assert lines == ["making a base of 2 packages of Debian (takes about a minute)"]
    assert old.root.is_dir()


def test_the_key_names_all_versions() -> None:
    keys = {
        debian._key(VERSIONS),
        debian._key({**VERSIONS, "libc6": "2.36-9+deb12u13"}),
        debian._key({**VERSIONS, "zlib1g": "1"}),
    }
    assert len(keys) == 3
    assert debian._key(dict(reversed(VERSIONS.items()))) in keys
