"""The verbs that read the objects of one resource."""

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, Self, TypeVar

import msgspec
from msgspec.structs import replace

from navarchos.client.decoding import Codec, ResourceList
from navarchos.client.errors import DecodeError, Expired
from navarchos.client.executor import RequestExecutor
from navarchos.client.options import ListOptions, WatchOptions
from navarchos.client.pager import ItemPager
from navarchos.client.resource import Resource
from navarchos.client.transport import Call
from navarchos.client.watching import WatchStream
from navarchos.clock import uniform
from navarchos.errors import ConfigError
from navarchos.stopping import StopToken

__all__ = ["ResourceReader", "decode_mapping", "object_key"]

T = TypeVar("T")

_ALL: Final = ListOptions()
_FROM_NOW: Final = WatchOptions()


class ResourceReader(Generic[T]):
    """Reads the objects of one resource.

    Every call takes `timeout` in seconds for the whole call with its retries (each page of
    a list is a separate call); `None` is the client's default. Every call raises a subclass
    of `ApiError` when the server refuses the request, `TransportError` when there is no
    response, and `Stopped` when the client is closed or its stop token is set.

    Reads are repeated as `RequestExecutor` describes.

    Threads: safe from any thread.

    Attributes:
        resource: The resource.
        namespace: The only namespace of this reader; empty for all.
        streams_lists: Whether `watch` supports `send_initial_events`, for informers.
    """

    streams_lists: Final = True

    def __init__(
        self,
        executor: RequestExecutor,
        resource: Resource[T],
        *,
        keep_managed_fields: bool = False,
        rand: Callable[[], float] = uniform,
    ) -> None:
        self.resource = resource
        self.namespace = ""
        self._executor = executor
        self._codec = Codec(resource, keep_managed_fields=keep_managed_fields)
        self._rand = rand
        # No lock: it only changes from False to True, and each read is independent.
        self._sees_bookmarks = False

    def in_namespace(self, namespace: str) -> Self:
        """Return a client that is limited to one namespace (CL-13).

        A call without a namespace uses this one. A call with another namespace, or with an
        object of another namespace, raises `ConfigError`. Cluster-scoped kinds are not
        affected.
        """
        limited = copy.copy(self)
        limited.namespace = namespace
        return limited

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
            name: The object's name.
            namespace: Its namespace; empty for cluster-scoped kinds.
            resource_version: Empty for the latest state; `"0"` for any version that the
                server has cached.
            timeout: See the class.

        Raises:
            NotFound: The object does not exist.
        """
        query = [("resourceVersion", resource_version)]
        return self._one("get", "GET", name, namespace, query=query, timeout=timeout)

    def get_subresource(
        self, name: str, subresource: str, namespace: str = "", *, timeout: float | None = None
    ) -> Mapping[str, object]:
        """Return a subresource of another kind; for scales see `get_scale`.

        Raises:
            NotFound: The object does not exist, or its kind has no such subresource.
        """
        call = self._call("get", "GET", name, namespace, subresource=subresource, timeout=timeout)
        return decode_mapping(self._executor.checked(call).body, call)

    def list(
        self,
        namespace: str = "",
        options: ListOptions = _ALL,
        *,
        timeout: float | None = None,
    ) -> ResourceList[T]:
        """Return all objects of a collection, page by page.

        The list is consistent: every page shows the state of the first page's
        resourceVersion. If the server drops that version while the pages are read, the
        whole list is requested again in one response (RF-10).

        Args:
            namespace: Empty for all namespaces.
            options: The selectors, the version and the size of the pages.
            timeout: Seconds for each page.
        """
        page = self._page(namespace, options, timeout)
        items, failures, pages = page.items, page.failures, 1
        version = page.resource_version
        while page.continue_token:
            following = replace(options, continue_token=page.continue_token)
            try:
                page = self._page(namespace, following, timeout)
            except Expired:
                return self._page(namespace, replace(options, limit=0, continue_token=""), timeout)
            pages += 1
            items.extend(page.items)
            failures.extend(page.failures)
        return ResourceList(items, version, failures=failures, pages=pages)

    def each(
        self,
        namespace: str = "",
        options: ListOptions = _ALL,
        *,
        timeout: float | None = None,
    ) -> ItemPager[T]:
        """Return the objects that `list` returns, one by one, with the same arguments.

        For collections that are too large for the memory: pages are fetched while the
        caller processes objects, and dropped afterwards. Close the result, by `with`.
        """

        def fetch(token: str, stop: StopToken) -> ResourceList[T]:
            return self._page(namespace, replace(options, continue_token=token), timeout, stop)

        return ItemPager(fetch, name=self.resource.plural, stop=self._executor.stop.child())

    def list_page(
        self,
        namespace: str = "",
        options: ListOptions = _ALL,
        *,
        timeout: float | None = None,
        stop: StopToken | None = None,
        on_object: Callable[[T], object] | None = None,
    ) -> ResourceList[T]:
        """Return one page of the result of `list`.

        Args:
            namespace: Empty for all namespaces.
            options: As for `list`; the `continue_token` selects the page.
            timeout: Seconds; `None` for the client's default.
            stop: Setting it unblocks the thread that waits for the page.
            on_object: Called with each object soon after it was decoded, before the page
                is complete, for instance to intern its parts. If a response breaks off,
                the request is repeated, and `on_object` sees its objects twice.

        Raises:
            Expired: The token, or the resourceVersion, is too old.
            Stopped: `stop` was set.
        """
        token = self._token(stop)
        try:
            return self._page(namespace, options, timeout, token, on_object)
        finally:
            token.stop("the page has arrived")

    def watch(
        self,
        namespace: str = "",
        options: WatchOptions = _FROM_NOW,
        *,
        timeout: float | None = None,
        stop: StopToken | None = None,
    ) -> WatchStream[T]:
        """Open a watch; it is open when this returns.

        Args:
            namespace: Empty for all namespaces.
            options: The selectors, the version to begin at, and the timeouts.
            timeout: Seconds for opening the watch.
            stop: Setting it unblocks a read, which then raises `Stopped`.

        Raises:
            Expired: The resourceVersion is too old, and the server said so before the
                stream began.
        """
        # Random, so that the watches of many clients do not end together (RF-14).
        ends = options.timeout_seconds or int(300 * (1 + self._rand()))
        query = options.query(ends)
        call = self._call("watch", "GET", "", namespace, query=query, timeout=timeout)
        token = self._token(stop)
        try:
            response = self._executor.open(call, token)
        except BaseException:
            token.stop("the watch could not be opened")
            raise
        idle_timeout = options.idle_timeout

        def silence() -> float:
            armed = self._sees_bookmarks and options.bookmarks and idle_timeout is not None
            return idle_timeout if armed and idle_timeout is not None else ends + 5.0

        return WatchStream(
            response,
            self._codec,
            stop=token,
            silence=silence,
            on_bookmark=self._bookmark_seen,
            is_listing=options.send_initial_events,
        )

    def _one(
        self,
        verb: str,
        method: str,
        name: str,
        namespace: str,
        **request: Any,
    ) -> T:
        call = self._call(verb, method, name, namespace, **request)
        return self._codec.decode(self._executor.checked(call).body, verb=verb)

    def _page(
        self,
        namespace: str,
        options: ListOptions,
        timeout: float | None,
        stop: StopToken | None = None,
        on_object: Callable[[T], object] | None = None,
    ) -> ResourceList[T]:
        where = self._where(namespace)
        call = Call(
            "list",
            "GET",
            self.resource.path(where),
            str(self.resource),
            where,
            query=options.query(),
            timeout=timeout,
        )
        token = self._executor.stop if stop is None else stop
        decode = partial(self._codec.decode_parts, on_object=on_object)
        return self._executor.stream_into(call, token, decode)

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
            # With an empty name the path would select the whole collection.
            raise ConfigError("name", name, f"{verb} {self.resource} requires a name")
        resource = f"{self.resource}/{subresource}" if subresource else str(self.resource)
        where = self._where(namespace)
        return Call(
            verb,
            method,
            self.resource.path(where, name, subresource),
            resource,
            object_key(where, name),
            query=query,
            body=None if body is None else msgspec.json.encode(body),
            content_type=content_type,
            timeout=timeout,
        )

    def _where(self, namespace: str) -> str:
        """Return the namespace of a call."""
        if not (self.namespace and self.resource.namespaced):
            return namespace
        if namespace not in {"", self.namespace}:
            rule = f"this client is limited to namespace {self.namespace}"
            raise ConfigError("namespace", namespace, rule)
        return self.namespace

    def _token(self, stop: StopToken | None) -> StopToken:
        """Return a token for one request, set by the token of the client or the caller."""
        token = self._executor.stop.child()
        if stop is not None:
            withdraw = stop.on_stop(lambda: token.stop(stop.reason or "the stop token was set"))
            token.on_stop(withdraw)
        return token

    def _bookmark_seen(self) -> None:
        self._sees_bookmarks = True


def object_key(namespace: str, name: str) -> str:
    """Return `namespace/name`, or the name alone."""
    return f"{namespace}/{name}" if namespace else name


def decode_mapping(data: bytes, call: Call) -> Mapping[str, object]:
    """Decode a response whose kind has no declared type."""
    try:
        return msgspec.json.decode(data, type=dict[str, object]) if data else {}
    except msgspec.DecodeError as error:
        raise DecodeError(
            f"the response is not an object: {error}", verb=call.verb, resource=call.resource
        ) from error
