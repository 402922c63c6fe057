import hashlib
import json
import os
import stat
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from navarchos.testing.nodes import images
from navarchos.testing.nodes.images import (
    ArchiveUnusable,
    History,
    Image,
    ImageConfig,
    Layer,
    machine_architecture,
    pack_layer,
    read_index,
    write_archive,
)

NAME = "navarchos.test/tool:1"


@dataclass(frozen=True, slots=True)
class Opened:
    """An archive as a runtime reads it: each blob found by its digest, all digests verified."""

    index: Any
    manifest: Any
    config: Any
    layers: list[bytes]


def open_archive(path: Path) -> Opened:
    with tarfile.open(path) as tar:
        files = {}
        for member in tar.getmembers():
            content = tar.extractfile(member)
            assert content is not None
            files[member.name] = content.read()

    def blob(descriptor: Any) -> bytes:
        algorithm, _, digest = descriptor["digest"].partition(":")
        data = files.pop(f"blobs/{algorithm}/{digest}")
        assert hashlib.new(algorithm, data).hexdigest() == digest
        assert len(data) == descriptor["size"]
        return data

    assert json.loads(files.pop("oci-layout")) == {"imageLayoutVersion": "1.0.0"}
    index = json.loads(files.pop("index.json"))
    (entry,) = index["manifests"]
    manifest = json.loads(blob(entry))
    config = json.loads(blob(manifest["config"]))
    layers = [blob(layer) for layer in manifest["layers"]]
    assert files == {}
    digests = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
    assert config["rootfs"] == {"type": "layers", "diff_ids": digests}
    return Opened(index, manifest, config, layers)


def make_tree(folder: Path, names: list[str]) -> Path:
    folder.mkdir()
    for name in names:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o640)
    return folder


def entries(layer: Layer) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(layer.path) as tar:
        return {member.name: member for member in tar.getmembers()}


NAMES = ["etc/a", "etc/b", "z", "bin/tool"]


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    one = make_tree(tmp_path / "one", NAMES)
    other = make_tree(tmp_path / "other", NAMES[::-1])
    os.utime(other / "etc/a", (1, 1))
    layers = [
        pack_layer(folder, tmp_path / f"{folder.name}.tar", owner=(0, 0)) for folder in (one, other)
    ]
    assert layers[0].digest == layers[1].digest
    archives = [tmp_path / "one.oci", tmp_path / "other.oci"]
    for layer, archive in zip(layers, archives, strict=True):
        write_archive(Image((layer,), architecture="amd64"), NAME, archive)
    assert archives[0].read_bytes() == archives[1].read_bytes()
    # Recorded: an archive that another version of the project wrote stays the same.
    digest = "sha256:eda58e88af764194e9cc42bf9a79ed98b092c0e09c74d5b9bcbd86dfdcfb2632"
    assert read_index(archives[0]) == {NAME: digest}


def test_entries_have_no_times_and_no_names_of_users(tmp_path: Path) -> None:
    layer = pack_layer(make_tree(tmp_path / "tree", NAMES), tmp_path / "layer.tar")
    assert list(entries(layer)) == ["bin", "bin/tool", "etc", "etc/a", "etc/b", "z"]
    for entry in entries(layer).values():
        assert (entry.mtime, entry.uname, entry.gname) == (0, "", "")
        assert (entry.uid, entry.gid) == (os.getuid(), os.getgid())
        assert entry.mode == (0o755 if entry.isdir() else 0o640)


def test_an_owner_is_set_on_request(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree", NAMES)
    layer = pack_layer(tree, tmp_path / "layer.tar", owner=(65532, 7))
    assert {(entry.uid, entry.gid) for entry in entries(layer).values()} == {(65532, 7)}


def test_links_stay_links(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree", ["bin/tool"])
    (tree / "bin" / "also").hardlink_to(tree / "bin" / "tool")
    (tree / "sbin").symlink_to("bin")  # a link to a folder is not followed
    (tree / "lost").symlink_to("/nowhere")
    found = entries(pack_layer(tree, tmp_path / "layer.tar"))
    assert list(found) == ["bin", "bin/also", "bin/tool", "lost", "sbin"]
    assert found["bin/also"].isreg()
    assert found["bin/tool"].islnk()
    assert found["bin/tool"].linkname == "bin/also"
    assert (found["sbin"].linkname, found["lost"].linkname) == ("bin", "/nowhere")
    with tarfile.open(tmp_path / "layer.tar") as tar:
        content = tar.extractfile("bin/tool")
        assert content is not None
        assert content.read() == b"bin/tool"


def test_a_pipe_is_kept_and_a_socket_is_left_out(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree", [])
    os.mkfifo(tree / "pipe")
    os.mknod(tree / "socket", stat.S_IFSOCK | 0o600)
    assert list(entries(pack_layer(tree, tmp_path / "layer.tar"))) == ["pipe"]


def test_a_file_that_overlayfs_hides_becomes_a_whiteout(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree", ["etc/kept"])
    try:
        os.mknod(tree / "etc" / "gone", stat.S_IFCHR, os.makedev(0, 0))
    except PermissionError:
        pytest.skip("this kernel lets only root make the marks of overlayfs")
    found = entries(pack_layer(tree, tmp_path / "layer.tar"))
    assert list(found) == ["etc", "etc/.wh.gone", "etc/kept"]
    assert found["etc/.wh.gone"].isreg()
    assert found["etc/.wh.gone"].size == 0


def test_a_folder_that_hides_lower_ones_is_marked_opaque(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = make_tree(tmp_path / "tree", ["etc/new", "opt/old"])
    monkeypatch.setattr(images, "is_opaque", lambda path: path.name == "etc")
    found = entries(pack_layer(tree, tmp_path / "layer.tar"))
    assert list(found) == ["etc", "etc/.wh..wh..opq", "etc/new", "opt", "opt/old"]


def test_an_attribute_of_overlayfs_makes_a_folder_opaque(tmp_path: Path) -> None:
    assert not images.is_opaque(tmp_path)
    try:
        os.setxattr(tmp_path, "trusted.overlay.opaque", b"y")
    except OSError as error:
        pytest.skip(f"this user cannot make a folder opaque: {error}")
    assert images.is_opaque(tmp_path)


def test_capabilities_of_a_program_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = make_tree(tmp_path / "tree", ["ping"])
    capability = b"\x01\x00\x00\x02\xff\x20\x00\x00"
    monkeypatch.setattr(os, "getxattr", lambda path, name: capability)
    layer = pack_layer(tree, tmp_path / "layer.tar")
    record = b"SCHILY.xattr.security.capability=" + capability + b"\n"
    assert record in layer.path.read_bytes()


def test_an_archive_says_how_its_containers_run(tmp_path: Path) -> None:
    layer = pack_layer(make_tree(tmp_path / "tree", NAMES), tmp_path / "layer.tar")
    config = ImageConfig(
        env={"PATH": "/bin"},
        entrypoint=("tool",),
        command=("--help",),
        user="65532:65532",
        directory="/srv",
        ports=("8080/tcp",),
        labels={"title": "a tool"},
    ).with_env(HOME="/")
    steps = (History("COPY . /", has_layer=True), History("USER 65532", has_layer=False))
    write_archive(Image((layer,), config, steps, "arm64"), NAME, tmp_path / "tool.tar")
    opened = open_archive(tmp_path / "tool.tar")
    assert opened.config["config"] == {
        "Env": ["PATH=/bin", "HOME=/"],
        "Entrypoint": ["tool"],
        "Cmd": ["--help"],
        "User": "65532:65532",
        "WorkingDir": "/srv",
        "ExposedPorts": {"8080/tcp": {}},
        "Labels": {"title": "a tool"},
    }
    assert (opened.config["os"], opened.config["architecture"]) == ("linux", "arm64")
    assert [step.get("empty_layer", False) for step in opened.config["history"]] == [False, True]
    (entry,) = opened.index["manifests"]
    assert entry["platform"] == {"os": "linux", "architecture": "arm64"}
    assert entry["annotations"] == {
        "io.containerd.image.name": NAME,
        "org.opencontainers.image.ref.name": "1",
    }
    assert opened.layers == [layer.path.read_bytes()]


def test_empty_fields_are_left_out(tmp_path: Path) -> None:
    write_archive(Image(()), NAME, tmp_path / "tool.tar")
    opened = open_archive(tmp_path / "tool.tar")
    assert opened.config["config"] == {}
    assert opened.config["architecture"] == machine_architecture()


def test_a_layer_that_an_image_has_twice_is_written_once(tmp_path: Path) -> None:
    layer = pack_layer(make_tree(tmp_path / "tree", NAMES), tmp_path / "layer.tar")
    write_archive(Image((layer, layer)), NAME, tmp_path / "tool.tar")
    with tarfile.open(tmp_path / "tool.tar") as tar:
        names = tar.getnames()
        manifest = json.loads(tar.extractfile(names[2]).read())  # type: ignore[union-attr]
    assert len(names) == len(set(names)) == 5
    assert [each["digest"] for each in manifest["layers"]] == [layer.digest] * 2


def test_a_failed_write_leaves_the_old_archive(tmp_path: Path) -> None:
    layer = pack_layer(make_tree(tmp_path / "tree", NAMES), tmp_path / "layer.tar")
    (tmp_path / "images").mkdir()
    archive = tmp_path / "images" / "tool.tar"
    write_archive(Image(()), NAME, archive)
    before = archive.read_bytes()
    layer.path.unlink()
    with pytest.raises(FileNotFoundError):
        write_archive(Image((layer,)), NAME, archive)
    assert archive.read_bytes() == before
    assert list(archive.parent.iterdir()) == [archive]


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({}, "has no"),
        ({"index.json": b"{"}, "Expecting property name"),
        ({"index.json": b"[]"}, "list indices"),
        ({"index.json": b'{"manifests": [{"digest": "sha256:0"}]}'}, "it has no annotations"),
    ],
)
def test_other_files_are_refused_with_the_cause(
    tmp_path: Path, files: dict[str, bytes], why: str
) -> None:
    with tarfile.open(tmp_path / "file.tar", "w") as tar:
        for name, data in files.items():
            images._add(tar, name, data)
    with pytest.raises(ArchiveUnusable, match=why) as caught:
        read_index(tmp_path / "file.tar")
    assert caught.value.path == tmp_path / "file.tar"
    assert str(caught.value).startswith(f"{tmp_path}/file.tar is not an OCI archive: ")


def test_a_file_that_is_not_a_tar_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file.tar").write_bytes(b"#!/bin/sh\n" * 100)
    with pytest.raises(ArchiveUnusable):
        read_index(tmp_path / "file.tar")


@pytest.mark.parametrize(
    ("machine", "architecture"), [("x86_64", "amd64"), ("aarch64", "arm64"), ("riscv64", "riscv64")]
)
def test_architectures_have_the_names_of_images(machine: str, architecture: str) -> None:
    assert machine_architecture(machine) == architecture
