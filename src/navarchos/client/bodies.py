"""The small objects that verbs send: options, preconditions, evictions."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, cast

import msgspec

from navarchos.client.resource import Resource
from navarchos.errors import ConfigError
from navarchos.meta import ObjectMeta

__all__ = [
    "PatchType",
    "Propagation",
    "add_finalizer",
    "delete_options",
    "eviction",
    "has_finalizer",
    "locked",
    "merge_apply",
    "merge_diff",
    "remove_finalizer",
    "whole_object",
]


class PatchType(StrEnum):
    """How the body of a patch is meant; the values are media types."""

    MERGE = "application/merge-patch+json"
    """RFC 7386: members replace, null removes, arrays are replaced whole."""
    JSON = "application/json-patch+json"
    """RFC 6902: a list of operations."""
    STRATEGIC = "application/strategic-merge-patch+json"
    """Merges arrays by key. Built-in kinds only."""
    APPLY = "application/apply-patch+yaml"
    """Server-side apply; see `ResourceClient.apply`."""


class Propagation(StrEnum):
    """What a deletion does to the objects that the deleted one owns."""

    BACKGROUND = "Background"
    """The garbage collector deletes them afterwards."""
    FOREGROUND = "Foreground"
    """They go first; until then the owner stays, with a deletion timestamp."""
    ORPHAN = "Orphan"
    """They stay, without that owner."""


def whole_object(obj: object, resource: Resource[Any]) -> dict[str, object]:
    """Return an object as the server wants it, with `apiVersion` and `kind`."""
    found = msgspec.to_builtins(obj)
    if not isinstance(found, dict):
        raise ConfigError("object", type(obj).__name__, "it must be a struct or a mapping")
    return {"apiVersion": resource.api_version, "kind": resource.kind, **found}


def locked(
    body: Mapping[str, object] | Sequence[Mapping[str, object]],
    kind: PatchType,
    *,
    uid: str,
    resource_version: str,
) -> object:
    """Return a patch that fails on any object but this one, in this version.

    In a JSON patch the condition is a `test` operation; then the server answers
    422 instead of 409 where it does not hold.
    """
    condition = {"uid": uid, "resourceVersion": resource_version}
    condition = {name: value for name, value in condition.items() if value}
    if kind is PatchType.JSON:
        if isinstance(body, Mapping):
            raise ConfigError("body", dict(body), "a JSON patch must be a list of operations")
        tests = [
            {"op": "test", "path": f"/metadata/{name}", "value": value}
            for name, value in condition.items()
        ]
        return [*tests, *body]
    if not isinstance(body, Mapping):
        raise ConfigError("body", body, f"a patch of type {kind.name} must be an object")
    if not condition:
        return body
    metadata = cast("Mapping[str, object]", body.get("metadata") or {})
    return {**body, "metadata": {**metadata, **condition}}


def delete_options(
    *,
    uid: str,
    resource_version: str,
    propagation: Propagation | None,
    grace_period_seconds: int | None,
    dry_run: bool = False,
) -> dict[str, object]:
    """Return `metav1.DeleteOptions`; only what is set."""
    options: dict[str, object] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    return (
        options
        | _deletion(uid, resource_version, grace_period_seconds)
        | ({"propagationPolicy": propagation.value} if propagation else {})
        | ({"dryRun": ["All"]} if dry_run else {})
    )


def eviction(
    name: str,
    namespace: str,
    *,
    uid: str,
    grace_period_seconds: int | None,
    dry_run: bool,
    policy_version: str,
) -> dict[str, object]:
    """Return `policy/Eviction` for one pod."""
    options = _deletion(uid, "", grace_period_seconds)
    if dry_run:
        options["dryRun"] = ["All"]
    return {
        "apiVersion": f"policy/{policy_version}",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        **({"deleteOptions": options} if options else {}),
    }


def _deletion(
    uid: str, resource_version: str, grace_period_seconds: int | None
) -> dict[str, object]:
    options: dict[str, object] = {}
    conditions = {"uid": uid, "resourceVersion": resource_version}
    if set_conditions := {name: value for name, value in conditions.items() if value}:
        options["preconditions"] = set_conditions
    if grace_period_seconds is not None:
        options["gracePeriodSeconds"] = grace_period_seconds
    return options


def merge_diff(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, object]:
    """Return the merge patch that turns `before` into `after`; `{}` if none is needed.

    Members that are gone become null, arrays that differ are replaced whole, and
    numbers keep their value whatever their size (CL-11). A null in `after` means
    an absent member, because a merge patch cannot say anything else.

    For the optimistic variant hand the resourceVersion that `before` had to
    `ResourceClient.patch`.
    """
    gone = {
        name: None
        for name, value in before.items()
        if value is not None and after.get(name) is None
    }
    return gone | {
        name: _change(before.get(name), value)
        for name, value in after.items()
        if value is not None and not _same(before.get(name), value)
    }


def merge_apply(target: object, patch: object) -> object:
    """Return what a server makes of `target` when it is sent this merge patch.

    Neither argument is changed.
    """
    if not isinstance(patch, Mapping):
        return patch
    result = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge_apply(result.get(name), value)
    return result


def _change(before: object, after: object) -> object:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return merge_diff(before, after)
    if isinstance(after, Mapping):
        # The patch is merged into nothing, so nulls in it would be no-ops: leave them out.
        return merge_diff({}, after)
    return after


def _same(before: object, after: object) -> bool:
    """Compare as JSON does: true is not 1, and members that are null are absent."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return not merge_diff(before, after)
    if isinstance(before, bool) or isinstance(after, bool):
        return before is after
    if isinstance(before, list | tuple) and isinstance(after, list | tuple):
        return len(before) == len(after) and all(map(_same_entry, before, after))
    return before == after


def _same_entry(before: object, after: object) -> bool:
    if before is None or after is None:
        return before is after
    return _same(before, after)


def has_finalizer(metadata: ObjectMeta, name: str) -> bool:
    """Tell whether an object waits for this finalizer before it may go."""
    return name in metadata.finalizers


def add_finalizer(metadata: ObjectMeta, name: str) -> dict[str, object] | None:
    """Return the merge patch that adds a finalizer; `None` if it is there (CL-07)."""
    if has_finalizer(metadata, name):
        return None
    return _patch(metadata, [*metadata.finalizers, name])


def remove_finalizer(metadata: ObjectMeta, name: str) -> dict[str, object] | None:
    """Return the merge patch that removes a finalizer, every entry of it (CL-07).

    `None` if there is none.
    """
    if not has_finalizer(metadata, name):
        return None
    return _patch(metadata, [kept for kept in metadata.finalizers if kept != name])


def _patch(metadata: ObjectMeta, finalizers: list[str]) -> dict[str, object]:
    return {
        "metadata": {
            "finalizers": finalizers or None,
            "resourceVersion": metadata.resource_version,
        }
    }
