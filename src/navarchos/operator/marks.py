"""Marks on nodes: labels and annotations that make other programs detach a node.

A mark can have several holders, and the node may have had the same label or annotation before.
An annotation of the node therefore records who holds which mark, since when, and what was there
before. Mark and record are written in one patch, so that they agree after a crash. The last
holder restores what was there before.

```json
{"label:example.com/out":{"holders":["NodeDrain//d/UID"],"since":"2026-01-02T15:04:05Z","was":null}}
```
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final, assert_never

import msgspec
from msgspec.structs import replace

from navarchos.client import Client
from navarchos.client.rbac import PolicyRule
from navarchos.informers import SharedInformer
from navarchos.meta import format_time
from navarchos.operator.names import FIELD_MANAGER, MARKS_ANNOTATION, UNREADY_PREFIX
from navarchos.operator.nodes import NODES, Node
from navarchos.runtime import CachedClient
from navarchos.structs import make_decoder

__all__ = [
    "EXCLUDE_LABEL",
    "RBAC",
    "Mark",
    "MarkEntry",
    "MarkHolder",
    "MarkKind",
    "NodeMarks",
    "holders_of",
    "read_marks",
    "readiness_mark",
    "return_patch",
    "take_patch",
]

EXCLUDE_LABEL: Final = "node.kubernetes.io/exclude-from-external-load-balancers"
"""On a node: service controllers take it out of their load balancers."""

RBAC: Final = (PolicyRule(NODES, ("get", "patch")),)
"""The permissions (RBAC) to mark nodes; the cache of nodes needs others."""

_TIMEOUT: Final = 10.0

_MAX_RECORD: Final = 32_768
"""The longest record that is read, in characters: any client may write the annotation."""


class MarkKind(StrEnum):
    """Where a mark is on its node."""

    ANNOTATION = "annotation"
    LABEL = "label"


@dataclass(frozen=True, slots=True)
class Mark:
    """A label or an annotation that makes other programs detach a node."""

    kind: MarkKind
    key: str
    value: str = ""

    @property
    def id(self) -> str:
        """The mark in the record, such as `label:example.com/out`."""
        return f"{self.kind}:{self.key}"

    def value_on(self, node: Node) -> str | None:
        """Return the value that the node has now; `None` if it has none."""
        match self.kind:
            case MarkKind.ANNOTATION:
                return node.metadata.annotations.get(self.key)
            case MarkKind.LABEL:
                return node.metadata.labels.get(self.key)
            case _:
                assert_never(self.kind)


@dataclass(frozen=True, slots=True)
class MarkHolder:
    """The object for which a node is marked."""

    kind: str
    name: str
    uid: str
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}/{self.uid}"

    @classmethod
    def parse(cls, text: str) -> "MarkHolder | None":
        """Return the holder that a record names; `None` if the text names none."""
        parts = text.split("/")
        if len(parts) != len(cls.__slots__):
            return None
        kind, namespace, name, uid = parts
        return cls(kind, name, uid, namespace)


class MarkEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who holds a mark, since when, and the value before (`None`: the node had none)."""

    holders: tuple[str, ...]
    since: Annotated[datetime, msgspec.Meta(tz=True)]
    was: str | None = None


_RECORD: Final = make_decoder(dict[str, MarkEntry])


def readiness_mark(gate: str) -> Mark:
    """Return the mark that makes pods with a readiness gate unready."""
    return Mark(MarkKind.ANNOTATION, f"{UNREADY_PREFIX}{gate.partition('/')[2]}", "true")


def read_marks(node: Node) -> dict[str, MarkEntry]:
    """Return the marks of a node that have holders, by id.

    A record that cannot be read counts as absent: the holders take their marks again.
    """
    text = node.metadata.annotations.get(MARKS_ANNOTATION, "")
    if not text or len(text) > _MAX_RECORD:
        return {}
    try:
        found: dict[str, MarkEntry] = _RECORD.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return {}
    return {id_: entry for id_, entry in found.items() if _parse_id(id_) is not None}


def holders_of(node: Node) -> frozenset[MarkHolder]:
    """Return the holders of all marks of a node."""
    texts = {text for entry in read_marks(node).values() for text in entry.holders}
    return frozenset(holder for text in texts if (holder := MarkHolder.parse(text)) is not None)


def take_patch(
    node: Node, marks: Iterable[Mark], holder: MarkHolder, now: datetime
) -> dict[str, object] | None:
    """Return the merge patch that sets marks for a holder; `None` if nothing changes.

    A mark that another client has removed is set again, and its time starts again.
    """
    record = read_marks(node)
    values: dict[MarkKind, dict[str, str | None]] = {kind: {} for kind in MarkKind}
    for mark in marks:
        value, entry = mark.value_on(node), record.get(mark.id)
        if entry is None:
            entry = MarkEntry(holders=(), since=now, was=value)
        if value != mark.value:
            entry = replace(entry, since=now)
            values[mark.kind][mark.key] = mark.value
        record[mark.id] = replace(entry, holders=_sorted({*entry.holders, str(holder)}))
    return _patch(node, record, values)


def return_patch(
    node: Node, holders: Collection[MarkHolder], heir: MarkHolder | None = None
) -> dict[str, object] | None:
    """Return the merge patch that ends the marks of these holders; `None` if they have none.

    Args:
        node: The node.
        holders: The holders that end. A mark without other holders gets the value that it had
            before, unless another client has removed it.
        heir: Holds the marks instead, so that they stay.
    """
    record, ended = read_marks(node), {str(holder) for holder in holders}
    values: dict[MarkKind, dict[str, str | None]] = {kind: {} for kind in MarkKind}
    for id_, entry in list(record.items()):
        left = set(entry.holders) - ended
        if len(left) == len(entry.holders):
            continue
        if heir is not None:
            left.add(str(heir))
        if left:
            record[id_] = replace(entry, holders=_sorted(left))
            continue
        del record[id_]
        mark = _parse_id(id_)
        value = mark.value_on(node) if mark is not None else None
        if mark is not None and value is not None and value != entry.was:
            values[mark.kind][mark.key] = entry.was
    return _patch(node, record, values)


def _patch(
    node: Node,
    record: Mapping[str, MarkEntry],
    values: Mapping[MarkKind, Mapping[str, str | None]],
) -> dict[str, object] | None:
    annotations: dict[str, str | None] = dict(values[MarkKind.ANNOTATION])
    text = _encode(record) if record else None
    if text != node.metadata.annotations.get(MARKS_ANNOTATION):
        annotations[MARKS_ANNOTATION] = text
    fields = {"annotations": annotations, "labels": dict(values[MarkKind.LABEL])}
    metadata = {name: changed for name, changed in fields.items() if changed}
    return {"metadata": metadata} if metadata else None


def _encode(record: Mapping[str, MarkEntry]) -> str:
    plain = {
        id_: {"holders": entry.holders, "since": format_time(entry.since), "was": entry.was}
        for id_, entry in record.items()
    }
    return json.dumps(plain, sort_keys=True, separators=(",", ":"))


def _sorted(holders: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(holders))


def _parse_id(id_: str) -> Mark | None:
    kind, colon, key = id_.partition(":")
    known = [member for member in MarkKind if member == kind]
    return Mark(known[0], key) if known and colon and key else None


class NodeMarks:
    """Writes marks on nodes.

    Promises: every patch carries uid and resourceVersion of the node that it was computed from,
    so it fails with `Conflict` if the node has changed or another node has its name.

    Threads: safe from any thread.
    """

    def __init__(self, client: Client, informer: SharedInformer[Node]) -> None:
        self._nodes = CachedClient(
            client.resource(NODES).with_defaults(field_manager=FIELD_MANAGER),
            informer,
            timeout=_TIMEOUT,
        )

    def take(self, node: Node, marks: Iterable[Mark], holder: MarkHolder, now: datetime) -> None:
        """Set marks for a holder.

        Args:
            node: The node as the server has it: a cache leaves out most annotations.
            marks: The marks.
            holder: The object that holds them.
            now: The present time.

        Raises:
            Conflict: The node has changed; decide again.
        """
        body = take_patch(node, marks, holder, now)
        if body is not None:
            self._nodes.patch(node, body)

    def give_back(
        self, name: str, uid: str, holders: Collection[MarkHolder], heir: MarkHolder | None = None
    ) -> None:
        """End the marks of these holders on a node, unless it is gone.

        Args:
            name: The node's name.
            uid: The node's uid: a new node of the same name has no marks of these holders.
            holders: The holders that end.
            heir: Holds the marks instead.

        Raises:
            Conflict: The node has changed; decide again.
        """
        node = self._nodes.fetch(name)
        if node is None or uid not in {"", node.metadata.uid}:
            return
        body = return_patch(node, holders, heir)
        if body is not None:
            self._nodes.patch(node, body)
