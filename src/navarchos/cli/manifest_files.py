"""Objects from manifest files: read them, let the server validate them, create them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import msgspec

from navarchos.cli.errors import CommandError, ExitStatus
from navarchos.client import Client, RawResponse
from navarchos.client.status import status_of_response
from navarchos.crd import ManifestError, read_objects
from navarchos.meta import Object

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
        """The object's name, or the prefix of its generated name."""
        metadata = cast("Mapping[str, object]", self.document.get("metadata") or {})
        return str(metadata.get("name") or metadata.get("generateName") or "without a name")

    def refuse(self, reason: str, *, status: ExitStatus = ExitStatus.USAGE) -> CommandError:
        """Return the error that says why this object is refused."""
        return CommandError(f"{self.file}: {self.kind} {self.name}: {reason}", status=status)


def load(files: Sequence[Path]) -> list[Manifest]:
    """Read every object of every file. This sends no request.

    Raises:
        CommandError: A file is missing, is not YAML, or contains something else than objects.
    """
    return [manifest for file in files for manifest in _load(file)]


def _load(file: Path) -> list[Manifest]:
    try:
        found = read_objects(file)
    except ManifestError as error:
        raise CommandError(str(error), status=ExitStatus.USAGE) from error
    if not found:
        why = f"{file}: contains no object; add a NodeRollout"
        raise CommandError(why, status=ExitStatus.USAGE)
    return [Manifest(str(file), document) for document in found]


def check(client: Client, manifests: Sequence[Manifest]) -> list[Mapping[str, object]]:
    """Let the server validate every object in a dry run.

    Returns:
        The objects as the server would store them, with defaults and names.

    Raises:
        CommandError: The server refused an object. The message names field and reason.
    """
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    return [_post(client, manifest, query) for manifest in manifests]


def create(client: Client, manifests: Sequence[Manifest]) -> list[str]:
    """Create the objects in order and return their names."""
    made = [_post(client, manifest, {"fieldValidation": "Strict"}) for manifest in manifests]
    return [msgspec.convert(obj, Object).metadata.name for obj in made]


def _post(client: Client, manifest: Manifest, query: Mapping[str, str]) -> Mapping[str, object]:
    answer = client.raw("POST", _collection(client, manifest), body=manifest.document, query=query)
    if answer.status in {401, 403}:
        raise manifest.refuse(_reason(answer), status=ExitStatus.UNREACHABLE)
    if answer.status >= 400:
        raise manifest.refuse(_reason(answer))
    created: Mapping[str, object] = msgspec.json.decode(answer.body)
    return created


def _reason(answer: RawResponse) -> str:
    status = status_of_response(answer.status, answer.body)
    for cause in status.causes:
        if cause.field:
            return f"{cause.field}: {cause.message}"
    return status.message


def _collection(client: Client, manifest: Manifest) -> str:
    """Return the path at which the server creates objects of this kind, by discovery."""
    api_version = str(manifest.document["apiVersion"])
    group, _, version = api_version.rpartition("/")
    served = client.api_resources(group, version)
    if not served:
        raise manifest.refuse(f"the server does not serve apiVersion {api_version}")
    for resource in served:
        if resource.kind == manifest.kind and "/" not in resource.name:
            break
    else:
        raise manifest.refuse(f"the server has no such kind in {api_version}")
    root = f"/apis/{api_version}" if group else f"/api/{api_version}"
    if not resource.namespaced:
        return f"{root}/{resource.name}"
    metadata = cast("Mapping[str, object]", manifest.document.get("metadata") or {})
    return f"{root}/namespaces/{metadata.get('namespace') or 'default'}/{resource.name}"
