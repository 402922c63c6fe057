"""The verbs on one kind of object."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

from navarchos.client.bodies import (
    PatchType,
    Propagation,
    delete_options,
    eviction,
    locked,
    whole_object,
)
from navarchos.client.calls import Call, Caller
from navarchos.client.decoding import Codec, Page
from navarchos.client.errors import DecodeError, Expired
from navarchos.client.resource import Resource
from navarchos.client.watching import WatchStream
from navarchos.clock import uniform
from navarchos.errors import ConfigError
from navarchos.meta import ResourceVersion, identity_of
from navarchos.stopping import StopToken

__all__ = ["ResourceClient", "ResourceList"]

T = TypeVar("T")

_NO_BODY: Mapping[str, object] = {}


@dataclass(frozen=True, slots=True)
class ResourceList(Generic[T]):
    """The objects of a collection at one resourceVersion.

    Attributes:
        items: Those that fit their type, in the server's order.
        resource_version: Of the list; a watch from here misses nothing.
        continue_token: What the next page is asked with; empty if complete.
        remaining: Objects that come after, where the server says so.
        failures: One error for each object that does not fit its type.
        pages: How many answers it came in.
    """

    items: list[T]
    resource_version: ResourceVersion
    continue_token: str = ""
    remaining: int | None = None
    failures: list[DecodeError] = field(default_factory=list)
    pages: int = 1


class ResourceClient(Generic[T]):
    """Reads and writes the objects of one resource. Cheap to make, worth keeping.

    Every call takes `timeout` in seconds for the whole call with its retries
    (each page of a list is a call of its own); `None` is the client's default.
    Every call raises `ApiError` in its forms when the server refuses,
    `TransportError` when no answer comes, and `Stopped` when the client is closed
    or told to stop.

    Reads are repeated as `Caller` describes; writes never are.

    Threads: safe from any thread.
    """

    def __init__(
        self,
        caller: Caller,
        resource: Resource[T],
        *,
        keep_managed_fields: bool = False,
        rand: Callable[[], float] = uniform,
    ) -> None:
        self.resource = resource
        self._caller = caller
        self._codec = Codec(resource, keep_managed_fields=keep_managed_fields)
        self._rand = rand
        self._sees_bookmarks = False  # only ever becomes True

    def get(
        self,
        name: str,
        namespace: str = "",
        *,
        resource_version: str = "",
        timeout: float | None = None,
    ) -> T:
        """Return one object.

        Args:
            name: Its name.
            namespace: Its namespace; empty for cluster-scoped kinds.
            resource_version: Empty for the latest state; `"0"` for whatever the
                server has at hand.
            timeout: See the class.

        Raises:
            NotFound: There is none of that name.
        """
        query = [("resourceVersion", resource_version)]
        return self._one("get", "GET", name, namespace, query=query, timeout=timeout)

    def list(
        self,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 500,
        resource_version: str = "",
        resource_version_match: str = "",
        timeout: float | None = None,
    ) -> ResourceList[T]:
        """Return all objects of a collection, page by page.

        The list is consistent: every page shows the state of the first one's
        resourceVersion. When the server has forgotten that in between, everything
        is asked for once more in one piece (RF-10).

        Args:
            namespace: Empty for all namespaces.
            label_selector: Only objects whose labels match.
            field_selector: Only objects whose fields match.
            limit: Objects per page; `0` asks for all in one answer.
            resource_version: Empty for a consistent read; `"0"` for whatever the
                server has at hand, then usually in one page.
            resource_version_match: `Exact` or `NotOlderThan`.
            timeout: For each page.
        """
        asked = _ListOptions(
            label_selector, field_selector, resource_version, resource_version_match
        )
        page = self._page(namespace, asked, limit, "", timeout)
        found = ResourceList(page.items, page.resource_version, failures=page.failures)
        pages = 1
        while page.continue_token:
            try:
                page = self._page(namespace, asked, limit, page.continue_token, timeout)
            except Expired:
                page = self._page(namespace, asked, 0, "", timeout)
                return _as_list(page)
            pages += 1
            found.items.extend(page.items)
            found.failures.extend(page.failures)
        return ResourceList(
            found.items, found.resource_version, failures=found.failures, pages=pages
        )

    def list_page(
        self,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 500,
        resource_version: str = "",
        resource_version_match: str = "",
        continue_token: str = "",
        timeout: float | None = None,
    ) -> ResourceList[T]:
        """Return one page of what `list` returns, with the same arguments.

        With the `continue_token` of the page before, resourceVersion and match are
        not sent: the token carries them.

        Raises:
            Expired: The token, or the resourceVersion, is too old.
        """
        asked = _ListOptions(
            label_selector, field_selector, resource_version, resource_version_match
        )
        return _as_list(self._page(namespace, asked, limit, continue_token, timeout))

    def watch(
        self,
        namespace: str = "",
        *,
        resource_version: str = "",
        label_selector: str = "",
        field_selector: str = "",
        bookmarks: bool = True,
        timeout_seconds: int | None = None,
        send_initial_events: bool = False,
        stop: StopToken | None = None,
        idle_timeout: float | None = 75.0,
        timeout: float | None = None,
    ) -> WatchStream[T]:
        """Open a watch; it is open when this returns.

        Args:
            namespace: Empty for all namespaces.
            resource_version: Changes after this one; empty or `"0"` begins with
                an ADDED for each object there is.
            label_selector: Only objects whose labels match.
            field_selector: Only objects whose fields match.
            bookmarks: Ask for bookmarks.
            timeout_seconds: When the server is to end the watch; `None` for a
                random time between 5 and 10 minutes (RF-14).
            send_initial_events: Ask for a streaming list: ADDED for each object,
                then a bookmark with `initial_events_end`, then changes.
            stop: Setting it frees a blocked read, which then raises `Stopped`.
            idle_timeout: Silence in seconds after which the watch counts as dead,
                once this server has been seen to send bookmarks of this resource.
                Before that, and with `None`, it is `timeout_seconds` and five more.
            timeout: For opening it.

        Raises:
            Expired: The resourceVersion is too old, said before the stream began.
        """
        ends = timeout_seconds or int(300 * (1 + self._rand()))
        query = [
            ("watch", "true"),
            ("resourceVersion", resource_version),
            ("labelSelector", label_selector),
            ("fieldSelector", field_selector),
            ("allowWatchBookmarks", "true" if bookmarks else ""),
            ("timeoutSeconds", str(ends)),
            ("sendInitialEvents", "true" if send_initial_events else ""),
            ("resourceVersionMatch", "NotOlderThan" if send_initial_events else ""),
        ]
        call = self._call("watch", "GET", "", namespace, query=query, timeout=timeout)
        token = self._token(stop)
        try:
            answer = self._caller.open(call, token)
        except BaseException:
            token.stop("the watch could not be opened")
            raise

        def silence() -> float:
            armed = self._sees_bookmarks and bookmarks and idle_timeout is not None
            return idle_timeout if armed and idle_timeout is not None else ends + 5.0

        return WatchStream(
            answer,
            self._codec,
            resource=str(self.resource),
            stop=token,
            silence=silence,
            on_bookmark=self._bookmark_seen,
        )

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
            _key(where, identity.name),
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
                asked for; nothing has changed.
            NotFound: There is none of that name.
        """
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

    def _one(
        self,
        verb: str,
        method: str,
        name: str,
        namespace: str,
        **request: Any,
    ) -> T:
        call = self._call(verb, method, name, namespace, **request)
        return self._codec.decode(self._caller.checked(call).body, verb=verb)

    def _page(
        self,
        namespace: str,
        asked: "_ListOptions",
        limit: int,
        continue_token: str,
        timeout: float | None,
    ) -> Page[T]:
        query = asked.query(limit, continue_token)
        call = Call(
            "list",
            "GET",
            self.resource.path(namespace),
            str(self.resource),
            namespace,
            query=query,
            timeout=timeout,
        )
        return self._codec.decode_list(self._caller.checked(call).body)

    def _call(
        self,
        verb: str,
        method: str,
        name: str,
        namespace: str,
        *,
        subresource: str = "",
        query: Sequence[tuple[str, str]] = (),
        body: object = None,
        content_type: str = "application/json",
        timeout: float | None = None,
    ) -> Call:
        if not name and verb != "watch":
            # With an empty name the path would be the whole collection's.
            raise ConfigError("name", name, f"to {verb} {self.resource} takes a name")
        resource = f"{self.resource}/{subresource}" if subresource else str(self.resource)
        return Call(
            verb,
            method,
            self.resource.path(namespace, name, subresource),
            resource,
            _key(namespace, name),
            query=query,
            body=None if body is None else msgspec.json.encode(body),
            content_type=content_type,
            timeout=timeout,
        )

    def _token(self, stop: StopToken | None) -> StopToken:
        """Return a token for one stream, set by the client's and by the caller's."""
        token = self._caller.stop.child()
        if stop is not None:
            withdraw = stop.on_stop(lambda: token.stop(stop.reason or "asked to stop"))
            token.on_stop(withdraw)
        return token

    def _bookmark_seen(self) -> None:
        self._sees_bookmarks = True


@dataclass(frozen=True, slots=True)
class _ListOptions:
    label_selector: str
    field_selector: str
    resource_version: str
    resource_version_match: str

    def query(self, limit: int, continue_token: str) -> Sequence[tuple[str, str]]:
        first = not continue_token
        return [
            ("labelSelector", self.label_selector),
            ("fieldSelector", self.field_selector),
            ("limit", str(limit) if limit else ""),
            ("continue", continue_token),
            ("resourceVersion", self.resource_version if first else ""),
            ("resourceVersionMatch", self.resource_version_match if first else ""),
        ]


def _as_list(page: Page[T]) -> ResourceList[T]:
    return ResourceList(
        page.items, page.resource_version, page.continue_token, page.remaining, page.failures
    )


def _write_options(
    dry_run: bool, field_manager: str, field_validation: str
) -> Sequence[tuple[str, str]]:
    return [
        ("dryRun", "All" if dry_run else ""),
        ("fieldManager", field_manager),
        ("fieldValidation", field_validation),
    ]


def _decode_mapping(data: bytes, call: Call) -> Mapping[str, object]:
    try:
        return msgspec.json.decode(data, type=dict[str, object]) if data else _NO_BODY
    except msgspec.DecodeError as error:
        raise DecodeError(
            f"the answer is no object: {error}", verb=call.verb, resource=call.resource
        ) from error


def _key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name
