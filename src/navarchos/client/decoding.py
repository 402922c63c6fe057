"""Decoding responses to objects.

The fast path is msgspec's typed decoder: it decodes a page of a list with its objects in
one pass, or in pieces while it arrives, at about a gigabyte per second, and builds only
the fields that the type declares. An object that it refuses is decoded to a dict; its
nulls are removed and the dict is converted. An object that still does not fit becomes a
`DecodeError`; the other objects of the page are not affected.
"""

import collections.abc
import gc
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, cast, get_args, get_origin

import msgspec

from navarchos.client.errors import DecodeError
from navarchos.client.list_splitter import ListSplitter
from navarchos.client.resource import Resource
from navarchos.logs import get_logger
from navarchos.meta import KeyFailed, ResourceVersion, identity_of
from navarchos.structs import make_decoder, without_nulls

__all__ = [
    "ChangeType",
    "Codec",
    "ResourceList",
    "gc_paused",
    "is_untyped",
    "resource_version_of",
]

T = TypeVar("T")

ChangeType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]

_MAX_TYPES: Final = 256

_log = get_logger(__name__)


class _ListMeta(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """`metav1.ListMeta`."""

    resource_version: str | None = None
    continue_: str | None = msgspec.field(default=None, name="continue")
    remaining_item_count: int | None = None


class _RawList(msgspec.Struct, frozen=True, rename="camel"):
    """A list whose items are still bytes of the page."""

    kind: str | None = None
    api_version: str | None = None
    metadata: _ListMeta | None = None
    items: list[msgspec.Raw] | None = None


class _Peek(msgspec.Struct, frozen=True):
    """The identity of an object."""

    metadata: dict[str, object] | None = None


class _Type(msgspec.Struct, frozen=True, rename="camel"):
    """The type that an object states."""

    kind: str | None = None
    api_version: str | None = None


class ResourceList(msgspec.Struct, Generic[T], frozen=True):
    """The objects of a collection at one resourceVersion.

    Attributes:
        items: The objects that fit their type, in the server's order.
        resource_version: The version of the list; a watch from here misses no change.
        continue_token: The token for the next page; empty on the last.
        remaining: The number of objects on later pages, if the server reports it.
        failures: One error for each object that does not fit its type.
        pages: The number of responses that the list was read from.
    """

    items: list[T]
    resource_version: ResourceVersion
    continue_token: str = ""
    remaining: int | None = None
    failures: list[DecodeError] = msgspec.field(default_factory=list)
    pages: int = 1


class Codec(Generic[T]):
    """Decodes the objects of one resource. Stateless after construction; thread-safe.

    Args:
        resource: The resource with its type. Untyped objects get `apiVersion` and `kind`
            if the server leaves them out, as in lists of built-in kinds.
        keep_managed_fields: Keep `metadata.managedFields` of untyped objects; typed
            objects have it only if their type declares it.

    Attributes:
        name: The resource as `plural.group`, for errors.
    """

    def __init__(self, resource: Resource[T], *, keep_managed_fields: bool = False) -> None:
        self.name = str(resource)
        self._resource = resource
        self._keep_managed_fields = keep_managed_fields
        self._untyped = is_untyped(resource.type)
        self._type: Any = dict[str, object] if self._untyped else resource.type
        kind, version = f'"kind":"{resource.kind}"', f'"apiVersion":"{resource.api_version}"'
        # How servers begin their objects: structs in Go's order, maps in the order of keys.
        self._beginnings = (f"{{{kind},{version}".encode(), f"{{{version},{kind}".encode())
        item: Any = self._type
        self._objects: msgspec.json.Decoder[Any] = make_decoder(item)
        self._lists: msgspec.json.Decoder[Any] = make_decoder(_list_type(self.name, item))
        self._items: msgspec.json.Decoder[Any] = make_decoder(list[item])
        self._change_beginnings = tuple(
            f'{{"type":"{change}","object":'.encode() + beginning
            for change in get_args(ChangeType)
            for beginning in self._beginnings
        )
        self._changes: msgspec.json.Decoder[Any] = make_decoder(_change_type(self.name, item))

    def decode(self, data: bytes | msgspec.Raw, *, verb: str = "get") -> T:
        """Decode one object.

        Raises:
            DecodeError: The object does not fit its type, even without its nulls.
        """
        try:
            obj = self._objects.decode(data)
        except msgspec.DecodeError:
            obj = self._decode_leniently(data, verb)
        return self._finished(obj)

    def decode_change(self, line: bytes) -> tuple[ChangeType, T, ResourceVersion] | None:
        """Decode a usual line of a watch, in one pass.

        Returns:
            The type of the change, the object, and its resourceVersion. `None` for any
            other line, well-formed or not: a bookmark, an error, or an object of another
            kind, without metadata, or that does not fit its type.
        """
        if not line.startswith(self._change_beginnings):
            return None
        try:
            change = self._changes.decode(line)
            obj = change.object
            version = identity_of(obj).resource_version
        except (msgspec.DecodeError, KeyFailed):
            return None
        obj = self._finished(obj) if self._untyped else obj
        return change.type, obj, ResourceVersion(version)

    def check_kind(self, data: msgspec.Raw, *, verb: str) -> None:
        """Refuse an object of another kind than this resource (RF-19).

        An object that does not state its kind is accepted.

        Raises:
            DecodeError: The object is of another kind or version, such as a `Table`. The
                error does not name the object: an object of this resource may have the
                same name, and must not be taken for it.
        """
        view = memoryview(data)
        if any(view[: len(known)] == known for known in self._beginnings):
            return  # the usual case, so it must be cheap
        try:
            found = _TYPES.decode(data)
        except msgspec.DecodeError:
            return  # not an object: decoding reports it better
        wanted = (self._resource.kind, self._resource.api_version)
        if found.kind is not None and (found.kind, found.api_version) != wanted:
            why = f"the object is a {found.kind} of {found.api_version}"
            raise DecodeError(why, verb=verb, resource=self.name)

    def decode_list(self, data: bytes) -> ResourceList[T]:
        """Decode a complete page, as `decode_parts` does."""
        return self.decode_parts((data,))

    def decode_parts(
        self, parts: Iterable[bytes], *, on_object: Callable[[T], object] | None = None
    ) -> ResourceList[T]:
        """Decode a page while it arrives. Objects do not refer to its bytes (RF-12).

        Promises: never holds more than some megabytes of the bytes of a long page.

        Args:
            parts: The bytes of the page.
            on_object: Called with each object soon after it was decoded.

        Raises:
            DecodeError: The page is not a list, or it is a `Table`. A `Table` has rows
                instead of items: decoded as an empty list, it would make a cache delete
                all objects (RF-13).
        """
        splitter = ListSplitter()
        items: list[T] = []
        failures: list[DecodeError] = []
        known = 0
        for part in parts:
            splitter.feed(part)
            while (guess := splitter.next_guess()) is not None:
                splitter.confirm(right=self._add_items(guess, items, failures))
                known = _report(on_object, items, known)
        page = self._decode_rest(splitter.remainder(), items, failures)
        _report(on_object, items, known)
        if failures:
            _log.warning(
                "objects_not_decoded",
                resource=self.name,
                count=len(failures),
                first=failures[0].key,
                error=failures[0].why,
            )
        return page

    def _add_items(self, data: memoryview, items: list[T], failures: list[DecodeError]) -> bool:
        """Decode an array of objects; return False if the bytes are not an array."""
        with gc_paused():
            try:
                items += self._all_finished(self._items.decode(data))
                return True
            except msgspec.DecodeError:
                pass
            try:
                raw = _RAW_ITEMS.decode(bytes(data))  # a copy: raw items refer to the bytes
            except msgspec.DecodeError:
                return False
            self._add_one_by_one(raw, items, failures)
            return True

    def _decode_rest(
        self, data: bytes, items: list[T], failures: list[DecodeError]
    ) -> ResourceList[T]:
        """Decode the remainder of a list, and append its items to `items`."""
        with gc_paused():
            try:
                page = self._lists.decode(data)
                self._refuse_table(page)
                items += self._all_finished(page.items or [])
            except msgspec.DecodeError:
                page = self._raw_list(data)
                self._refuse_table(page)
                self._add_one_by_one(page.items or [], items, failures)
        return _page(page.metadata, items, failures)

    def _raw_list(self, data: bytes) -> _RawList:
        try:
            found: _RawList = _RAW_LISTS.decode(data)
        except msgspec.DecodeError as error:
            why = f"the response is not a list: {error}"
            raise DecodeError(why, verb="list", resource=self.name) from error
        return found

    def _add_one_by_one(
        self, raw: Iterable[msgspec.Raw], items: list[T], failures: list[DecodeError]
    ) -> None:
        for item in raw:
            try:
                items.append(self.decode(item, verb="list"))
            except DecodeError as failure:
                failures.append(failure)

    def _all_finished(self, objects: list[Any]) -> list[T]:
        return [self._finished(each) for each in objects] if self._untyped else objects

    def _refuse_table(self, page: Any) -> None:
        if page.kind == "Table" and (page.api_version or "").startswith("meta.k8s.io/"):
            why = "the response is a Table: a proxy or a header requested one"
            raise DecodeError(why, verb="list", resource=self.name)

    def _decode_leniently(self, data: bytes | msgspec.Raw, verb: str) -> object:
        try:
            return msgspec.convert(without_nulls(msgspec.json.decode(data)), self._type)
        except msgspec.DecodeError as error:
            raise self._failure(data, verb, error) from error

    def _failure(
        self, data: bytes | msgspec.Raw, verb: str, error: msgspec.DecodeError
    ) -> DecodeError:
        found = _peek(data)
        return DecodeError(
            f"the object does not fit {getattr(self._type, '__name__', self._type)}: {error}",
            verb=verb,
            resource=self.name,
            namespace=found.get("namespace", ""),
            name=found.get("name", ""),
            uid=found.get("uid", ""),
            resource_version=found.get("resourceVersion", ""),
        )

    def _finished(self, obj: object) -> T:
        if self._untyped:
            found = cast("dict[str, object]", obj)
            found.setdefault("apiVersion", self._resource.api_version)
            found.setdefault("kind", self._resource.kind)
            metadata = found.get("metadata")
            if isinstance(metadata, dict) and not self._keep_managed_fields:
                metadata.pop("managedFields", None)
        return cast("T", obj)


def is_untyped(type: object) -> bool:  # noqa: A002 - the name that resources use
    """Return whether objects of this type are dicts with every field."""
    return (get_origin(type) or type) in {dict, collections.abc.Mapping}


def resource_version_of(obj: object, data: bytes | msgspec.Raw) -> ResourceVersion:
    """Return an object's resourceVersion; empty if it has none.

    If the type does not declare metadata, the version is read from the bytes.
    """
    try:
        return ResourceVersion(identity_of(obj).resource_version)
    except KeyFailed:
        return ResourceVersion(_peek(data).get("resourceVersion", ""))


def _report(on_object: Callable[[T], object] | None, items: Sequence[T], known: int) -> int:
    """Pass on the objects after the first `known`; return the present number of objects."""
    if on_object is not None:
        for item in items[known:]:
            on_object(item)
    return len(items)


def _peek(data: bytes | msgspec.Raw) -> Mapping[str, str]:
    try:
        metadata = _PEEKS.decode(data).metadata or {}
    except msgspec.DecodeError:
        return {}
    return {name: value for name, value in metadata.items() if isinstance(value, str)}


def _page(
    metadata: _ListMeta | None, items: list[T], failures: list[DecodeError]
) -> ResourceList[T]:
    found = metadata or _ListMeta()
    return ResourceList(
        items,
        ResourceVersion(found.resource_version or ""),
        found.continue_ or "",
        found.remaining_item_count,
        failures,
    )


# Cached, because creating a type takes a fifth of a millisecond, and clients are created for
# the same few resources again and again.
@lru_cache(maxsize=_MAX_TYPES)
def _list_type(name: str, item: Any) -> Any:
    fields: Sequence[tuple[str, Any, Any]] = [
        ("kind", str | None, None),
        ("api_version", str | None, None),
        ("metadata", _ListMeta | None, None),
        ("items", list[item] | None, None),
    ]
    return msgspec.defstruct(f"{name}_list", fields, frozen=True, rename="camel")


@lru_cache(maxsize=_MAX_TYPES)
def _change_type(name: str, item: Any) -> Any:
    fields: Sequence[tuple[str, Any]] = [("type", ChangeType), ("object", item)]
    return msgspec.defstruct(f"{name}_change", fields, frozen=True)


_RAW_LISTS: Final = make_decoder(_RawList)
_RAW_ITEMS: Final = make_decoder(list[msgspec.Raw])
_PEEKS: Final = make_decoder(_Peek)
_TYPES: Final = make_decoder(_Type)


class _GcPauses:
    """Counts the pauses in progress, because the collector has one switch per process."""

    def __init__(self) -> None:
        self._count_lock = threading.Lock()
        self._count = 0  # guarded by _count_lock
        self._was_enabled = False  # guarded by _count_lock

    def enter(self) -> None:
        with self._count_lock:
            if self._count == 0:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._count += 1

    def leave(self) -> None:
        with self._count_lock:
            self._count -= 1
            if self._count == 0 and self._was_enabled:
                gc.enable()


_pauses = _GcPauses()


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause cyclic garbage collection while a page of objects is decoded.

    Decoded JSON has no cycles, but each collection while it is built visits all of it,
    which takes four fifths of the time.

    Promises: when the last overlapping pause ends, also by an exception, the collector has
    the state that it had before the first. Safe from any thread.
    """
    _pauses.enter()
    try:
        yield
    finally:
        _pauses.leave()
