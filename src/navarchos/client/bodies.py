"""The bodies of requests: options, preconditions, evictions, merge patches."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, cast

import msgspec

from navarchos.client.resource import Resource
from navarchos.errors import ConfigError
from navarchos.meta import ObjectMeta
from navarchos.structs import prepare_decoding

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
    "remains",
    "remove_finalizer",
    "whole_object",
]


class PatchType(StrEnum):
    """The type of a patch; the values are media types."""

    MERGE = "application/merge-patch+json"
    """RFC 7386: a member is replaced, null removes it, an array is replaced as a whole."""
    JSON = "application/json-patch+json"
    """RFC 6902: a list of operations."""
    STRATEGIC = "application/strategic-merge-patch+json"
    """Arrays are merged by key. Built-in kinds only."""
    APPLY = "application/apply-patch+yaml"
    """Server-side apply; see `ResourceClient.apply`."""


class Propagation(StrEnum):
    """How the objects that a deleted object owns are deleted."""

    BACKGROUND = "Background"
    """The garbage collector deletes them afterwards."""
    FOREGROUND = "Foreground"
    """They are deleted first; until then the owner exists, with a deletion timestamp."""
    ORPHAN = "Orphan"
    """They are kept, without that owner."""


def whole_object(obj: object, resource: Resource[Any]) -> dict[str, object]:
    """Return an object as plain JSON, with `apiVersion` and `kind`."""
    found = msgspec.to_builtins(obj)
    if not isinstance(found, dict):
        raise ConfigError("object", type(obj).__name__, "the object must be a struct or a mapping")
    return {"apiVersion": resource.api_version, "kind": resource.kind, **found}


def locked(
    body: Mapping[str, object] | Sequence[Mapping[str, object]],
    kind: PatchType,
    *,
    uid: str,
    resource_version: str,
) -> object:
    """Return a patch that applies only to this uid and version of the object.

    In a JSON patch the condition is a `test` operation; if it does not hold, the server
    responds with 422 instead of 409.
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
    """Return `metav1.DeleteOptions` with the options that are set."""
    options: dict[str, object] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    return (
        options
        | _deletion(uid, resource_version, grace_period_seconds)
        | ({"propagationPolicy": propagation.value} if propagation else {})
        | ({"dryRun": ["All"]} if dry_run else {})
    )


class _DeletedMeta(msgspec.Struct, rename="camel"):
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    finalizers: Sequence[str] | None = None


@prepare_decoding
class _Deleted(msgspec.Struct):
    kind: str = ""
    metadata: _DeletedMeta | None = None


def remains(data: bytes) -> bool:
    """Return whether the response to a deletion shows an object that still exists.

    Servers respond with a `Status` if the object is gone. For pods and some other kinds they
    respond with the object also then, without finalizers or a grace period (`ReturnDeletedObject`
    in k8s.io/apiserver, pkg/registry/generic/registry/store.go).
    """
    try:
        deleted = msgspec.json.decode(data, type=_Deleted)
    except msgspec.DecodeError:
        return False
    meta = deleted.metadata
    if meta is None or not meta.deletion_timestamp:
        return False
    # A namespace waits for finalizers in its spec.
    waits = meta.finalizers or meta.deletion_grace_period_seconds or deleted.kind == "Namespace"
    return bool(waits)


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

    Removed members become null, changed arrays are replaced as a whole, and numbers of any
    size keep their value (CL-11). A null in `after` means an absent member, because a
    merge patch cannot set a null.

    To detect concurrent changes, pass the resourceVersion of `before` to
    `ResourceClient.patch`.
    """
    removed = {
        name: None
        for name, value in before.items()
        if value is not None and after.get(name) is None
    }
    return removed | {
        name: _change(before.get(name), value)
        for name, value in after.items()
        if value is not None and not _same(before.get(name), value)
    }


def merge_apply(target: object, patch: object) -> object:
    """Return the object that a server computes from `target` and this merge patch.

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
        # There is nothing to merge with, so nulls would have no effect and are left out.
        return merge_diff({}, after)
    return after


def _same(before: object, after: object) -> bool:
    """Return whether JSON values are equal: true is not 1, and a null member is absent."""
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
    """Return whether an object has this finalizer."""
    return name in metadata.finalizers


def add_finalizer(metadata: ObjectMeta, name: str) -> dict[str, object] | None:
    """Return the merge patch that adds a finalizer; `None` if the object has it (CL-07).

    A merge patch replaces the whole array, so it carries the resourceVersion: if another
    client has added a finalizer meanwhile, the patch conflicts instead of removing it.
    """
    if has_finalizer(metadata, name):
        return None
    return _patch(metadata, [*metadata.finalizers, name])


def remove_finalizer(metadata: ObjectMeta, name: str) -> dict[str, object] | None:
    """Return the merge patch that removes every entry of a finalizer (CL-07).

    `None` if the object does not have it.
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
