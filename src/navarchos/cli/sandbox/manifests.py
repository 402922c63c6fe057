"""Manifests from files: read, checked by the server, created."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import msgspec
import yaml

from navarchos.cli.failure import Failure
from navarchos.cli.main import USAGE_ERROR
from navarchos.client import Client, RawResponse
from navarchos.client.status import status_of_answer

__all__ = ["Manifest", "check", "create", "load"]


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object of a file."""

    file: str
    document: Mapping[str, object]

    @property
    def kind(self) -> str:
        """The object's kind."""
        return str(self.document["kind"])

    @property
    def name(self) -> str:
        """The object's name, or what its name will begin with."""
        metadata = cast("Mapping[str, object]", self.document.get("metadata") or {})
        return str(metadata.get("name") or metadata.get("generateName") or "without a name")

    def refuse(self, reason: str) -> Failure:
        """Return the line that says what is wrong with this object."""
        return Failure(f"{self.file}: {self.kind} {self.name}: {reason}", status=USAGE_ERROR)


def load(files: Sequence[Path]) -> list[Manifest]:
    """Read every object of every file; nothing is created.

    Raises:
        Failure: A file is missing, not YAML, or holds something that is no object.
    """
    return [manifest for file in files for manifest in _load(file)]


def _load(file: Path) -> Iterator[Manifest]:
    try:
        documents = list(yaml.safe_load_all(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise _unusable(file, f"cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise _unusable(file, f"not YAML: {error}") from error
    found = [manifest for document in documents for manifest in _objects(file, document)]
    if not found:
        raise _unusable(file, "holds no object; write a NodeRollout into it")
    yield from found


def _objects(file: Path, document: object) -> Iterator[Manifest]:
    if document is None:
        return
    if not isinstance(document, dict):
        raise _unusable(file, f"a {type(document).__name__} is no object; it needs a kind")
    if document.get("kind") == "List" and isinstance(document.get("items"), list):
        for item in document["items"]:
            yield from _objects(file, item)
        return
    for field in ("apiVersion", "kind"):
        if not isinstance(document.get(field), str):
            raise _unusable(file, f"an object without {field}")
    if not isinstance(document.get("metadata") or {}, dict):
        raise _unusable(file, f"{document['kind']}: metadata must be a mapping")
    manifest = Manifest(str(file), document)
    for key in _strange_keys(document):
        raise manifest.refuse(f"quote the key {_as_written(key)}: YAML reads {key!r} there")
    yield manifest


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


def _unusable(file: Path, reason: str) -> Failure:
    return Failure(f"{file}: {reason}", status=USAGE_ERROR)


def check(client: Client, manifests: Sequence[Manifest]) -> None:
    """Let the server judge every object without creating any.

    Raises:
        Failure: The first object that the server refuses, with field and reason.
    """
    for manifest in manifests:
        _post(client, manifest, {"dryRun": "All", "fieldValidation": "Strict"})


def create(client: Client, manifests: Sequence[Manifest]) -> list[str]:
    """Create the objects in order and return the names that the server gave them."""
    return [_post(client, manifest, {"fieldValidation": "Strict"}) for manifest in manifests]


def _post(client: Client, manifest: Manifest, query: Mapping[str, str]) -> str:
    answer = client.raw("POST", _collection(client, manifest), body=manifest.document, query=query)
    if answer.status >= 400:
        raise manifest.refuse(_reason(answer))
    created = msgspec.json.decode(answer.body)
    return str(created["metadata"]["name"])


def _reason(answer: RawResponse) -> str:
    status = status_of_answer(answer.status, answer.body)
    for cause in status.causes:
        if cause.field:
            return f"{cause.field}: {cause.message}"
    return status.message


def _collection(client: Client, manifest: Manifest) -> str:
    """Find the path to create an object of this kind at, by discovery."""
    api_version = str(manifest.document["apiVersion"])
    group, _, version = api_version.rpartition("/")
    served = client.api_resources(group, version)
    if not served:
        raise manifest.refuse(f"no such apiVersion: {api_version}")
    for resource in served:
        if resource.kind == manifest.kind and "/" not in resource.name:
            break
    else:
        raise manifest.refuse(f"{api_version} has no such kind")
    root = f"/apis/{api_version}" if group else f"/api/{api_version}"
    if not resource.namespaced:
        return f"{root}/{resource.name}"
    metadata = cast("Mapping[str, object]", manifest.document.get("metadata") or {})
    return f"{root}/namespaces/{metadata.get('namespace') or 'default'}/{resource.name}"
