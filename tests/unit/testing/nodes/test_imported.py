import os
from pathlib import Path

import pytest

from navarchos.errors import AlreadyStarted, NotStarted
from navarchos.testing.nodes import imported as module
from navarchos.testing.nodes.images import Image, ImageConfig, write_archive
from navarchos.testing.nodes.imported import ImportedImages, ImportFailed

# A containerd that only makes its folders and a socket, and then waits for its end.
CONTAINERD = """#!/bin/sh
root=$(sed -n 's/^root = "\\(.*\\)"/\\1/p' "$2")
mkdir -p "$root/io.containerd.metadata.v1.bolt" "$root/io.containerd.content.v1.content" \\
  "$root/io.containerd.grpc.v1.introspection" "$root/tmpmounts" /run/containerd
echo "$root" >/run/containerd/root
trap 'echo database >"$root/io.containerd.metadata.v1.bolt/meta.db"; exit 0' TERM
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("/run/containerd/containerd.sock")'
while :; do sleep 0.02; done
"""
# Like the real one, it does not write again what is there.
CTR = """#!/bin/sh
for archive; do :; done
content="$(cat /run/containerd/root)/io.containerd.content.v1.content"
test -e "$content/$(basename "$archive")" || echo "$*" >"$content/$(basename "$archive")"
"""

pytestmark = pytest.mark.usefixtures("_can_mount")


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    folder = tmp_path / "programs"
    folder.mkdir()
    for name, text in (("containerd", CONTAINERD), ("ctr", CTR)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def archive(folder: Path, name: str, **env: str) -> Path:
    path = folder / f"{name}.tar"
    write_archive(Image((), ImageConfig(env)), f"x.example/{name}:1", path)
    return path


def folders(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_dir())


def test_images_are_imported_once(tmp_path: Path, programs: Path) -> None:
    images = [archive(tmp_path, "one"), archive(tmp_path, "two")]
    lines: list[str] = []
    for _ in range(2):
        with ImportedImages(
            programs, images, directory=tmp_path / "imported", report=lines.append
        ) as imported:
            imported.copy_to(tmp_path / f"node-{len(list(tmp_path.glob('node-*')))}")
    assert lines == ["importing 2 images"]
    for node in ("node-0", "node-1"):
        content = tmp_path / node / "io.containerd.content.v1.content"
        assert sorted(path.name for path in content.iterdir()) == ["one.tar", "two.tar"]
        call = f"--connect-timeout 30s --namespace k8s.io images import --local {images[0]}\n"
        assert (content / "one.tar").read_text() == call
        # What belongs to one containerd alone is not copied.
        assert sorted(path.name for path in (tmp_path / node).iterdir()) == [
            "io.containerd.content.v1.content",
            "io.containerd.metadata.v1.bolt",
        ]


def test_nodes_share_files_but_not_databases(tmp_path: Path, programs: Path) -> None:
    with ImportedImages(
        programs, [archive(tmp_path, "one")], directory=tmp_path / "imported"
    ) as imported:
        for node in ("a", "b"):
            imported.copy_to(tmp_path / node)
    content, database = "io.containerd.content.v1.content/one.tar", "meta.db"
    shared = [(tmp_path / node / content).stat().st_ino for node in ("a", "b")]
    assert shared[0] == shared[1]
    databases = [tmp_path / node / "io.containerd.metadata.v1.bolt" / database for node in "ab"]
    databases[0].write_text("changed\n")
    assert databases[1].read_text() == "database\n"


def content_of(imported: ImportedImages, node: Path) -> dict[str, int]:
    imported.copy_to(node)
    files = (node / "io.containerd.content.v1.content").iterdir()
    return {path.name: path.stat().st_ino for path in files}


def test_another_version_of_an_image_is_imported_into_a_copy_of_the_last_folder(
    tmp_path: Path, programs: Path
) -> None:
    folder, same = tmp_path / "imported", archive(tmp_path, "same")
    with ImportedImages(programs, [same, archive(tmp_path, "one")], directory=folder) as imported:
        first = content_of(imported, tmp_path / "first")
    with ImportedImages(
        programs, [same, archive(tmp_path, "one", A="1")], directory=folder
    ) as imported:
        assert content_of(imported, tmp_path / "second") == first


def test_a_folder_has_no_images_of_folders_with_other_names(tmp_path: Path, programs: Path) -> None:
    folder = tmp_path / "imported"
    with ImportedImages(programs, [archive(tmp_path, "one")], directory=folder):
        pass
    with ImportedImages(programs, [archive(tmp_path, "two")], directory=folder) as imported:
        assert list(content_of(imported, tmp_path / "node")) == ["two.tar"]


@pytest.mark.parametrize("changed", ["image", "containerd"])
def test_another_input_makes_another_folder_and_removes_the_old_one(
    tmp_path: Path, programs: Path, changed: str
) -> None:
    folder = tmp_path / "imported"
    with ImportedImages(programs, [archive(tmp_path, "one")], directory=folder):
        first = folders(folder)
    if changed == "image":
        images = [archive(tmp_path, "one", A="1")]
    else:
        images = [archive(tmp_path, "one")]
        (programs / "containerd").write_text(f"{CONTAINERD}# another version\n")
    with ImportedImages(programs, images, directory=folder):
        assert len(folders(folder)) == 1
        assert folders(folder) != first


def test_a_folder_in_use_is_not_removed(tmp_path: Path, programs: Path) -> None:
    folder = tmp_path / "imported"
    with ImportedImages(programs, [archive(tmp_path, "one")], directory=folder) as first:
        with ImportedImages(programs, [archive(tmp_path, "one", A="1")], directory=folder):
            assert len(folders(folder)) == 2
        first.copy_to(tmp_path / "node")
    with ImportedImages(programs, [archive(tmp_path, "one", A="2")], directory=folder):
        assert len(folders(folder)) == 1


def test_a_failed_import_leaves_no_folder(tmp_path: Path, programs: Path) -> None:
    (programs / "ctr").write_text("#!/bin/sh\necho ctr: no space left\nexit 1\n")
    with (
        pytest.raises(ImportFailed, match="ctr: no space left") as caught,
        ImportedImages(programs, [archive(tmp_path, "one")], directory=tmp_path / "imported"),
    ):
        pytest.fail("the import has failed")
    assert "failed with status 1" in caught.value.why
    assert folders(tmp_path / "imported") == []


def test_a_containerd_that_ends_is_noticed(
    tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_IMPORT_TIMEOUT", 20.0)
    (programs / "containerd").write_text("#!/bin/sh\necho bad configuration\nexit 1\n")
    with (
        pytest.raises(ImportFailed, match="bad configuration") as caught,
        ImportedImages(programs, [archive(tmp_path, "one")], directory=tmp_path / "imported"),
    ):
        pytest.fail("the import has failed")
    assert "took longer" not in caught.value.why


def test_a_folder_is_used_inside_with_only(tmp_path: Path, programs: Path) -> None:
    imported = ImportedImages(programs, [archive(tmp_path, "one")], directory=tmp_path / "imported")
    with pytest.raises(NotStarted):
        imported.copy_to(tmp_path / "node")
    with imported, pytest.raises(AlreadyStarted):
        imported.__enter__()
    with pytest.raises(NotStarted):
        imported.copy_to(tmp_path / "node")


def test_a_node_on_another_file_system_is_refused(tmp_path: Path, programs: Path) -> None:
    other = Path("/dev/shm")
    if other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("/dev/shm is on the same file system")
    with (
        ImportedImages(
            programs, [archive(tmp_path, "one")], directory=tmp_path / "imported"
        ) as imported,
        pytest.raises(ImportFailed, match="is not on the file system of"),
    ):
        imported.copy_to(other / f"node-{os.getpid()}")


def test_folders_that_a_killed_process_left_are_removed(tmp_path: Path, programs: Path) -> None:
    folder = tmp_path / "imported"
    (folder / "0a-1b" / "content").mkdir(parents=True)  # no process has locked it yet
    (folder / ".new-half").mkdir()
    with ImportedImages(programs, [archive(tmp_path, "one")], directory=folder):
        (name,) = folders(folder)
    left = sorted(path.name for path in folder.iterdir())
    assert left == [".lock", name, f"{name}.lock"]
