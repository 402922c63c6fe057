"""Get and list: versions, pages, representations."""

import base64
import binascii
import posixpath
from collections.abc import Sequence
from typing import Final

import msgspec

from navarchos.structs import prepare_decoding
from navarchos.testing.apiserver import kinds, objects, requests, selectors, store, writes
from navarchos.testing.apiserver import status as statuses
from navarchos.testing.apiserver.tables import metadata_only, table

__all__ = [
    "expired_page",
    "find_page",
    "get",
    "list_objects",
    "list_response",
    "object_response",
    "selected_entries",
]

_EXPIRED: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start"
    " a new list without the continue parameter, or use the continue token in this response to"
    " retrieve the remainder of the results. Continuing with the provided token results in an"
    " inconsistent list - objects that were created, modified, or deleted between the time the"
    " first chunk was returned and now may show up in the list."
)


_PAGING_FORM: Final = "meta.k8s.io/v1"


@prepare_decoding
class _Token(msgspec.Struct):
    """A continue token: where the next page of a list begins."""

    v: str = ""
    rv: int = 0
    start: str = ""


def get(
    api: writes.Api,
    target: requests.Target,
    version: str,
    form: requests.Form,
    include_object: str = "",
) -> requests.ApiResponse:
    """Return the response to a GET of one object.

    Raises:
        StatusError: 404; 500 for an invalid version; 504 for a version in the future.
    """
    asked = requests.read_version(version, listing=False)
    if asked > api.store.version:
        raise statuses.too_large_version(asked, api.store.version)
    entry = writes.require(api, target)
    return object_response(target.kind, entry, form, include_object=include_object)


def object_response(
    kind: kinds.Kind,
    entry: store.Entry,
    form: requests.Form,
    *,
    status: int = 200,
    include_object: str = "",
) -> requests.ApiResponse:
    """Return a response with one object in the requested form."""
    if form.kind == "Table":
        shown = table(kind, [entry], str(entry.version), form.version, include_object)
        return requests.ApiResponse(status, objects.encode(shown))
    if form.kind == "PartialObjectMetadata":
        return requests.ApiResponse(status, objects.encode(metadata_only(entry.obj, form.version)))
    return requests.ApiResponse(status, kinds.encoded_entry(kind, entry))


def selected_entries(
    api: writes.Api, target: requests.Target, options: requests.ListQuery
) -> list[store.Entry]:
    """Return the current objects that a request on a collection selects."""
    entries = api.store.entries(target.kind.bucket, target.namespace)
    if options.selection.is_empty:
        return entries
    return [entry for entry in entries if options.selection.matches(entry.obj)]


def list_objects(
    api: writes.Api, target: requests.Target, options: requests.ListQuery, form: requests.Form
) -> requests.ApiResponse:
    """Return the response to a list.

    Raises:
        StatusError: 400, 410, 422 or 504, depending on the options.
    """
    return list_response(
        target.kind, *find_page(api, target, options), form, options.include_object
    )


def find_page(
    api: writes.Api, target: requests.Target, options: requests.ListQuery
) -> tuple[list[store.Entry], objects.JsonObject]:
    """Return the objects of a list, or one page of them, and the metadata of the list.

    Raises:
        StatusError: As `list_objects`.
    """
    requests.check_list_options(options)
    entries, version, start = _snapshot(api, target, options)
    if start:
        entries = [entry for entry in entries if entry.key >= start]
    return _page(entries, version, target, options)


def list_response(
    kind: kinds.Kind,
    page: Sequence[store.Entry],
    metadata: objects.JsonObject,
    form: requests.Form,
    include_object: str = "",
) -> requests.ApiResponse:
    """Return a response with several objects in the requested form."""
    if form.kind == "Table":
        version = str(metadata["resourceVersion"])
        shown = table(kind, page, version, form.version, include_object)
        shown["metadata"] = metadata
        return requests.ApiResponse(200, objects.encode(shown))
    if form.kind == "PartialObjectMetadataList":
        return requests.ApiResponse(200, objects.encode(_metadata_list(page, metadata, form)))
    return requests.ApiResponse(200, _spliced(kind, page, metadata))


def _metadata_list(
    page: Sequence[store.Entry], metadata: objects.JsonObject, form: requests.Form
) -> objects.JsonObject:
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": f"meta.k8s.io/{form.version}",
        "metadata": metadata,
        "items": [metadata_only(entry.obj, form.version) for entry in page],
    }


def _snapshot(
    api: writes.Api, target: requests.Target, options: requests.ListQuery
) -> tuple[list[store.Entry], int, str]:
    """Return the entries of a list, their version, and the key to begin with."""
    if options.continue_token:
        return _continued(api, target, options)
    asked = requests.read_version(options.version)
    with api.store.transaction():
        if options.version_match == "Exact" or (
            asked and options.limit > 0 and not options.version_match
        ):
            return _at_exact_version(api, target, asked), asked, ""
        if asked > api.store.version:
            raise statuses.too_large_version(asked, api.store.version)
        entries = api.store.entries(target.kind.bucket, target.namespace)
        return entries, api.store.version, ""


def _continued(
    api: writes.Api, target: requests.Target, options: requests.ListQuery
) -> tuple[list[store.Entry], int, str]:
    bucket, namespace = target.kind.bucket, target.namespace
    version, start = _read_token(options.continue_token)
    if options.version not in {"", "0"}:
        raise statuses.bad_request("specifying resource version is not allowed when using continue")
    start = store.entry_key(namespace, start)
    if version < 0:  # the token of an expired list continues with the current objects
        with api.store.transaction():
            return api.store.entries(bucket, namespace), api.store.version, start
    try:
        return api.store.entries_at(bucket, namespace, version), version, start
    except store.Compacted as gone:
        raise expired_page(options.continue_token) from gone


def expired_page(token: str) -> statuses.StatusError:
    """Return the 410 for a page of a version that is gone, with a token to continue anyway.

    Raises:
        StatusError: 400, the token is invalid.
    """
    _, start = _read_token(token)
    return statuses.expired(_EXPIRED, continue_token=_token(-1, start))


def _at_exact_version(api: writes.Api, target: requests.Target, version: int) -> list[store.Entry]:
    try:
        return api.store.entries_at(target.kind.bucket, target.namespace, version)
    except store.Compacted as gone:
        message = "The resourceVersion for the provided list is too old."
        raise statuses.expired(message) from gone
    except store.FutureVersion as future:
        raise statuses.too_large_version(version, future.current) from future


def _page(
    entries: list[store.Entry], version: int, target: requests.Target, options: requests.ListQuery
) -> tuple[list[store.Entry], objects.JsonObject]:
    metadata: objects.JsonObject = {"resourceVersion": str(version)}
    # Upstream's watch cache ignores the limit for version "0".
    limit = 0 if options.version == "0" else max(0, options.limit)
    page, left = _first_selected(entries, limit or len(entries), options.selection)
    if left:
        after = page[-1].key.removeprefix(f"{target.namespace}/")
        metadata["continue"] = _token(version, after + "\0")
        if options.selection.is_empty:
            metadata["remainingItemCount"] = left
    return page, metadata


def _first_selected(
    entries: list[store.Entry], limit: int, selection: selectors.Selection
) -> tuple[list[store.Entry], int]:
    """Return the selected entries up to a limit, and the number of entries after the last one.

    As upstream, that number includes entries that are not selected.
    """
    if selection.is_empty:
        return entries[:limit], max(0, len(entries) - limit)
    page: list[store.Entry] = []
    for index, entry in enumerate(entries):
        if selection.matches(entry.obj):
            page.append(entry)
            if len(page) == limit:
                return page, len(entries) - index - 1
    return page, 0


def _token(version: int, start: str) -> str:
    raw = objects.encode({"v": _PAGING_FORM, "rv": version, "start": start})
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _read_token(token: str) -> tuple[int, str]:
    """Return version and key of a token, by the rules of apiserver's storage/continue.go."""
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        found = msgspec.json.decode(raw, type=_Token)
    except (msgspec.DecodeError, binascii.Error, ValueError) as error:
        raise _invalid_token(f"continue key is not valid: {error}") from error
    if found.v != _PAGING_FORM:
        why = "server does not recognize this encoded version"
        raise _invalid_token(f"continue key is not valid: {why} {found.v}")
    if not found.rv:
        why = "incorrect encoded start resourceVersion"
        raise _invalid_token(f"continue key is not valid: {why} (version {_PAGING_FORM})")
    if not found.start:
        why = "encoded start key empty"
        raise _invalid_token(f"continue key is not valid: {why} (version {_PAGING_FORM})")
    if posixpath.normpath(f"/{found.start.removeprefix('/')}") != f"/{found.start}":
        raise _invalid_token(f"continue key is not valid: {found.start}")
    return found.rv, found.start


def _invalid_token(why: str) -> statuses.StatusError:
    return statuses.bad_request(f"invalid continue token: {why}")


def _spliced(kind: kinds.Kind, page: Sequence[store.Entry], metadata: objects.JsonObject) -> bytes:
    """Return a list made of stored JSON; items of built-in kinds have no kind, as upstream."""
    if kind.custom is not None:  # upstream writes an empty continue token for custom kinds
        metadata = {"continue": "", **metadata}
    head = objects.encode(
        {"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": metadata}
    )
    if kind.custom is not None or kind.conversion is not None:
        items = b",".join([kinds.encoded_entry(kind, entry) for entry in page])
    else:
        prefix = objects.encode({"kind": kind.kind, "apiVersion": kind.api_version})[:-1]
        skip = len(prefix) + 1
        items = b",".join([b"{" + entry.raw[skip:] for entry in page])
    return b'%s,"items":[%s]}\n' % (head[:-1], items)
