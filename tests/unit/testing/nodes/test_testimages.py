import os
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from navarchos.testing.controlplane.releases import ReleaseUnusable
from navarchos.testing.nodes import testimages
from navarchos.testing.nodes.debian import DebianBase
from navarchos.testing.nodes.images import ImageError, read_index
from navarchos.testing.nodes.testimages import BUSYBOX, PAUSE, TestImages, deployed_image, main

ROOT = Path(__file__).parents[4]

# `download NAME` gives a package of that name, which `dpkg-deb` unpacks.
APT_GET = """#!/bin/sh
echo "$*" >>"$CALLS"
for name; do :; done
test "$name" = busybox-static || test "$name" = catatonit || exit 100
touch "${name}_1%3a1.35.0-4+b1_amd64.deb"
"""
DPKG_DEB = """#!/bin/sh
mkdir -p "$3/bin" "$3/usr/bin"
printf '#!/bin/sh\\nprintf "[\\nbusybox\\nsh\\n"\\n' >"$3/bin/busybox"
printf 'waits' >"$3/usr/bin/catatonit"
chmod 700 "$3/bin/busybox"
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put fake programs of Debian on the PATH; the file has a line for each call of apt-get."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("apt-get", APT_GET), ("dpkg-deb", DPKG_DEB)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return tmp_path / "calls"


def layer_of(archive: Path) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(archive) as tar:
        layer = max(tar.getmembers(), key=lambda member: member.size)
        content = tar.extractfile(layer)
        with tarfile.open(fileobj=content) as files:
            return {member.name: member for member in files.getmembers()}


@pytest.mark.usefixtures("calls")
def test_busybox_has_a_name_for_each_tool(tmp_path: Path) -> None:
    os.umask(old := os.umask(0o077))
    try:
        archive = TestImages(tmp_path / "images").busybox()
    finally:
        os.umask(old)
    assert list(read_index(archive)) == [BUSYBOX]
    files = layer_of(archive)
    tools = {name: file.linkname for name, file in files.items() if file.issym()}
    assert tools == {"bin/[": "busybox", "bin/sh": "busybox", "usr/bin": "/bin"}
    assert files["bin/busybox"].mode == 0o755
    assert files["tmp"].mode == 0o1777
    assert files["etc/passwd"].mode == 0o644
    assert {(file.uid, file.gid) for file in files.values()} == {(0, 0)}
    assert archive.name.endswith("_1.35.0-4+b1.tar")


@pytest.mark.usefixtures("calls")
def test_pause_is_one_program(tmp_path: Path) -> None:
    archive = TestImages(tmp_path / "images").pause()
    assert list(read_index(archive)) == [PAUSE]
    assert {name: file.mode for name, file in layer_of(archive).items()} == {"pause": 0o755}


def test_an_archive_is_made_once_and_then_without_the_network(tmp_path: Path, calls: Path) -> None:
    lines: list[str] = []
    first = TestImages(tmp_path / "images", report=lines.append).busybox()
    assert TestImages(tmp_path / "images").busybox() == first
    assert len(calls.read_text().splitlines()) == 1
    assert lines == ["busybox-static: fetching the package of Debian"]
    left = {path.name for path in (tmp_path / "images").iterdir()}
    assert left == {first.name, ".lock"}


def test_a_package_that_cannot_be_fetched_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ReleaseUnusable, match="the Debian package catatonit: no apt-get"):
        TestImages(tmp_path / "images").pause()
    assert [path.name for path in (tmp_path / "images").iterdir()] == [".lock"]


@pytest.mark.parametrize(
    ("program", "why"), [("exit 3", "does not list its tools"), ("", "has no file busybox")]
)
def test_a_package_without_the_program_is_refused(
    tmp_path: Path, calls: Path, program: str, why: str
) -> None:
    make = f'mkdir -p "$3/bin"; printf "#!/bin/sh\\n{program}\\n" >"$3/bin/busybox"'
    dpkg = calls.parent / "bin" / "dpkg-deb"
    dpkg.write_text(f"#!/bin/sh\n{make if program else ':'}\n")
    with pytest.raises(ImageError, match=why):
        TestImages(tmp_path / "images").busybox()


@pytest.fixture
def checkout(tmp_path: Path, base: DebianBase, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a Dockerfile, and a base in place of Debian's packages."""
    monkeypatch.setattr(testimages, "obtain_base", lambda directory, report: base)
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / "Dockerfile").write_text(
        "ARG PYTHON_VERSION=3.99\nFROM python:${PYTHON_VERSION}-slim\nCOPY source /srv/\n"
    )
    (folder / "source").write_text("0")
    return folder


def test_the_projects_image_is_built_when_an_input_changes(tmp_path: Path, checkout: Path) -> None:
    lines: list[str] = []
    images = TestImages(tmp_path / "images", report=lines.append)
    first = images.project(checkout, "x.example/tool:1")
    assert list(read_index(first)) == ["x.example/tool:1"]
    assert lines == ["step: COPY source /srv/", "project: writing the archive"]
    digest = read_index(first)
    lines.clear()
    assert images.project(checkout, "x.example/tool:1") == first
    assert lines == []
    other = images.project(checkout, "x.example/tool:2")
    assert list(read_index(other)) == ["x.example/tool:2"]
    assert lines == ["project: writing the archive"]
    (checkout / "source").write_text("1")
    assert read_index(images.project(checkout, "x.example/tool:1")) != digest


def test_the_archives_used_last_are_kept(tmp_path: Path, checkout: Path) -> None:
    images = TestImages(tmp_path / "images")
    made = []
    for number in range(5):
        (checkout / "source").write_text(str(number))
        made.append(images.project(checkout, "x.example/tool:1"))
        os.utime(made[-1], (number, number))
    assert [archive.exists() for archive in made] == [False, False, False, True, True]


@pytest.mark.usefixtures("calls")
def test_the_command_prints_the_path_of_each_archive(tmp_path: Path, checkout: Path) -> None:
    (checkout / "config" / "deploy").mkdir(parents=True)
    (checkout / "config" / "deploy" / "deployment.yaml").write_text(
        "kind: Deployment\nspec: {template: {spec: {containers: [{image: x.example/tool:1}]}}}\n"
    )
    options = ["--checkout", str(checkout), "--cache", str(tmp_path / "images")]
    done = CliRunner().invoke(main, options)
    assert done.exit_code == 0, done.output
    names = [list(read_index(Path(line))) for line in done.stdout.splitlines()]
    assert names == [[PAUSE], [BUSYBOX], ["x.example/tool:1"]]
    assert "catatonit: fetching the package of Debian" in done.stderr
    one = CliRunner().invoke(main, [*options, "busybox"])
    assert one.stdout == f"{done.stdout.splitlines()[1]}\n"


def test_the_command_reports_an_error_in_one_line(tmp_path: Path) -> None:
    options = ["--checkout", str(tmp_path), "--cache", str(tmp_path / "images"), "project"]
    done = CliRunner().invoke(main, options)
    assert done.exit_code == 1
    assert done.stderr == f"Error: {tmp_path}/config/deploy has no Deployment\n"


def test_the_name_is_that_of_the_shipped_deployment() -> None:
    text = (ROOT / "config" / "deploy" / "deployment.yaml").read_text(encoding="utf-8")
    assert f"image: {deployed_image(ROOT)}\n" in text


def test_a_folder_without_a_deployment_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config" / "deploy").mkdir(parents=True)
    (tmp_path / "config" / "deploy" / "one.yaml").write_text("---\nkind: Service\n---\n")
    with pytest.raises(ImageError, match="config/deploy has no Deployment"):
        deployed_image(tmp_path)
