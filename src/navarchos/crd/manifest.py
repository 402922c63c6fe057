"""Manifests as YAML: written to files, compared with files, read from files."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

import yaml

from navarchos.errors import NavarchosError

__all__ = [
    "Manifest",
    "ManifestError",
    "differences",
    "file_name",
    "files",
    "read_objects",
    "to_yaml",
    "write_files",
]

Manifest = Mapping[str, object]
"""An object of any kind, as JSON."""


class ManifestError(NavarchosError):
    """A file does not contain valid manifests.

    Attributes:
        file: Its path.
        why: The reason, and what to do.
    """

    def __init__(self, file: str, why: str) -> None:
        super().__init__(file, why)
        self.file = file
        self.why = why

    def __str__(self) -> str:
        return f"{self.file}: {self.why}"


_WIDTH: Final = 100


class _Dumper(yaml.SafeDumper):
    """Writes shared parts in full, since tools that read manifests may not know anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def to_yaml(manifests: Iterable[Manifest], *, header: str = "") -> str:
    """Return the manifests as one stream of YAML documents.

    Args:
        manifests: In the order in which they are written; so are their fields.
        header: Lines of a comment on top, without the number sign.
    """
    comment = "".join(f"# {line}\n" for line in header.splitlines())
    documents = (
        yaml.dump(manifest, Dumper=_Dumper, sort_keys=False, width=_WIDTH, allow_unicode=True)
        for manifest in manifests
    )
    return comment + "".join(f"---\n{document}" for document in documents)


def file_name(definition: Manifest) -> str:
    """Return the file name for the manifest of a definition: `<group>_<plural>.yaml`."""
    name = str(_mapping(definition["metadata"])["name"])
    plural, _, group = name.partition(".")
    return f"{group}_{plural}.yaml"


def files(definitions: Iterable[Manifest], *, header: str = "") -> dict[str, str]:
    """Return the text of each definition's file by the file's name."""
    return {file_name(each): to_yaml([each], header=header) for each in definitions}


def write_files(directory: Path, texts: Mapping[str, str]) -> None:
    """Write each text into its file; create the directory if it is missing.

    Raises:
        OSError: Files before the one that failed have been written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (directory / name).write_text(text, encoding="utf-8")


def differences(directory: Path, texts: Mapping[str, str]) -> list[str]:
    """Compare files with the expected texts; return one line for each difference.

    Other files in the directory are ignored.
    """
    found = []
    for name, text in sorted(texts.items()):
        path = directory / name
        if not path.is_file():
            found.append(f"{path} is missing")
        elif path.read_text(encoding="utf-8") != text:
            found.append(f"{path} differs from the generated text")
    return found


def _mapping(value: object) -> Mapping[str, object]:
    assert isinstance(value, Mapping)
    return value


def read_objects(file: Path) -> list[Manifest]:
    """Read the objects of a YAML or JSON file; a `List` is replaced by its items.

    Promises: each object has an `apiVersion` and a `kind`, and all its keys are text (YAML 1.1
    reads `on` and `no` as booleans).

    Raises:
        ManifestError: The file cannot be read, is not YAML, or contains a document that is not
            an object.
    """
    try:
        documents = list(yaml.safe_load_all(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise ManifestError(str(file), f"cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ManifestError(str(file), f"not YAML: {error}") from error
    return [found for document in documents for found in _objects(file, document)]


def _objects(file: Path, document: object) -> Iterator[Manifest]:
    if document is None:
        return
    if not isinstance(document, dict):
        why = f"a document is a {type(document).__name__}; it must be an object with a kind"
        raise ManifestError(str(file), why)
    if document.get("kind") == "List" and isinstance(document.get("items"), list):
        for item in document["items"]:
            yield from _objects(file, item)
        return
    yield _checked(file, document)


def _checked(file: Path, document: dict[Any, Any]) -> Manifest:
    for field in ("apiVersion", "kind"):
        if not isinstance(document.get(field), str):
            raise ManifestError(str(file), f"an object has no {field}; add it")
    metadata = document.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise ManifestError(str(file), f"{document['kind']}: metadata must be a mapping")
    for key in _strange_keys(document):
        name = metadata.get("name") or metadata.get("generateName") or "without a name"
        why = f"quote the key {_as_written(key)}: YAML reads {key!r} there"
        raise ManifestError(str(file), f"{document['kind']} {name}: {why}")
    return cast("Manifest", document)


def _strange_keys(value: object) -> Iterator[object]:
    """Find keys that are not text: YAML 1.1 reads `no` and `on` as booleans."""
    if isinstance(value, dict):
        yield from (key for key in value if not isinstance(key, str))
        value = list(value.values())
    if isinstance(value, list):
        for child in value:
            yield from _strange_keys(child)


def _as_written(key: object) -> str:
    if isinstance(key, bool):
        return "written as yes, on or true" if key else "written as no, off or false"
    return str(key)
