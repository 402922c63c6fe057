"""Installs CustomResourceDefinitions on an API server, and removes them.

The definitions come from files, folders or objects; the server may be the in-process one, a test
control plane or a cluster. The behaviour follows controller-runtime's `pkg/envtest/crd.go`, and is
stricter: a missing file, a file without definitions, and contradictions are errors.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from navarchos.client import (
    MANY_WRITERS,
    AlreadyExists,
    Client,
    NotFound,
    Resource,
    ResourceClient,
    UpsertResult,
    create_or_update,
    retry_on_conflict,
)
from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.crd import Manifest, ManifestError, read_objects
from navarchos.errors import NavarchosError, Stopped
from navarchos.stopping import StopToken

__all__ = [
    "DEFINITIONS",
    "DefinitionNotReady",
    "Source",
    "install_definitions",
    "load_definitions",
    "not_ready_reason",
    "uninstall_definitions",
]

Source: TypeAlias = Mapping[str, object] | str | os.PathLike[str]
"""A definition as an object, or the path of a file or a folder of them."""

DEFINITIONS: Final = Resource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
    type=dict,
)
"""The resource of the definitions themselves."""

_TIMEOUT: Final = 10.0  # as envtest, like the period (TE-02)
_PERIOD: Final = 0.1
_READ: Final = frozenset({".yaml", ".yml", ".json"})
_GIVEN: Final = "a given object"

_Definitions: TypeAlias = ResourceClient[dict[str, Any]]
_Json: TypeAlias = Mapping[str, Any]


class DefinitionNotReady(NavarchosError):
    """The server does not serve a definition, or has not removed it.

    Attributes:
        name: The definition.
        why: What was wrong at the last attempt.
        seconds: How long the caller has waited; 0 if waiting cannot help.
    """

    def __init__(self, name: str, why: str, seconds: float) -> None:
        super().__init__(name, why, seconds)
        self.name = name
        self.why = why
        self.seconds = seconds

    def __str__(self) -> str:
        waited = f", after {self.seconds:g} s" if self.seconds else ""
        return f"CustomResourceDefinition {self.name} {self.why}{waited}"


def load_definitions(*sources: Source, missing_ok: bool = False) -> list[Manifest]:
    """Return the definitions of all sources, in order, each once.

    In a folder, the files `*.yaml`, `*.yml` and `*.json` are read in the order of their names;
    folders in it are not. Objects of other kinds in a file are ignored.

    Args:
        sources: See `Source`.
        missing_ok: Ignore paths that do not exist.

    Raises:
        ManifestError: A path does not exist, has no definition, or has an invalid one; or two
            definitions have one name and differ.
    """
    found: dict[str, tuple[str, Manifest]] = {}
    for source in sources:
        for origin, definition in _definitions_of(source, missing_ok=missing_ok):
            name = _name(origin, definition)
            first, other = found.setdefault(name, (origin, definition))
            if other != definition:
                why = f"{name} is defined differently in {first}: keep one of the two"
                raise ManifestError(origin, why)
    return [definition for _, definition in found.values()]


def install_definitions(
    client: Client,
    *sources: Source,
    missing_ok: bool = False,
    timeout: float = _TIMEOUT,
    stop: StopToken | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> list[UpsertResult[Mapping[str, Any]]]:
    """Create or update definitions, and wait until they are served.

    Promises: when it returns, each definition is `Established`, discovery has each served version,
    and lists of the kinds work. Several processes may install the same definitions at once. A
    definition that is being removed is created again afterwards.

    Does not promise: that a server which had a definition already validates by the new schema; that
    takes another moment.

    Args:
        client: Needs the permissions to get, create and update definitions, and to list objects.
        sources: See `Source`.
        missing_ok: Ignore paths that do not exist.
        timeout: Seconds until all definitions must be served.
        stop: Ends the wait, with `Stopped`.
        clock: The clock of deadlines and waits.

    Returns:
        The definitions as stored, and whether each was created.

    Raises:
        ManifestError: See `load_definitions`; nothing was written.
        DefinitionNotReady: A definition is not served in time, or never will be because its names
            are in use.
        ApiError: The server refuses a definition; those before it are stored.
    """
    wanted = load_definitions(*sources, missing_ok=missing_ok)
    definitions = client.resource(DEFINITIONS)
    wait = _Wait(timeout, stop, clock)
    written = []
    for definition in wanted:
        name = str(_part(definition, "metadata")["name"])
        wait.until(name, partial(_leaving, definitions, name))
        written.append(
            retry_on_conflict(
                partial(_upsert, definitions, name, definition),
                policy=MANY_WRITERS,
                clock=clock,
                stop=stop,
            )
        )
    for definition in wanted:
        name = str(_part(definition, "metadata")["name"])
        wait.until(name, partial(not_ready_reason, client, definition))
    return written


def uninstall_definitions(
    client: Client,
    *sources: Source,
    missing_ok: bool = False,
    timeout: float = _TIMEOUT,
    stop: StopToken | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Remove definitions **and all objects of their kinds**, and wait until they are gone.

    Definitions that do not exist are ignored.

    Args:
        client: Needs the permissions to get and delete definitions.
        sources: See `Source`; only the names are used.
        missing_ok: Ignore paths that do not exist.
        timeout: Seconds until all definitions must be gone.
        stop: Ends the wait, with `Stopped`.
        clock: The clock of deadlines and waits.

    Raises:
        ManifestError: See `load_definitions`; nothing was removed.
        DefinitionNotReady: A definition still exists, for example because an object has a
            finalizer.
        ApiError: The server refuses; those before it are being removed.
    """
    unwanted = load_definitions(*sources, missing_ok=missing_ok)
    definitions = client.resource(DEFINITIONS)
    names = [str(_part(definition, "metadata")["name"]) for definition in unwanted]
    for name in names:
        try:
            definitions.delete(name)
        except NotFound:
            continue
    wait = _Wait(timeout, stop, clock)
    for name in names:
        wait.until(name, partial(_present, definitions, name))


def not_ready_reason(client: Client, definition: Manifest) -> str:
    """Return why the kind of a definition cannot be used yet; `""` if it can be used.

    Every call asks the server.

    Raises:
        DefinitionNotReady: The names are in use, so the kind will never be served.
    """
    name = str(_part(definition, "metadata")["name"])
    try:
        found = client.resource(DEFINITIONS).get(name)
    except NotFound:
        return "does not exist"
    status = found.get("status") or {}  # null until the server has processed the definition
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    if conditions.get("NamesAccepted", {}).get("status") == "False":
        why = f"has names that are in use: {conditions['NamesAccepted'].get('message', '')}"
        raise DefinitionNotReady(name, why, 0.0)
    if conditions.get("Established", {}).get("status") != "True":
        return "is not established"
    spec = _part(definition, "spec")
    group, plural = spec["group"], spec["names"]["plural"]
    for version in spec["versions"]:
        path = f"/apis/{group}/{version['name']}"
        if version.get("served") and not _is_served(client, path, plural):
            return f"is not served as {group}/{version['name']}"
    return ""


def _is_served(client: Client, path: str, plural: str) -> bool:
    answer = client.raw("GET", path)
    if answer.status != HTTPStatus.OK:
        return False
    names = {each["name"] for each in msgspec.json.decode(answer.body)["resources"]}
    if plural not in names:
        return False
    # Discovery may have the kind before requests for objects work.
    return client.raw("GET", f"{path}/{plural}", query={"limit": "1"}).status == HTTPStatus.OK


class _Wait:
    """One deadline for several waits."""

    def __init__(self, timeout: float, stop: StopToken | None, clock: Clock) -> None:
        self._timeout = timeout
        self._stop = stop if stop is not None else StopToken(clock=clock)
        self._clock = clock
        self._deadline = clock.monotonic() + timeout

    def until(self, name: str, look: Callable[[], str]) -> None:
        """Wait until `look` returns an empty string."""
        while why := look():
            if self._clock.monotonic() >= self._deadline:
                raise DefinitionNotReady(name, why, self._timeout)
            if self._stop.wait(_PERIOD):
                raise Stopped(self._stop.reason or "stopped")


def _leaving(definitions: _Definitions, name: str) -> str:
    found = _find(definitions, name)
    leaving = found is not None and "deletionTimestamp" in found["metadata"]
    return "is still being removed" if leaving else ""


def _present(definitions: _Definitions, name: str) -> str:
    found = _find(definitions, name)
    if found is None:
        return ""
    held = ", ".join(found["metadata"].get("finalizers", ())) or "none"
    return f"still exists; its finalizers: {held}"


def _find(definitions: _Definitions, name: str) -> _Json | None:
    try:
        return definitions.get(name)
    except NotFound:
        return None


def _upsert(
    definitions: _Definitions, name: str, wanted: Manifest
) -> UpsertResult[Mapping[str, Any]]:
    def mutate(definition: dict[str, Any]) -> None:
        definition["spec"] = wanted["spec"]
        for field in ("labels", "annotations"):
            definition["metadata"].pop(field, None)
            if given := _part(wanted, "metadata").get(field):
                definition["metadata"][field] = given

    try:
        return create_or_update(definitions, name, mutate)
    except AlreadyExists:  # another process installs the same definition: update it
        return create_or_update(definitions, name, mutate)


def _definitions_of(source: Source, *, missing_ok: bool) -> Iterator[tuple[str, Manifest]]:
    if isinstance(source, Mapping):
        yield _GIVEN, source
        return
    path = Path(source)
    if not path.exists():
        if missing_ok:
            return
        raise ManifestError(str(path), "the file or folder does not exist")
    found = [
        (str(file), document)
        for file in _files(path)
        for document in read_objects(file)
        if document["kind"] == DEFINITIONS.kind
    ]
    if not found:
        raise ManifestError(str(path), f"contains no {DEFINITIONS.kind}")
    yield from found


def _files(path: Path) -> Sequence[Path]:
    if not path.is_dir():
        return (path,)
    return sorted(file for file in path.iterdir() if file.suffix in _READ and file.is_file())


def _name(origin: str, definition: Manifest) -> str:
    """Check the parts of a definition that this module uses; return the name."""
    kind = definition.get("apiVersion"), definition.get("kind")
    if kind != (DEFINITIONS.api_version, DEFINITIONS.kind):
        allowed = f"{DEFINITIONS.api_version} {DEFINITIONS.kind}"
        why = f"contains {kind[0]} {kind[1]}: only {allowed} can be installed"
        raise ManifestError(origin, why)
    name = _part(definition, "metadata").get("name")
    if not isinstance(name, str) or not name:
        raise ManifestError(origin, f"a {DEFINITIONS.kind} has no metadata.name")
    if not _part(definition, "spec"):
        raise ManifestError(origin, f"{name} has no spec")
    return name


def _part(definition: Manifest, field: str) -> _Json:
    part = definition.get(field)
    return part if isinstance(part, Mapping) else {}
