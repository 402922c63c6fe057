import hashlib
import json
import socket
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from navarchos.testing.controlplane.releases import (
    Release,
    Releases,
    ReleaseUnusable,
    release_of,
    unpack_debian_package,
)
from navarchos.testing.controlplane.tools import (
    CNI_PLUGINS,
    CONTAINERD,
    ETCD,
    KIND,
    KUBECTL,
    KWOK,
    PINS,
)

CONTENT = b"#!/bin/sh\n" * 1000


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def published(directory: Path, checksum: str, *, member: str = "") -> Release:
    (directory / "checksum").write_text(checksum)
    return Release(
        (directory / "file").as_uri(),
        (directory / "checksum").as_uri(),
        str.strip,
        member=member,
    )


def test_a_file_that_matches_its_checksum_is_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(CONTENT)
    target = tmp_path / "new" / "kubectl"
    target.parent.mkdir()
    Releases().fetch(published(tmp_path, f"{sha256(CONTENT)}\n"), target)
    assert target.read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == [target]


def test_a_file_that_differs_from_its_checksum_is_thrown_away(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(CONTENT + b"# and more\n")
    target = tmp_path / "new" / "kubectl"
    target.parent.mkdir()
    with pytest.raises(ReleaseUnusable, match=f"expected {sha256(CONTENT)}"):
        Releases().fetch(published(tmp_path, sha256(CONTENT)), target)
    assert list(target.parent.iterdir()) == []


def test_a_file_without_a_checksum_is_not_even_fetched(tmp_path: Path) -> None:
    with pytest.raises(ReleaseUnusable, match="no checksum found"):
        Releases().fetch(published(tmp_path, ""), tmp_path / "kubectl")


def test_a_program_is_taken_out_of_its_archive(tmp_path: Path) -> None:
    (tmp_path / "etcd").write_bytes(CONTENT)
    with tarfile.open(tmp_path / "file", "w:gz") as archive:
        archive.add(tmp_path / "etcd", "etcd-v1/etcd")
    release = published(tmp_path, sha256((tmp_path / "file").read_bytes()), member="etcd-v1/etcd")
    Releases().fetch(release, tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == CONTENT


def test_an_archive_without_the_program_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "file", "w:gz"):
        pass
    release = published(tmp_path, sha256((tmp_path / "file").read_bytes()), member="etcd-v1/etcd")
    with pytest.raises(ReleaseUnusable, match="etcd-v1/etcd is not in the archive"):
        Releases().fetch(release, tmp_path / "out")


def test_a_host_that_is_not_there_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound but not listening: no other process can answer
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        release = Release(f"{url}/file", f"{url}/checksum", str.strip)
        releases = Releases()
        with pytest.raises(ReleaseUnusable, match=r"cannot be reached: .*refused"):
            releases.fetch(release, tmp_path / "out")
        unused.listen()  # would now hang instead
        with pytest.raises(ReleaseUnusable, match=r"cannot be reached: .*refused"):
            releases.fetch(release, tmp_path / "out")


def test_kubernetes_publishes_a_checksum_beside_each_program() -> None:
    release = release_of(KUBECTL, "linux", "x86_64")
    base = f"https://dl.k8s.io/release/v{PINS['kubernetes']}/bin/linux/amd64/kubectl"
    assert (release.url, release.checksum_url) == (base, f"{base}.sha512")
    assert release.algorithm == "sha512"
    assert release.read_checksum("0123abc\n") == "0123abc"


def test_etcd_publishes_one_list_of_checksums() -> None:
    release = release_of(ETCD, "linux", "aarch64")
    name = f"etcd-v{PINS['etcd']}-linux-arm64"
    assert release.url.endswith(f"/{name}.tar.gz")
    assert release.member == f"{name}/etcd"
    listed = f"aaa  etcd-v{PINS['etcd']}-linux-amd64.tar.gz\nbbb  {name}.tar.gz\n"
    assert release.read_checksum(listed) == "bbb"
    assert release.read_checksum("aaa  other.tar.gz\n") == ""


def test_kwoks_checksum_is_the_digest_of_what_was_uploaded() -> None:
    release = release_of(KWOK, "linux", "x86_64")
    assets = [
        {"name": "kwok-linux-arm64", "digest": "sha256:aaa"},
        {"name": "kwok-linux-amd64", "digest": "sha256:bbb"},
    ]
    assert release.read_checksum(json.dumps({"assets": assets})) == "bbb"
    without = [{"name": "kwok-linux-amd64", "digest": None}]
    for text in (json.dumps({"assets": without}), json.dumps({"assets": []}), "{}", "<html>"):
        assert release.read_checksum(text) == ""


def test_kind_publishes_a_checksum_beside_each_program() -> None:
    release = release_of(KIND, "linux", "x86_64")
    assert release.url.endswith(f"/v{PINS['kind']}/kind-linux-amd64")
    assert release.checksum_url == f"{release.url}.sha256sum"
    assert release.read_checksum("aaa  kind-linux-amd64\n") == "aaa"


@pytest.mark.parametrize(("system", "machine"), [("darwin", "arm64"), ("linux", "riscv64")])
def test_machines_without_releases_are_told_so(system: str, machine: str) -> None:
    with pytest.raises(ReleaseUnusable, match=f"no release is published for {system} {machine}"):
        release_of(ETCD, system, machine)


APT_GET = r"""#!/bin/sh
# Notes each call. A list of packages is a file named for the package, in the folder Dir::State.
state=$SYSTEM
for argument; do
    case $argument in --option=Dir::State=*) state=${argument#--option=Dir::State=} ;; esac
done
echo "$argument" in "$state" >>"$CALLS"
case "$*" in
*update)
    test -n "$PUBLISHED" && touch "$state/lists/$PUBLISHED"
    test -z "$BROKEN_SOURCE" && exit 0
    echo "Err:1 https://other.example.com"
    echo "E: Failed to fetch https://other.example.com"
    echo "E: Some index files failed to download."
    exit 100
    ;;
*"download $WANTED")
    test -e "$state/lists/$WANTED" && echo content >"${WANTED}_1.0_amd64.deb" && exit 0
    echo "E: Unable to locate package $WANTED"
    exit 100
    ;;
esac
exit 2
"""
DPKG_DEB = """#!/bin/sh
test "$1" = --extract && mkdir "$3" && cp "$2" "$3/program"
"""

Debian = Callable[..., dict[str, str]]


@pytest.fixture
def debian(tmp_path: Path) -> Debian:
    """Make a fake Debian and return its environment."""

    def make(*, listed: bool, published: str = "dbus", broken: str = "") -> dict[str, str]:
        programs, lists = tmp_path / "bin", tmp_path / "system" / "lists"
        programs.mkdir()
        lists.mkdir(parents=True)
        for name, text in (("apt-get", APT_GET), ("dpkg-deb", DPKG_DEB)):
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        if listed:
            (lists / "dbus").touch()
        return {
            "PATH": f"{programs}:/usr/bin:/bin",
            "CALLS": str(tmp_path / "calls"),
            "SYSTEM": str(lists.parent),
            "PUBLISHED": published,
            "BROKEN_SOURCE": broken,
            "WANTED": "dbus",
        }

    return make


def calls_of_apt(directory: Path) -> list[tuple[str, bool]]:
    """Return the command of each call, and whether it used the lists of the system."""
    lines = (directory / "calls").read_text().splitlines()
    system = str(directory / "system")
    return [(line.split(" in ")[0], line.endswith(f" in {system}")) for line in lines]


def test_a_package_of_debian_is_unpacked_and_nothing_else_stays(
    tmp_path: Path, debian: Debian
) -> None:
    target = tmp_path / "new" / "package"
    target.parent.mkdir()
    unpack_debian_package("dbus", target, debian(listed=True))
    assert (target / "program").read_text() == "content\n"
    assert list(target.parent.iterdir()) == [target]
    assert calls_of_apt(tmp_path) == [("dbus", True)]


@pytest.mark.parametrize("broken", ["", "yes"])
def test_without_lists_of_packages_new_ones_are_fetched_beside_those_of_the_system(
    tmp_path: Path, debian: Debian, broken: str
) -> None:
    target = tmp_path / "new" / "package"
    target.parent.mkdir()
    unpack_debian_package("dbus", target, debian(listed=False, broken=broken))
    assert (target / "program").read_text() == "content\n"
    assert list(target.parent.iterdir()) == [target]
    assert calls_of_apt(tmp_path) == [("dbus", True), ("update", False), ("dbus", False)]
    assert list((tmp_path / "system" / "lists").iterdir()) == []


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ("", "Unable to locate package dbus"),
        (
            "yes",
            "Failed to fetch https://other.example.com; Some index files failed to download.",
        ),
    ],
)
def test_a_package_that_debian_does_not_have_is_reported_in_one_line(
    tmp_path: Path, debian: Debian, broken: str, why: str
) -> None:
    with pytest.raises(ReleaseUnusable) as caught:
        unpack_debian_package(
            "dbus", tmp_path / "x", debian(listed=False, published="", broken=broken)
        )
    assert str(caught.value) == f"the Debian package dbus: apt-get failed: {why}"
    assert not (tmp_path / "x").exists()


def test_without_apt_get_the_error_names_it(tmp_path: Path) -> None:
    with pytest.raises(ReleaseUnusable) as caught:
        unpack_debian_package("dbus", tmp_path / "x", {"PATH": str(tmp_path)})
    assert str(caught.value) == "the Debian package dbus: no apt-get on the PATH"


def test_a_package_that_cannot_be_unpacked_is_reported(tmp_path: Path, debian: Debian) -> None:
    environ = debian(listed=True)
    (tmp_path / "bin" / "dpkg-deb").write_text("#!/bin/sh\necho unexpected end of file\nexit 2\n")
    with pytest.raises(ReleaseUnusable, match="dpkg-deb failed: unexpected end of file"):
        unpack_debian_package("dbus", tmp_path / "x", environ)


def test_containerd_comes_from_the_archive_without_libraries() -> None:
    release = release_of(CONTAINERD, "linux", "x86_64")
    name = f"containerd-static-{PINS['containerd']}-linux-amd64.tar.gz"
    assert release.url.endswith(f"/v{PINS['containerd']}/{name}")
    assert release.read_checksum(f"{'1' * 64}  {name}\n{'2' * 64}  other\n") == "1" * 64
    assert release.member == "bin/containerd"


def test_plugins_come_from_one_archive() -> None:
    release = release_of(CNI_PLUGINS[0], "linux", "aarch64")
    name = f"cni-plugins-linux-arm64-v{PINS['cni']}.tgz"
    assert release.url.endswith(name)
    assert release.read_checksum(f"{'1' * 64}  {name}\n") == "1" * 64
    assert release.member == "./ptp"
