"""The scope of an informer: which objects of a kind it caches, and requests for them."""

import re
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import msgspec

from navarchos.client.options import ListOptions, WatchOptions
from navarchos.client.resource import Resource
from navarchos.client.selectors import Selector
from navarchos.errors import ConfigError
from navarchos.informers.lister import labels_of
from navarchos.informers.options import IDLE_TIMEOUT
from navarchos.informers.source import ListerWatcher, Page, Stream
from navarchos.meta import identity_of
from navarchos.stopping import StopToken

__all__ = ["Scope", "ScopedSource"]

_COMMA: Final = re.compile(r"(?<!\\),")
_NAMESPACE: Final = re.compile(r"metadata\.namespace\s*==?\s*([a-z0-9-]+)")


class Scope(msgspec.Struct, frozen=True):
    """A selection of the objects of a kind.

    Attributes:
        namespace: Empty for all.
        label_selector: As in `kubectl -l`; empty for all.
        field_selector: Such as `spec.nodeName=node-1`; empty for all.
    """

    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""

    def __str__(self) -> str:
        parts = [self.namespace and f"in {self.namespace}", self.label_selector]
        return " ".join(part for part in (*parts, self.field_selector) if part)

    def of_kind(self, resource: Resource[Any]) -> "Scope":
        """Return this scope for a kind, with a namespace in the field selector made its namespace.

        A request with the selector `metadata.namespace=x` reads all namespaces and needs
        permission for all of them; a request with the path of one namespace does not (IF-10).

        Raises:
            ConfigError: A namespace for a cluster-scoped kind.
        """
        if self.namespace and not resource.namespaced:
            rule = f"{resource} are cluster-scoped; omit the namespace"
            raise ConfigError("namespace", self.namespace, rule)
        return self._narrowed() if resource.namespaced else self

    def _narrowed(self) -> "Scope":
        terms = [term.strip() for term in _COMMA.split(self.field_selector) if term.strip()]
        named = {match[1] for term in terms if (match := _NAMESPACE.fullmatch(term))}
        if len(named) != 1 or self.namespace not in {"", *named}:
            return self  # no namespace, or a contradiction, which the server has to answer
        rest = ",".join(term for term in terms if not _NAMESPACE.fullmatch(term))
        return Scope(named.pop(), self.label_selector, rest)

    def membership(self) -> Callable[[object], bool]:
        """Return a function that returns whether a watch of this scope shows an object.

        It compares namespace and labels. Only the server can select by fields, and labels
        are only known if the object's type lists them; otherwise both count as matching.

        Raises:
            ConfigError: The label selector is not valid.
        """
        selector = Selector.parse(self.label_selector)

        def is_member(obj: object) -> bool:
            if self.namespace and identity_of(obj).namespace != self.namespace:
                return False
            labels = labels_of(obj)
            return labels is None or selector.matches(labels)

        return is_member


T = TypeVar("T")


class ScopedSource(Generic[T]):
    """Lists and watches the objects of one scope.

    Threads: safe from any thread.
    """

    def __init__(
        self, source: ListerWatcher[T], scope: Scope, *, idle_timeout: float | None = IDLE_TIMEOUT
    ) -> None:
        self._source = source
        self._scope = scope
        self._idle_timeout = idle_timeout
        self.name = str(source.resource)
        self.streams_lists = source.streams_lists

    def page(
        self,
        options: ListOptions,
        *,
        timeout: float | None = None,
        stop: StopToken | None = None,
        on_object: Callable[[T], object] | None = None,
    ) -> Page[T]:
        """Return one page of a list.

        Args:
            options: The version and the size of the page; its selectors are the scope's.
            timeout: In seconds; `None` for the client's default.
            stop: Ends the wait.
            on_object: Called with each object soon after it was decoded.
        """
        options = msgspec.structs.replace(
            options,
            label_selector=self._scope.label_selector,
            field_selector=self._scope.field_selector,
        )
        return self._source.list_page(
            self._scope.namespace, options, timeout=timeout, stop=stop, on_object=on_object
        )

    def watch(self, version: str, stop: StopToken, *, streaming: bool = False) -> Stream[T]:
        """Open a watch.

        Args:
            version: Changes after this one.
            stop: Ends the watch.
            streaming: Ask for the existing objects first, and for the bookmark after them.
        """
        options = WatchOptions(
            label_selector=self._scope.label_selector,
            field_selector=self._scope.field_selector,
            resource_version=version,
            send_initial_events=streaming,
            idle_timeout=self._idle_timeout,
        )
        return self._source.watch(self._scope.namespace, options, stop=stop)
