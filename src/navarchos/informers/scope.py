"""Which objects of a kind an informer is about."""

import re
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import msgspec

from navarchos.client.options import ListOptions, WatchOptions
from navarchos.client.resource import Resource
from navarchos.client.selectors import Selector
from navarchos.errors import ConfigError
from navarchos.informers.lister import labels_of
from navarchos.informers.source import ListerWatcher, Page, Stream
from navarchos.meta import identity_of
from navarchos.stopping import StopToken

__all__ = ["IDLE_TIMEOUT", "Scope", "ScopedSource"]

_COMMA: Final = re.compile(r"(?<!\\),")
_NAMESPACE: Final = re.compile(r"metadata\.namespace\s*==?\s*([a-z0-9-]+)")


class Scope(msgspec.Struct, frozen=True):
    """Which objects of a kind.

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

    @classmethod
    def of(
        cls,
        resource: Resource[Any],
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> "Scope":
        """Return a scope of a kind; one that its field selector narrows is narrowed.

        `metadata.namespace=x` as a selector is answered from all namespaces, and
        needs the right to read them all; the path of one namespace does not (IF-10).

        Raises:
            ConfigError: A namespace for a cluster-scoped kind.
        """
        if namespace and not resource.namespaced:
            why = f"{resource} are cluster-scoped: leave it out"
            raise ConfigError("namespace", namespace, why)
        scope = cls(namespace, label_selector, field_selector)
        return scope._narrowed() if resource.namespaced else scope

    def _narrowed(self) -> "Scope":
        terms = [term.strip() for term in _COMMA.split(self.field_selector) if term.strip()]
        named = {match[1] for term in terms if (match := _NAMESPACE.fullmatch(term))}
        if len(named) != 1 or self.namespace not in {"", *named}:
            return self  # none, or a contradiction: that is for the server to answer
        rest = ",".join(term for term in terms if not _NAMESPACE.fullmatch(term))
        return Scope(named.pop(), self.label_selector, rest)

    def membership(self) -> Callable[[object], bool]:
        """Return a function that tells whether a watch of this scope shows an object.

        It goes by namespace and labels. Fields only the server can select by, and
        labels only where the object's type lists them; both count as matching else.

        Raises:
            ConfigError: The label selector cannot be read.
        """
        selector = Selector.parse(self.label_selector)

        def is_member(obj: object) -> bool:
            if self.namespace and identity_of(obj).namespace != self.namespace:
                return False
            labels = labels_of(obj)
            return labels is None or selector.matches(labels)

        return is_member


T = TypeVar("T")

IDLE_TIMEOUT: Final = 75.0
"""Seconds of silence after which a watch counts as dead: a bookmark a minute, and a margin."""


class ScopedSource(Generic[T]):
    """Lists and watches the objects of one scope. Safe from any thread."""

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
        version: str,
        *,
        limit: int,
        token: str = "",
        match: str = "",
        timeout: float | None = None,
        stop: StopToken | None = None,
        each: Callable[[T], object] | None = None,
    ) -> Page[T]:
        """Return one page of a list.

        Args:
            version: The resourceVersion to ask for; not sent with a token.
            limit: Objects per page; 0 for all.
            token: The continue token of the page before.
            match: How `version` is meant; empty for the server's default.
            timeout: In seconds; `None` for the client's own.
            stop: Frees whoever waits.
            each: Hears of each object soon after it was decoded.
        """
        options = ListOptions(
            label_selector=self._scope.label_selector,
            field_selector=self._scope.field_selector,
            limit=limit,
            resource_version="" if token else version,
            resource_version_match="" if token else match,
            continue_token=token,
        )
        return self._source.list_page(
            self._scope.namespace, options, timeout=timeout, stop=stop, on_object=each
        )

    def watch(self, version: str, stop: StopToken, *, streaming: bool = False) -> Stream[T]:
        """Open a watch.

        Args:
            version: Changes after this one.
            stop: Ends it.
            streaming: Ask for what exists first, and for the bookmark after it.
        """
        options = WatchOptions(
            label_selector=self._scope.label_selector,
            field_selector=self._scope.field_selector,
            resource_version=version,
            send_initial_events=streaming,
            idle_timeout=self._idle_timeout,
        )
        return self._source.watch(self._scope.namespace, options, stop=stop)
