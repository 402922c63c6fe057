"""The verbs on one kind of object."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from navarchos.client.bodies import (
    PatchType,
    Propagation,
    delete_options,
    eviction,
    locked,
    whole_object,
)
from navarchos.client.calls import Call
from navarchos.client.errors import Conflict, DecodeError, Invalid
from navarchos.client.reading import ResourceReader, object_key
from navarchos.client.status import Status
from navarchos.errors import ConfigError
from navarchos.meta import identity_of

__all__ = ["ResourceClient"]

T = TypeVar("T")


class ResourceClient(ResourceReader[T]):
    """Reads and writes the objects of one resource. Cheap to make, worth keeping.

    Every call takes `timeout` in seconds for the whole call with its retries;
    `None` is the client's default. Every call raises `ApiError` in its forms when
    the server refuses, `TransportError` when no answer comes, and `Stopped` when
    the client is closed or told to stop.

    Writes are never repeated, whatever they end in: the caller knows whether a
    second one is harmless. (The one exception is 401, before which nothing has
    happened.)

    Threads: safe from any thread.
    """

    def create(
        self,
        obj: T | Mapping[str, object],
        namespace: str = "",
        *,
        dry_run: bool = False,
        field_manager: str = "",
        field_validation: str = "",
        timeout: float | None = None,
    ) -> T:
        """Create an object and return it as the server stored it.

        Args:
            obj: A struct or a mapping; `apiVersion` and `kind` are filled in.
            namespace: Where; that of the object's metadata if empty.
            dry_run: Check and admit, but do not store.
            field_manager: Who the fields belong to from now on.
            field_validation: `Strict`, `Warn` or `Ignore` for unknown fields.
            timeout: See the class.

        Raises:
            AlreadyExists: The name is taken.
            Invalid: The object breaks the rules of its kind.
        """
        body = whole_object(obj, self.resource)
        identity = identity_of(body)
        where = namespace or identity.namespace
        path = self.resource.path(where)
        if self.resource.namespaced and not where:
            raise ConfigError("namespace", where, f"{self.resource} live in namespaces: name one")
        query = _write_options(dry_run, field_manager, field_validation)
        call = Call(
            "create",
            "POST",
            path,
            str(self.resource),
            object_key(where, identity.name),
            query=query,
            body=msgspec.json.encode(body),
            timeout=timeout,
        )
        return self._codec.decode(self._caller.checked(call).body, verb="create")

    def patch(
        self,
        name: str,
        body: Mapping[str, object] | Sequence[Mapping[str, object]],
        namespace: str = "",
        *,
        type: PatchType = PatchType.MERGE,  # noqa: A002 - the API's word
        subresource: str = "",
        resource_version: str = "",
        uid: str = "",
        field_manager: str = "",
        dry_run: bool = False,
        field_validation: str = "",
        timeout: float | None = None,
    ) -> T:
        """Change an object in place and return it as the server stored it.

        Args:
            name: The object's name.
            body: The patch.
            namespace: Its namespace; empty for cluster-scoped kinds.
            type: How the body is meant.
            subresource: Such as `status`.
            resource_version: Only if the object is still in this version.
            uid: Only if it is still the same object, not a successor of its name.
            field_manager: Who the change belongs to.
            dry_run: Check and admit, but do not store.
            field_validation: `Strict`, `Warn` or `Ignore` for unknown fields.
            timeout: See the class.

        Raises:
            Conflict: The object is not the one, or not in the version, that was
                asked for; nothing has changed. (In a JSON patch: `Invalid`.)
            NotFound: There is none of that name.
        """
        try:
            return self._one(
                "patch",
                "PATCH",
                name,
                namespace,
                subresource=subresource,
                query=_write_options(dry_run, field_manager, field_validation),
                body=locked(body, type, uid=uid, resource_version=resource_version),
                content_type=type.value,
                timeout=timeout,
            )
        except Invalid as error:
            if uid and any(cause.field == "metadata.uid" for cause in error.causes):
                raise _another_object(error) from error
            raise

    def apply(
        self,
        name: str,
        body: Mapping[str, object],
        namespace: str = "",
        *,
        field_manager: str,
        force: bool = False,
        subresource: str = "",
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> T:
        """Apply on the server's side: own the fields given, create if absent (CL-10).

        Args:
            name: The object's name.
            body: All fields that this manager wants to own; fields that it owned
                and leaves out are removed.
            namespace: Its namespace; empty for cluster-scoped kinds.
            field_manager: Who applies.
            force: Take over fields that others own.
            subresource: Such as `status`.
            dry_run: Check and admit, but do not store.
            timeout: See the class.

        Raises:
            Conflict: Another manager owns a field, and `force` is not set.
        """
        if not field_manager:
            raise ConfigError("field_manager", field_manager, "applying needs a manager's name")
        whole = whole_object(body, self.resource)
        metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
        given = whole.get("metadata")
        whole["metadata"] = (given if isinstance(given, dict) else {}) | metadata
        query = [*_write_options(dry_run, field_manager, ""), ("force", "true" if force else "")]
        return self._one(
            "apply",
            "PATCH",
            name,
            namespace,
            subresource=subresource,
            query=query,
            body=whole,
            content_type=PatchType.APPLY.value,
            timeout=timeout,
        )

    def replace(
        self,
        name: str,
        body: Mapping[str, object],
        namespace: str = "",
        *,
        subresource: str = "",
        field_manager: str = "",
        timeout: float | None = None,
    ) -> T:
        """Put a whole object in the place of another, for whoever owns all of it.

        Never for a projection: what it does not list would be lost.

        Args:
            name: The object's name.
            body: The whole object; with a resourceVersion in its metadata the
                server refuses if the object has changed since.
            namespace: Its namespace; empty for cluster-scoped kinds.
            subresource: Such as `status`.
            field_manager: Who the change belongs to.
            timeout: See the class.

        Raises:
            Conflict: The object has changed since.
        """
        return self._one(
            "replace",
            "PUT",
            name,
            namespace,
            subresource=subresource,
            query=_write_options(False, field_manager, ""),
            body=whole_object(body, self.resource),
            timeout=timeout,
        )

    def delete(
        self,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        propagation: Propagation | None = None,
        grace_period_seconds: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """Delete an object, or begin to: finalizers and grace periods take time.

        Args:
            name: The object's name.
            namespace: Its namespace; empty for cluster-scoped kinds.
            uid: Only if it is still the same object.
            resource_version: Only if it is still in this version.
            propagation: What happens to the objects it owns; `None` for the
                kind's default.
            grace_period_seconds: `0` kills; `None` leaves it to the object.
            timeout: See the class.

        Raises:
            NotFound: There is none of that name.
            Conflict: It is not the one, or not in the version, asked for.
        """
        options = delete_options(
            uid=uid,
            resource_version=resource_version,
            propagation=propagation,
            grace_period_seconds=grace_period_seconds,
        )
        self._caller.checked(
            self._call("delete", "DELETE", name, namespace, body=options, timeout=timeout)
        )

    def create_subresource(
        self,
        name: str,
        subresource: str,
        body: Mapping[str, object],
        namespace: str = "",
        *,
        timeout: float | None = None,
    ) -> Mapping[str, object]:
        """Post to a subresource, such as `eviction` or `token`; return the answer."""
        call = self._call(
            "create",
            "POST",
            name,
            namespace,
            subresource=subresource,
            body=body,
            timeout=timeout,
        )
        return _decode_mapping(self._caller.checked(call).body, call)

    def evict(
        self,
        name: str,
        namespace: str,
        *,
        uid: str = "",
        grace_period_seconds: int | None = None,
        dry_run: bool = False,
        policy_version: str = "v1",
        timeout: float | None = None,
    ) -> None:
        """Evict a pod: delete it if its disruption budgets allow that now.

        Args:
            name: The pod's name.
            namespace: The pod's namespace.
            uid: Only this pod, not a successor of the same name.
            grace_period_seconds: `None` leaves it to the pod.
            dry_run: Check, but do not evict.
            policy_version: `v1`, or `v1beta1` for servers before 1.22.
            timeout: See the class.

        Raises:
            TooManyRequests: A budget does not allow it now. Never retried here.
            NotFound: The pod is gone.
            Conflict: The name belongs to another pod by now.
        """
        body = eviction(
            name,
            namespace,
            uid=uid,
            grace_period_seconds=grace_period_seconds,
            dry_run=dry_run,
            policy_version=policy_version,
        )
        self.create_subresource(name, "eviction", body, namespace, timeout=timeout)


def _write_options(
    dry_run: bool, field_manager: str, field_validation: str
) -> Sequence[tuple[str, str]]:
    return [
        ("dryRun", "All" if dry_run else ""),
        ("fieldManager", field_manager),
        ("fieldValidation", field_validation),
    ]


def _another_object(error: Invalid) -> Conflict:
    """Return what a foreign uid in a patch means.

    Servers answer that the uid cannot be changed, 422: for a patch, unlike a
    deletion, they know no preconditions but the resourceVersion.
    """
    status = Status(code=409, reason="Conflict", message=error.message, details=error.details)
    return Conflict(status, verb=error.verb, resource=error.resource, key=error.key)


def _decode_mapping(data: bytes, call: Call) -> Mapping[str, object]:
    try:
        return msgspec.json.decode(data, type=dict[str, object]) if data else {}
    except msgspec.DecodeError as error:
        raise DecodeError(
            f"the answer is no object: {error}", verb=call.verb, resource=call.resource
        ) from error
