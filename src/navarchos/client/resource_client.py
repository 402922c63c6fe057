"""The verbs on one kind of object."""

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
    """Options of writes that name no other; see `ResourceClient.with_defaults`."""

    dry_run: bool = False
    field_manager: str = ""
    field_validation: str = ""


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

    _defaults = WriteDefaults()

    def with_defaults(
        self, *, dry_run: bool = False, field_manager: str = "", field_validation: str = ""
    ) -> Self:
        """Return the same verbs with these options on every write (CL-13).

        What a call names itself wins, but for `dry_run`: what comes from
        `with_defaults(dry_run=True)` never changes anything. Options that are not
        named here stay as they are.

        Args:
            dry_run: Check and admit, but do not store.
            field_manager: Who changes belong to.
            field_validation: `Strict`, `Warn` or `Ignore` for unknown fields.
        """
        other, before = copy.copy(self), self._defaults
        other._defaults = WriteDefaults(  # noqa: SLF001 - of the same class
            dry_run or before.dry_run,
            field_manager or before.field_manager,
            field_validation or before.field_validation,
        )
        return other

    def projected(self, type: builtins.type[U]) -> "ResourceClient[U]":  # noqa: A002 - as Resource.projected
        """Return the same verbs, with objects decoded into another type."""
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
            obj: A struct or a mapping; `apiVersion` and `kind` are filled in. Reviews
                and the like need no metadata.
            namespace: Where; that of the object's metadata if empty.
            dry_run: Check and admit, but do not store.
            field_manager: Who the fields belong to from now on.
            field_validation: `Strict`, `Warn` or `Ignore` for unknown fields.
            timeout: See the class.

        Raises:
            AlreadyExists: The name is taken.
            Invalid: The object breaks the rules of its kind.
            ConfigError: The object is a bare `Object`, of which the rest is not known
                (CL-14).
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
            ConfigError: The answer would be a Scale; see `set_scale`.
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
        """Apply on the server's side: own the fields given, create if absent (CL-10).

        Args:
            name: The object's name.
            body: All fields that this manager wants to own; fields that it owned
                and leaves out are removed.
            namespace: Its namespace; empty for cluster-scoped kinds.
            field_manager: Who applies; mandatory, here or by `with_defaults`.
            force: Take over fields that others own.
            subresource: Such as `status`.
            dry_run: Check and admit, but do not store.
            field_validation: `Strict`, `Warn` or `Ignore` for unknown fields.
            timeout: See the class.

        Raises:
            Conflict: Another manager owns a field, and `force` is not set; each of
                `causes` names one such field, and its manager in the message.
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
        """Put a whole object in the place of another, for whoever owns all of it.

        Never for a projection: what it does not list would be lost.

        Args:
            name: The object's name.
            body: The whole object; with a resourceVersion in its metadata the
                server refuses if the object has changed since.
            namespace: Its namespace; empty for cluster-scoped kinds.
            subresource: Such as `status`.
            field_manager: Who the change belongs to.
            dry_run: Check and admit, but do not store.
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
            dry_run: Check, but do not delete.
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
            dry_run=dry_run or self._defaults.dry_run,
        )
        self._executor.checked(
            self._call("delete", "DELETE", name, namespace, body=options, timeout=timeout)
        )

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
        """Post to a subresource, such as `eviction` or `token`; return the answer."""
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
        """Return the size of a workload.

        Raises:
            NotFound: There is no such object, or its kind has no scale.
        """
        scales = self.projected(Scale)
        return scales._one("get", "GET", name, namespace, subresource=SCALE, timeout=timeout)  # noqa: SLF001 - of the same class

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
        """Set the size of a workload and return it as the server stored it.

        Args:
            name: The workload's name.
            replicas: How many there are to be.
            namespace: Its namespace.
            resource_version: Only if the workload is still in this version, which the
                metadata of its scale has, too.
            uid: Only if it is still the same workload.
            field_manager: Who the change belongs to.
            dry_run: Check and admit, but do not store.
            timeout: See the class.

        Raises:
            Conflict: It is not the one, or not in the version, that was asked for.
            NotFound: There is no such object, or its kind has no scale.
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
            audiences: Who is to accept it; the API server itself if empty.
            expiration_seconds: At least 600; `None` for the server's default, an hour.
            bound_to: `kind`, `apiVersion`, `name` and `uid` of a pod, secret or node
                that the token ends with.
            timeout: See the class.

        Raises:
            NotFound: There is no such account.
            Invalid: The server does not give such a token.
        """
        body = token_request(audiences, expiration_seconds, bound_to)
        answer = self.create_subresource(name, "token", body, namespace, timeout=timeout)
        try:
            return account_token(answer)
        except ValueError as error:
            why = "the answer is no TokenRequest with a token"
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
        """Refuse an object that says it lives where this client does not work."""
        metadata = body.get("metadata")
        if self.namespace and isinstance(metadata, Mapping) and metadata.get("namespace"):
            self._where(str(metadata["namespace"]))


def _another_object(error: Invalid) -> Conflict:
    """Return what a foreign uid in a patch means.

    Servers answer that the uid cannot be changed, 422: for a patch, unlike a
    deletion, they know no preconditions but the resourceVersion.
    """
    status = Status(code=409, reason="Conflict", message=error.message, details=error.details)
    return Conflict(status, verb=error.verb, resource=error.resource, key=error.key)
