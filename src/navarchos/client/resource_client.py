"""The verbs that read and write the objects of one resource."""

import builtins
import copy
from collections.abc import Mapping, Sequence
from typing import Self, TypeVar

import msgspec

from navarchos.client.bodies import (
    PatchType,
    Propagation,
    delete_options,
    eviction,
    locked,
    remains,
    whole_object,
)
from navarchos.client.errors import Conflict, DecodeError, Invalid
from navarchos.client.reading import ResourceReader, decode_mapping, object_key
from navarchos.client.status import Status
from navarchos.client.subresources import (
    SCALE,
    AccountToken,
    Scale,
    account_token,
    kind_of,
    token_request,
)
from navarchos.client.transport import Call
from navarchos.errors import ConfigError
from navarchos.meta import Object, identity_of

__all__ = ["ResourceClient", "WriteDefaults"]

T = TypeVar("T")
U = TypeVar("U")


class WriteDefaults(msgspec.Struct, frozen=True):
    """Default options of writes; see `ResourceClient.with_defaults`."""

    dry_run: bool = False
    field_manager: str = ""
    field_validation: str = ""


class ResourceClient(ResourceReader[T]):
    """Reads and writes the objects of one resource. Cheap to create; keep it for reuse.

    Every call takes `timeout` in seconds for the whole call with its retries; `None` is
    the client's default. Every call raises a subclass of `ApiError` when the server refuses
    the request, `TransportError` when there is no response, and `Stopped` when the client
    is closed or its stop token is set.

    Writes are never repeated, because only the caller knows whether a second write is
    harmless. The exception is 401: such a request had no effect.

    Threads: safe from any thread.
    """

    _defaults = WriteDefaults()

    def with_defaults(
        self, *, dry_run: bool = False, field_manager: str = "", field_validation: str = ""
    ) -> Self:
        """Return a client with these options on every write (CL-13).

        An option of a call has precedence, except `dry_run`: a client from
        `with_defaults(dry_run=True)` never changes anything. Empty options keep their
        present defaults.

        Args:
            dry_run: Validate and admit, but do not store.
            field_manager: The manager that owns the changed fields.
            field_validation: `Strict`, `Warn` or `Ignore` for unknown fields.
        """
        other, before = copy.copy(self), self._defaults
        other._defaults = WriteDefaults(  # noqa: SLF001 - an object of this class
            dry_run or before.dry_run,
            field_manager or before.field_manager,
            field_validation or before.field_validation,
        )
        return other

    def projected(self, type: builtins.type[U]) -> "ResourceClient[U]":  # noqa: A002 - as Resource.projected
        """Return a client that decodes the objects into another type."""
        other = ResourceClient(self._executor, self.resource.projected(type))
        other.namespace, other._defaults = self.namespace, self._defaults
        return other

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
            obj: A struct or a mapping; `apiVersion` and `kind` are added. Objects without
                a name, such as reviews, need no metadata.
            namespace: The namespace; if empty, the one in the object's metadata.
            dry_run: Validate and admit, but do not store.
            field_manager: The manager that owns the fields.
            field_validation: `Strict`, `Warn` or `Ignore` for unknown fields.
            timeout: See the class.

        Raises:
            AlreadyExists: An object of this name exists.
            Invalid: The object is not valid for its kind.
            ConfigError: The object is an `Object`, which has only metadata (CL-14).
        """
        if type(obj) is Object:
            rule = "the object has nothing but metadata: use a mapping to write an empty object"
            raise ConfigError("object", str(self.resource), rule)
        body = {"metadata": {}, **whole_object(obj, self.resource)}
        identity = identity_of(body)
        where = self._where(namespace or identity.namespace)
        self._check_home(body)
        path = self.resource.path(where)
        if self.resource.namespaced and not where:
            raise ConfigError(
                "namespace", where, f"{self.resource} are namespaced: name a namespace"
            )
        query = self._options(dry_run, field_manager, field_validation)
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
        return self._codec.decode(self._executor.checked(call).body, verb="create")

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
        """Patch an object and return it as the server stored it.

        Args:
            name: The object's name.
            body: The patch.
            namespace: Its namespace; empty for cluster-scoped kinds.
            type: The type of the patch.
            subresource: Such as `status`.
            resource_version: Patch only this version of the object.
            uid: Patch only this object, not a later object of the same name.
            field_manager: The manager that owns the changed fields.
            dry_run: Validate and admit, but do not store.
            field_validation: `Strict`, `Warn` or `Ignore` for unknown fields.
            timeout: See the class.

        Raises:
            Conflict: The object has another uid or version; nothing has changed. (For a
                JSON patch the error is `Invalid`.)
            NotFound: The object does not exist.
            ConfigError: The response would be a Scale; see `set_scale`.
        """
        kind_of(self.resource, subresource)
        try:
            return self._one(
                "patch",
                "PATCH",
                name,
                namespace,
                subresource=subresource,
                query=self._options(dry_run, field_manager, field_validation),
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
        field_manager: str = "",
        force: bool = False,
        subresource: str = "",
        dry_run: bool = False,
        field_validation: str = "",
        timeout: float | None = None,
    ) -> T:
        """Apply an object by server-side apply; create it if it does not exist (CL-10).

        Args:
            name: The object's name.
            body: All fields that this manager wants to own. Fields that it owned before
                and that are missing here are removed.
            namespace: Its namespace; empty for cluster-scoped kinds.
            field_manager: The manager; mandatory, here or by `with_defaults`.
            force: Take over fields that other managers own.
            subresource: Such as `status`.
            dry_run: Validate and admit, but do not store.
            field_validation: `Strict`, `Warn` or `Ignore` for unknown fields.
            timeout: See the class.

        Raises:
            Conflict: Another manager owns a field, and `force` is not set. Each entry of
                `causes` has one such field, and its manager in the message.
        """
        manager = field_manager or self._defaults.field_manager
        if not manager:
            raise ConfigError(
                "field_manager", field_manager, "apply requires the name of a field manager"
            )
        whole = whole_object(body, kind_of(self.resource, subresource))
        self._check_home(whole)
        where = self._where(namespace)
        metadata = {"name": name} | ({"namespace": where} if where else {})
        given = whole.get("metadata")
        whole["metadata"] = (given if isinstance(given, dict) else {}) | metadata
        options = self._options(dry_run, manager, field_validation)
        query = [*options, ("force", "true" if force else "")]
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
        dry_run: bool = False,
        field_validation: str = "",
        timeout: float | None = None,
    ) -> T:
        """Replace a whole object.

        Do not pass a projection: the fields that it does not declare would be lost.

        Args:
            name: The object's name.
            body: The whole object. If its metadata has a resourceVersion, the server
                refuses the request when the object has changed since.
            namespace: Its namespace; empty for cluster-scoped kinds.
            subresource: Such as `status`.
            field_manager: The manager that owns the changed fields.
            dry_run: Validate and admit, but do not store.
            field_validation: `Strict`, `Warn` or `Ignore` for unknown fields.
            timeout: See the class.

        Raises:
            Conflict: The object has changed since.
        """
        whole = whole_object(body, kind_of(self.resource, subresource))
        self._check_home(whole)
        return self._one(
            "replace",
            "PUT",
            name,
            namespace,
            subresource=subresource,
            query=self._options(dry_run, field_manager, field_validation),
            body=whole,
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
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> T | None:
        """Delete an object.

        The object may exist for some time, because of finalizers and grace periods.

        Args:
            name: The object's name.
            namespace: Its namespace; empty for cluster-scoped kinds.
            uid: Delete only this object, not a later object of the same name.
            resource_version: Delete only this version.
            propagation: How the objects that it owns are deleted; `None` for the default
                of the kind.
            grace_period_seconds: `0` kills at once; `None` for the default of the object.
            dry_run: Validate, but do not delete.
            timeout: See the class.

        Returns:
            The object as it is now, if it still exists; `None` if it is gone.

        Raises:
            NotFound: The object does not exist.
            Conflict: The object has another uid or version.
        """
        options = delete_options(
            uid=uid,
            resource_version=resource_version,
            propagation=propagation,
            grace_period_seconds=grace_period_seconds,
            dry_run=dry_run or self._defaults.dry_run,
        )
        call = self._call("delete", "DELETE", name, namespace, body=options, timeout=timeout)
        data = self._executor.checked(call).body
        return self._codec.decode(data, verb="delete") if remains(data) else None

    def create_subresource(
        self,
        name: str,
        subresource: str,
        body: Mapping[str, object],
        namespace: str = "",
        *,
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> Mapping[str, object]:
        """Post to a subresource, such as `eviction` or `token`; return the response."""
        call = self._call(
            "create",
            "POST",
            name,
            namespace,
            subresource=subresource,
            query=self._options(dry_run, "", ""),
            body=body,
            timeout=timeout,
        )
        return decode_mapping(self._executor.checked(call).body, call)

    def get_scale(self, name: str, namespace: str = "", *, timeout: float | None = None) -> Scale:
        """Return the scale of a workload.

        Raises:
            NotFound: The object does not exist, or its kind has no scale.
        """
        scales = self.projected(Scale)
        return scales._one("get", "GET", name, namespace, subresource=SCALE, timeout=timeout)  # noqa: SLF001 - an object of this class

    def set_scale(
        self,
        name: str,
        replicas: int,
        namespace: str = "",
        *,
        resource_version: str = "",
        uid: str = "",
        field_manager: str = "",
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> Scale:
        """Set the number of replicas of a workload; return the scale as the server stored it.

        Args:
            name: The workload's name.
            replicas: The wanted number of replicas.
            namespace: Its namespace.
            resource_version: Change only this version of the workload; the metadata of
                its scale has the same version.
            uid: Change only this workload.
            field_manager: The manager that owns the changed fields.
            dry_run: Validate and admit, but do not store.
            timeout: See the class.

        Raises:
            Conflict: The workload has another uid or version.
            NotFound: The object does not exist, or its kind has no scale.
        """
        return self.projected(Scale).patch(
            name,
            {"spec": {"replicas": replicas}},
            namespace,
            subresource=SCALE,
            resource_version=resource_version,
            uid=uid,
            field_manager=field_manager,
            dry_run=dry_run,
            timeout=timeout,
        )

    def request_token(
        self,
        name: str,
        namespace: str = "",
        *,
        audiences: Sequence[str] = (),
        expiration_seconds: int | None = None,
        bound_to: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> AccountToken:
        """Return a new token of a service account.

        Args:
            name: The account's name.
            namespace: Its namespace.
            audiences: The audiences that accept the token; empty for the API server.
            expiration_seconds: At least 600; `None` for the server's default, an hour.
            bound_to: `kind`, `apiVersion`, `name` and `uid` of a pod, secret or node; the
                token becomes invalid when that object is deleted.
            timeout: See the class.

        Raises:
            NotFound: The account does not exist.
            Invalid: The server does not issue such a token.
        """
        body = token_request(audiences, expiration_seconds, bound_to)
        response = self.create_subresource(name, "token", body, namespace, timeout=timeout)
        try:
            return account_token(response)
        except ValueError as error:
            why = "the response is not a TokenRequest with a token"
            raise DecodeError(why, verb="create", resource=f"{self.resource}/token") from error

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
            uid: Evict only this pod, not a later pod of the same name.
            grace_period_seconds: `None` for the grace period of the pod.
            dry_run: Validate, but do not evict.
            policy_version: `v1`, or `v1beta1` for servers before 1.22.
            timeout: See the class.

        Raises:
            TooManyRequests: A budget does not allow the eviction now. Never repeated here.
            NotFound: The pod does not exist.
            Conflict: Another pod has this name now.
        """
        body = eviction(
            name,
            self._where(namespace),
            uid=uid,
            grace_period_seconds=grace_period_seconds,
            dry_run=dry_run or self._defaults.dry_run,
            policy_version=policy_version,
        )
        self.create_subresource(name, "eviction", body, namespace, timeout=timeout)

    def _options(
        self, dry_run: bool, field_manager: str, field_validation: str
    ) -> Sequence[tuple[str, str]]:
        defaults = self._defaults
        return [
            ("dryRun", "All" if dry_run or defaults.dry_run else ""),
            ("fieldManager", field_manager or defaults.field_manager),
            ("fieldValidation", field_validation or defaults.field_validation),
        ]

    def _check_home(self, body: Mapping[str, object]) -> None:
        """Refuse an object of another namespace than the one of this client."""
        metadata = body.get("metadata")
        if self.namespace and isinstance(metadata, Mapping) and metadata.get("namespace"):
            self._where(str(metadata["namespace"]))


def _another_object(error: Invalid) -> Conflict:
    """Return the `Conflict` for a patch with the uid of another object.

    Servers respond with 422, the uid cannot be changed: unlike a deletion, a patch has no
    precondition except the resourceVersion.
    """
    status = Status(code=409, reason="Conflict", message=error.message, details=error.details)
    return Conflict(status, verb=error.verb, resource=error.resource, key=error.key)
