"""Images of containers as files: layers from folders, and OCI archives that need no registry.

An archive is a tar of an OCI image layout. A container runtime imports it under the name in its
index (`ctr images import FILE`), so nodes start containers of it without a registry. Layers are
not compressed: they stay on one machine, where compressing costs more time than copying.

The same folders, configuration and name give the same bytes: entries are sorted, times are zero,
and users and groups are numbers.
"""

import hashlib
import io
import json
import os
import platform
import stat
import sys
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, Final

from navarchos.errors import NavarchosError

__all__ = [
    "ArchiveUnusable",
    "History",
    "Image",
    "ImageConfig",
    "ImageError",
    "Layer",
    "digest_of_file",
    "is_opaque",
    "is_whiteout",
    "machine_architecture",
    "pack_layer",
    "read_index",
    "write_archive",
]

_INDEX_TYPE: Final = "application/vnd.oci.image.index.v1+json"
_MANIFEST_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
_CONFIG_TYPE: Final = "application/vnd.oci.image.config.v1+json"
_LAYER_TYPE: Final = "application/vnd.oci.image.layer.v1.tar"
_NAME: Final = "io.containerd.image.name"
_TAG: Final = "org.opencontainers.image.ref.name"
_CREATED: Final = "1970-01-01T00:00:00Z"
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_CAPABILITY: Final = "security.capability"


class ImageError(NavarchosError):
    """An image cannot be built, read, or imported."""


class ArchiveUnusable(ImageError):
    """A file is not an OCI archive with a named image.

    Attributes:
        path: The file.
        why: The cause.
    """

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(path, why)
        self.path = path
        self.why = why

    def __str__(self) -> str:
        return f"{self.path} is not an OCI archive: {self.why}"


def machine_architecture(machine: str = "") -> str:
    """Return the name that images have for this machine's architecture, such as `amd64`."""
    name = (machine or platform.machine()).lower()
    return _ARCHITECTURES.get(name, name)


@dataclass(frozen=True, slots=True)
class Layer:
    """The changes of one build step, as a tar without compression.

    Attributes:
        path: The tar.
        digest: Its digest, `sha256:HEX`.
        size: Its size in bytes.
    """

    path: Path
    digest: str
    size: int

    @classmethod
    def of_tar(cls, path: Path) -> "Layer":
        """Return the layer that a finished tar holds.

        The digest is kept in a file beside the tar, so that it is computed once.
        """
        known = path.with_name(f"{path.name}.sha256")
        if not known.exists():
            unfinished = known.with_suffix(".new")
            unfinished.write_text(digest_of_file(path), encoding="ascii")
            unfinished.replace(known)
        return cls(path, f"sha256:{known.read_text(encoding='ascii')}", path.stat().st_size)


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """How containers of an image run; an empty field leaves the choice to the pod.

    Attributes:
        env: Environment variables.
        entrypoint: The program and its first arguments.
        command: Further arguments, or the program if there is no entrypoint.
        user: `USER` or `USER:GROUP`, by name or by number.
        directory: The working directory.
        ports: Documented ports, as `8080/tcp`.
        labels: Facts about the image.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    user: str = ""
    directory: str = ""
    ports: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)

    def with_env(self, **values: str) -> "ImageConfig":
        """Return a copy with further environment variables."""
        return replace(self, env={**self.env, **values})

    def as_json(self) -> dict[str, Any]:
        """Return the field `config` of the image's configuration, without empty fields."""
        fields = {
            "Env": [f"{name}={value}" for name, value in self.env.items()],
            "Entrypoint": list(self.entrypoint),
            "Cmd": list(self.command),
            "User": self.user,
            "WorkingDir": self.directory,
            "ExposedPorts": {port: {} for port in self.ports},
            "Labels": dict(self.labels),
        }
        return {name: value for name, value in fields.items() if value}


@dataclass(frozen=True, slots=True)
class History:
    """One step of the image's history.

    Attributes:
        step: The instruction.
        has_layer: Whether the step made a layer.
    """

    step: str
    has_layer: bool


@dataclass(frozen=True, slots=True)
class Image:
    """An image for one architecture.

    Attributes:
        layers: The layers, lowest first.
        config: How its containers run.
        history: How it was made; empty, or with one step that has a layer for each layer.
        architecture: The architecture of its programs.
    """

    layers: tuple[Layer, ...]
    config: ImageConfig = field(default_factory=ImageConfig)
    history: tuple[History, ...] = ()
    architecture: str = field(default_factory=machine_architecture)


def digest_of_file(path: Path) -> str:
    """Return the SHA-256 checksum of a file in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# -- layers -------------------------------------------------------------------------------------


def is_whiteout(status: os.stat_result) -> bool:
    """Return whether overlayfs hides the file of this name in lower layers."""
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def is_opaque(path: Path) -> bool:
    """Return whether overlayfs hides the folder's content in lower layers."""
    return _attribute(path, "trusted.overlay.opaque") == b"y"


def pack_layer(folder: Path, target: Path, *, owner: tuple[int, int] | None = None) -> Layer:
    """Write the content of a folder as a layer.

    The folder may be the upper folder of an overlayfs: its marks of removed files become the
    marks of OCI. Hard links stay links, and file capabilities are kept. Sockets are left out.

    Args:
        folder: The folder; its own mode and owner are not part of the layer.
        target: The tar that is written.
        owner: The user and group of all files. Default: the files' own numbers.

    Raises:
        OSError: A file cannot be read, or the tar cannot be written.
    """
    first_names: dict[tuple[int, int], str] = {}
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        for path in _sorted_tree(folder):
            name = str(path.relative_to(folder))
            status = path.lstat()
            if is_whiteout(status):
                hidden = tarfile.TarInfo(str(Path(name).with_name(f".wh.{path.name}")))
                tar.addfile(hidden)
                continue
            entry = _entry(path, name, status)
            if entry is None:
                continue
            if owner is not None:
                entry.uid, entry.gid = owner  # mutant: files-of-the-builder
            if status.st_nlink > 1 and entry.isreg():
                first = first_names.setdefault((status.st_dev, status.st_ino), name)
                if first != name:
                    entry.type, entry.linkname, entry.size = tarfile.LNKTYPE, first, 0
            if entry.isreg():
                with path.open("rb") as content:
                    tar.addfile(entry, content)
            else:
                tar.addfile(entry)
            if entry.isdir() and is_opaque(path):  # mutant: opaque-folders-show-lower-files
                tar.addfile(tarfile.TarInfo(f"{name}/.wh..wh..opq"))
    return Layer(target, f"sha256:{digest_of_file(target)}", target.stat().st_size)


def _sorted_tree(folder: Path) -> Iterator[Path]:
    """Return everything below a folder, each folder before its content."""
    for path in sorted(folder.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _sorted_tree(path)


def _entry(path: Path, name: str, status: os.stat_result) -> tarfile.TarInfo | None:
    entry = tarfile.TarInfo(name)
    entry.mode = stat.S_IMODE(status.st_mode)
    entry.uid, entry.gid = status.st_uid, status.st_gid
    match stat.S_IFMT(status.st_mode):
        case stat.S_IFREG:
            entry.size = status.st_size
            _keep_capabilities(path, entry)
        case stat.S_IFDIR:
            entry.type = tarfile.DIRTYPE
        case stat.S_IFLNK:
            entry.type, entry.linkname = tarfile.SYMTYPE, str(path.readlink())
            entry.mode = 0o777
        case stat.S_IFIFO:
            entry.type = tarfile.FIFOTYPE
        case stat.S_IFCHR | stat.S_IFBLK as kind:
            entry.type = tarfile.CHRTYPE if kind == stat.S_IFCHR else tarfile.BLKTYPE
            entry.devmajor, entry.devminor = os.major(status.st_rdev), os.minor(status.st_rdev)
        case _:
            return None  # a socket, which no tar can hold
    return entry


def _keep_capabilities(path: Path, entry: tarfile.TarInfo) -> None:
    value = _attribute(path, _CAPABILITY)
    if value is None:
        return
    # tarfile writes these bytes as they are; they are not text.
    text = value.decode("utf-8", "surrogateescape")
    entry.pax_headers = {f"SCHILY.xattr.{_CAPABILITY}": text}


def _attribute(path: Path, name: str) -> bytes | None:
    """Return an extended attribute, which most files and some file systems lack."""
    if sys.platform != "linux":
        return None
    try:
        return os.getxattr(path, name)
    except OSError:
        return None


# -- archives -----------------------------------------------------------------------------------


def write_archive(image: Image, name: str, target: Path) -> None:
    """Write an image as an OCI archive, atomically.

    Args:
        image: The image; its layers are copied into the archive.
        name: The full name, as pods write it: `registry/repository:tag`.
        target: The archive. A file of this name is replaced.

    Raises:
        OSError: A layer cannot be read, or the archive cannot be written.
    """
    config = _config(image)
    manifest = _to_json(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST_TYPE,
            "config": _descriptor(_CONFIG_TYPE, config),
            "layers": [
                {"mediaType": _LAYER_TYPE, "digest": layer.digest, "size": layer.size}
                for layer in image.layers
            ],
        }
    )
    index = {
        "schemaVersion": 2,
        "mediaType": _INDEX_TYPE,
        "manifests": [
            {
                **_descriptor(_MANIFEST_TYPE, manifest),
                "platform": {"architecture": image.architecture, "os": "linux"},
                "annotations": {_NAME: name, _TAG: name.rpartition(":")[2]},
            }
        ],
    }
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with tarfile.open(unfinished, "w", format=tarfile.PAX_FORMAT) as tar:
            # The index comes first, so that reading an archive's names does not read its layers.
            _add(tar, "index.json", _to_json(index))
            _add(tar, "oci-layout", _to_json({"imageLayoutVersion": "1.0.0"}))
            _add(tar, _blob(_digest(manifest)), manifest)
            _add(tar, _blob(_digest(config)), config)
            for layer in {layer.digest: layer for layer in image.layers}.values():
                with layer.path.open("rb") as file:
                    _add_file(tar, _blob(layer.digest), file, layer.size)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def read_index(archive: Path) -> dict[str, str]:
    """Return the digest of each image in an archive, by its name.

    Raises:
        ArchiveUnusable: The file is not an OCI archive, or an image in it has no name.
        OSError: The file cannot be read.
    """
    try:
        with tarfile.open(archive, "r:") as tar:
            file = tar.extractfile("index.json")
            index = json.load(file) if file is not None else {}
        return {str(each["annotations"][_NAME]): str(each["digest"]) for each in index["manifests"]}
    except KeyError as error:
        raise ArchiveUnusable(archive, f"it has no {error.args[0]}") from error
    except (tarfile.TarError, ValueError, TypeError, AttributeError) as error:
        raise ArchiveUnusable(archive, str(error)) from error


def _config(image: Image) -> bytes:
    history: Iterable[History] = image.history or [History("layer", has_layer=True)] * len(
        image.layers
    )
    return _to_json(
        {
            "created": _CREATED,
            "architecture": image.architecture,
            "os": "linux",
            "config": image.config.as_json(),
            "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in image.layers]},
            "history": [
                {"created": _CREATED, "created_by": each.step}
                | ({} if each.has_layer else {"empty_layer": True})
                for each in history
            ],
        }
    )


def _to_json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _descriptor(media_type: str, data: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": _digest(data), "size": len(data)}


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    _add_file(tar, name, io.BytesIO(data), len(data))


def _add_file(tar: tarfile.TarFile, name: str, file: BinaryIO, size: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = size
    tar.addfile(entry, file)
