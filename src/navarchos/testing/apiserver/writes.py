"""Create, update and patch: the rules of all kinds.

The checks have the order of the API server (`registry/rest` and `registry/generic`), because a
client sees the first refusal.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from navarchos.testing.apiserver import names, objects, requests
from navarchos.testing.apiserver import status as statuses
from navarchos.testing.apiserver.access import AccessControl
from navarchos.testing.apiserver.access.roles import check_escalation
from navarchos.testing.apiserver.bodies import WriteOptions, read_object
from navarchos.testing.apiserver.kinds import Kind, Kinds
from navarchos.testing.apiserver.ownership import field_manager
from navarchos.testing.apiserver.store import BucketId, Entry, ObjectStore, entry_key

__all__ = [
    "Api",
    "WriteOptions",
    "create",
    "finish_deletion",
    "modify",
    "replace",
    "require",
    "require_active_namespace",
]

_NAMESPACES: Final = BucketId("namespaces", "")
_MAX_PREFIX: Final = 58
_NAME_ATTEMPTS: Final = 8
_OWNED_METADATA: Final = (
    "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation",
    "generateName", "resourceVersion",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Api:
    """What every request needs: objects, kinds and access control."""

    store: ObjectStore
    kinds: Kinds
    access: AccessControl
    make_uid: Callable[[], str] = objects.new_uid
    """Returns the uid of a new object."""


def require(api: Api, target: requests.Target) -> Entry:
    """Return the stored object.

    Raises:
        StatusError: 404.
    """
    entry = api.store.get(target.kind.bucket, entry_key(target.namespace, target.name))
    if entry is None:
        raise statuses.not_found(target.kind.resource, target.name)
    return entry


def create(
    api: Api, kind: Kind, namespace: str, body: objects.JsonValue, options: WriteOptions
) -> Entry:
    """Store a new object; return it. A dry run returns it without storing it.

    Raises:
        StatusError: The object is refused. Nothing is stored.
    """
    obj = read_object(kind, body, options)
    _set_namespace(kind, obj, namespace)
    if objects.meta(obj).get("resourceVersion"):
        raise statuses.StatusError(
            500, "", "resourceVersion should not be set on objects to be created"
        )
    with api.store.transaction():
        if kind.namespaced:
            require_active_namespace(
                api, kind, objects.meta(obj)["namespace"], objects.meta(obj).get("name") or ""
            )
        _prepare_new(api, kind, obj, options)
        _refuse_escalation(api, kind, obj, None, options)
        _raise_if_invalid(kind, obj, _errors(kind, obj))
        stored = kind.envelope(obj)
        key = entry_key(objects.meta(obj).get("namespace") or "", objects.meta(obj)["name"])
        if api.store.get(kind.bucket, key) is not None:
            raise statuses.already_exists(kind.resource, objects.meta(obj)["name"])
        if options.dry_run:
            return Entry(stored, 0)
        return api.store.put(kind.bucket, stored, origin=options.origin)


def _set_namespace(kind: Kind, obj: objects.JsonObject, namespace: str) -> None:
    """Set the namespace of the object to the request's one; refuse a different one."""
    metadata = obj["metadata"]
    if not kind.namespaced:
        return
    if metadata.get("namespace") and metadata["namespace"] != namespace:
        raise statuses.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    metadata["namespace"] = namespace


def require_active_namespace(api: Api, kind: Kind, namespace: str, name: str) -> None:
    """Refuse to create an object or a subresource in a namespace that is terminating or absent.

    Raises:
        StatusError: 403 or 404.
    """
    found = api.store.get(_NAMESPACES, namespace)
    if found is None:
        raise statuses.not_found(statuses.ResourceName("", "namespaces"), namespace)
    if objects.meta(found.obj).get("deletionTimestamp"):
        why = (
            f"unable to create new content in namespace {namespace} because it is being terminated"
        )
        cause = statuses.Cause(
            "NamespaceTerminating",
            f"namespace {namespace} is being terminated",
            "metadata.namespace",
        )
        raise statuses.forbidden(kind.resource, name, why, causes=[cause])


def _prepare_new(api: Api, kind: Kind, obj: objects.JsonObject, options: WriteOptions) -> None:
    metadata = obj["metadata"]
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion"):
        metadata.pop(name, None)
    # Installed objects may have a uid, because owners and dependents refer to each other.
    if not (options.keep_status and metadata.get("uid")):
        metadata["uid"] = api.make_uid()
    if not (options.keep_status and metadata.get("creationTimestamp")):
        metadata["creationTimestamp"] = objects.timestamp(api.store.clock.now())
    if kind.strategy.generation:
        metadata["generation"] = 1
    else:
        metadata.pop("generation", None)
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = _generated_name(api, kind, metadata)
    given = obj.get("status")
    if kind.has_status and not kind.strategy.status_on_create:
        obj.pop("status", None)
    kind.strategy.default(obj)
    field_manager.init_managed_fields(api.kinds, kind, obj, options)
    kind.strategy.prepare_create(obj)
    if options.keep_status and given is not None:
        obj["status"] = {**(obj.get("status") or {}), **given}


def _refuse_escalation(
    api: Api,
    kind: Kind,
    new: objects.JsonObject,
    old: objects.JsonObject | None,
    options: WriteOptions,
) -> None:
    if options.user is not None:
        check_escalation(api.access.authorizer, kind.resource, new, old, options.user)


def _generated_name(api: Api, kind: Kind, metadata: objects.JsonObject) -> str:
    prefix: str = metadata["generateName"][:_MAX_PREFIX]
    name = prefix + objects.name_suffix()
    for _ in range(_NAME_ATTEMPTS):
        key = entry_key(metadata.get("namespace") or "", name)
        if api.store.get(kind.bucket, key) is None:
            break
        name = prefix + objects.name_suffix()
    return name


def _errors(kind: Kind, obj: objects.JsonObject) -> list[statuses.FieldError]:
    errors = names.validate_metadata(obj, kind.strategy.name_rule, namespaced=kind.namespaced)
    if kind.custom is None:
        errors += names.validate_finalizer_names(obj)
    return errors + kind.strategy.validate(obj) + kind.strategy.validate_create(obj)


def _raise_if_invalid(
    kind: Kind, obj: objects.JsonObject, errors: list[statuses.FieldError]
) -> None:
    if errors:
        # Upstream names the group in which the object is stored, not the request's group.
        raise statuses.invalid(
            kind.kind, kind.bucket.group, objects.meta(obj).get("name") or "", errors
        )


def replace(
    api: Api, target: requests.Target, body: objects.JsonValue, options: WriteOptions
) -> tuple[Entry, bool]:
    """Replace an object by `body` (PUT); return it, and whether it was created.

    Raises:
        StatusError: The update is refused. Nothing is stored.
    """
    kind = target.kind
    found = api.store.get(kind.bucket, entry_key(target.namespace, target.name))
    if found is None and kind.strategy.create_on_update and not target.subresource:
        _check_name(read_object(kind, body, WriteOptions(field_validation="Ignore")), target.name)
        return create(api, kind, target.namespace, body, options), True
    return modify(api, target, lambda _: body, options), False


def modify(
    api: Api,
    target: requests.Target,
    change: Callable[[objects.JsonObject], objects.JsonValue],
    options: WriteOptions,
) -> Entry:
    """Read, change and store an object in one step.

    `change` gets the object as served, read-only, and returns the new one. With the subresource
    `status`, only the fields change that a status update may change.

    Returns:
        The stored object. Without a difference it has no new version. An object whose last
        finalizer was removed is returned in its last state.

    Raises:
        StatusError: The change is refused. Nothing is stored.
    """
    kind = target.kind
    with api.store.transaction():
        entry = require(api, target)
        new = read_object(kind, change(kind.to_served(entry.obj)), options)
        _check_name(new, target.name)
        _set_namespace(kind, new, target.namespace)
        _check_preconditions(kind, new, entry)
        _keep_metadata(new, entry.obj)
        if target.subresource == "status":
            new = _status_only(kind, new, entry.obj)
        elif kind.has_status:
            _keep_status(new, entry.obj)
        return _commit_update(api, target, entry, new, options)


def _check_name(new: objects.JsonObject, name: str) -> None:
    found = new["metadata"].setdefault("name", name)
    if found != name:
        raise statuses.bad_request(
            f"the name of the object ({found}) does not match the name on the URL ({name})"
        )


def _check_preconditions(kind: Kind, new: objects.JsonObject, entry: Entry) -> None:
    metadata = new["metadata"]
    uid = metadata.get("uid")
    if uid and uid != entry.uid:
        place = f"{kind.group}/{kind.plural}" if kind.custom else kind.plural
        raise statuses.uid_mismatch(
            kind.resource, f"{place}/{entry.key}", entry.name, uid, entry.uid
        )
    version = metadata.get("resourceVersion")
    if not version and not kind.strategy.unconditional_update:
        error = statuses.FieldError(
            "FieldValueInvalid",
            "metadata.resourceVersion",
            "Invalid value: 0: must be specified for an update",
        )
        raise statuses.invalid(kind.plural, kind.group, entry.name, [error])
    if version and not str(version).isdigit():
        text = f'strconv.ParseUint: parsing "{version}": invalid syntax'
        raise statuses.invalid(
            kind.kind, kind.group, entry.name,
            [statuses.invalid_value("metadata.resourceVersion", version, text)],
        )  # fmt: skip
    if version and int(version) != entry.version:
        raise statuses.conflict(kind.resource, entry.name)


def _keep_metadata(new: objects.JsonObject, old: objects.JsonObject) -> None:
    """Restore the metadata that only the server may change."""
    metadata = new["metadata"]
    for key in _OWNED_METADATA:
        if key in objects.meta(old):
            metadata[key] = objects.meta(old)[key]
        else:
            metadata.pop(key, None)


def _keep_status(new: objects.JsonObject, old: objects.JsonObject) -> None:
    if "status" in old:
        new["status"] = objects.copy_json(old["status"])
    else:
        new.pop("status", None)


def _status_only(
    kind: Kind, new: objects.JsonObject, old: objects.JsonObject
) -> objects.JsonObject:
    result: objects.JsonObject = objects.copy_json(old)
    if "status" in new:
        result["status"] = new["status"]
    else:
        result.pop("status", None)
    for key in (*kind.strategy.status_metadata, "managedFields"):
        if key in new["metadata"]:
            result["metadata"][key] = new["metadata"][key]
        else:
            result["metadata"].pop(key, None)
    return result


def _commit_update(
    api: Api, target: requests.Target, entry: Entry, new: objects.JsonObject, options: WriteOptions
) -> Entry:
    kind, old = target.kind, entry.obj
    kind.strategy.default(new)
    _refuse_escalation(api, kind, new, old, options)
    field_manager.update_managed_fields(api.kinds, kind, new, old, options, target.subresource)
    kind.strategy.prepare_update(new, old)
    if kind.strategy.generation and _spec_changed(kind, new, old):
        new["metadata"]["generation"] = int(objects.meta(old).get("generation") or 0) + 1
    errors = names.validate_metadata(new, kind.strategy.name_rule, namespaced=kind.namespaced)
    if kind.custom is None:  # a custom kind accepts errors that were there before the change
        errors += kind.strategy.validate(new)
    errors += _finalizer_errors(new, old)
    _raise_if_invalid(kind, new, errors + kind.strategy.validate_update(new, old))
    field_manager.keep_times_if_same(new, old)
    stored = kind.envelope(new)
    if stored == old:
        return entry
    if options.dry_run:
        return Entry(stored, entry.version)
    committed = api.store.put(kind.bucket, stored, origin=options.origin)
    return finish_deletion(api, kind, committed, options)


def _spec_changed(kind: Kind, new: objects.JsonObject, old: objects.JsonObject) -> bool:
    if kind.custom is None:
        return bool(new.get("spec") != old.get("spec"))
    ignored = (
        {"metadata", "status", "apiVersion", "kind"}
        if kind.has_status
        else {"metadata", "apiVersion", "kind"}
    )
    return _without(new, ignored) != _without(old, ignored)


def _without(obj: objects.JsonObject, keys: set[str]) -> objects.JsonObject:
    return {key: value for key, value in obj.items() if key not in keys}


def _finalizer_errors(
    new: objects.JsonObject, old: objects.JsonObject
) -> list[statuses.FieldError]:
    if not objects.meta(old).get("deletionTimestamp"):
        return []
    before = objects.meta(old).get("finalizers") or []
    added = [f for f in objects.meta(new).get("finalizers") or [] if f not in before]
    if not added:
        return []
    listed = "{" + ", ".join(f'"{name}"' for name in added) + "}"
    text = (
        "no new finalizers can be added if the object is being deleted, found new finalizers"
        f" []string{listed}"
    )
    # Upstream checks twice: for every kind, and again for this kind.
    return [statuses.forbidden_field("metadata.finalizers", text)] * 2


def finish_deletion(api: Api, kind: Kind, entry: Entry, options: WriteOptions) -> Entry:
    """Remove an object that is marked for deletion and has no finalizer left."""
    metadata = objects.meta(entry.obj)
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return entry
    if metadata.get("deletionGracePeriodSeconds") or objects.dig(entry.obj, "spec", "finalizers"):
        return entry
    return api.store.remove(kind.bucket, entry.key, origin=options.origin)
