"""Objects out of files of YAML or JSON."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import yaml

from navarchos.crd.errors import ManifestError
from navarchos.crd.manifest import Manifest

__all__ = ["read_objects"]


def read_objects(file: Path) -> list[Manifest]:
    """Read the objects of a file, those of a `List` one by one.

    Promises: each has an `apiVersion` and a `kind`, and no key that YAML 1.1 takes for
    something else than text (`on`, `no`).

    Raises:
        ManifestError: The file cannot be read, is not YAML, or holds something that is
            no object.
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
        why = f"a {type(document).__name__} is no object; it needs a kind"
        raise ManifestError(str(file), why)
    if document.get("kind") == "List" and isinstance(document.get("items"), list):
        for item in document["items"]:
            yield from _objects(file, item)
        return
    yield _checked(file, document)


def _checked(file: Path, document: dict[Any, Any]) -> Manifest:
    for field in ("apiVersion", "kind"):
        if not isinstance(document.get(field), str):
            raise ManifestError(str(file), f"an object without {field}")
    metadata = document.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise ManifestError(str(file), f"{document['kind']}: metadata must be a mapping")
    for key in _strange_keys(document):
        name = metadata.get("name") or metadata.get("generateName") or "without a name"
        why = f"quote the key {_as_written(key)}: YAML reads {key!r} there"
        raise ManifestError(str(file), f"{document['kind']} {name}: {why}")
    return cast("Manifest", document)


def _strange_keys(value: object) -> Iterator[object]:
    """Find keys that are no text: YAML 1.1 takes `no`, `on` and numbers for values."""
    if isinstance(value, dict):
        yield from (key for key in value if not isinstance(key, str))
        value = list(value.values())
    if isinstance(value, list):
        for child in value:
            yield from _strange_keys(child)


def _as_written(key: object) -> str:
    if isinstance(key, bool):
        return "that says yes, on or true" if key else "that says no, off or false"
    return str(key)
