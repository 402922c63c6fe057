"""Get and list: versions, pages and representations."""

import base64
import binascii
from collections.abc import Sequence
from typing import Final

import msgspec

from navarchos.testing.apiserver.kinds import Kind, raw_of
from navarchos.testing.apiserver.objects import JsonObject, encode
from navarchos.testing.apiserver.representation import metadata_only, table
from navarchos.testing.apiserver.requests import (
    Answer,
    Form,
    ListOptions,
    Target,
    check_list_options,
    read_version,
)
from navarchos.testing.apiserver.status import StatusError, bad_request, expired, too_large_version
from navarchos.testing.apiserver.store import Compacted, Entry, FutureVersion
from navarchos.testing.apiserver.writing import Api, require

__all__ = ["answer_object", "expired_page", "get", "list_objects", "select"]

_EXPIRED: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start"
    " a new list without the continue parameter, or use the continue token in this response to"
    " retrieve the remainder of the results. Continuing with the provided token results in an"
    " inconsistent list - objects that were created, modified, or deleted between the time the"
    " first chunk was returned and now may show up in the list."
)


def get(api: Api, target: Target, version: str, form: Form, include_object: str = "") -> Answer:
    """Answer a GET of one object.

    Raises:
        StatusError: 404, or 504 for a version in the future.
    """
    asked = read_version(version)
    if asked > api.store.version:
        raise too_large_version(asked, api.store.version)
    entry = require(api, target.kind, target.namespace, target.name)
    return answer_object(target.kind, entry, form, include_object=include_object)


def answer_object(
    kind: Kind, entry: Entry, form: Form, *, status: int = 200, include_object: str = ""
) -> Answer:
    """Answer with one object in the form asked for."""
    if form.kind == "Table":
        shown = table(kind, [entry], str(entry.version), form.version, include_object)
        return Answer(status, encode(shown))
    if form.kind == "PartialObjectMetadata":
        return Answer(status, encode(metadata_only(entry.obj, form.version)))
    return Answer(status, raw_of(kind, entry))


def select(api: Api, target: Target, options: ListOptions) -> list[Entry]:
    """Return what a list or deletecollection is about now."""
    entries = api.store.entries(target.kind.bucket, target.namespace)
    if options.selection.is_empty:
        return entries
    return [entry for entry in entries if options.selection.matches(entry.obj)]


def list_objects(api: Api, target: Target, options: ListOptions, form: Form) -> Answer:
    """Answer a list.

    Raises:
        StatusError: 400, 410, 422 or 504, as the options deserve.
    """
    check_list_options(options)
    entries, version, after = _snapshot(api, target, options)
    if not options.selection.is_empty:
        entries = [entry for entry in entries if options.selection.matches(entry.obj)]
    if after:
        entries = [entry for entry in entries if entry.key > after]
    page, metadata = _page(entries, version, options)
    if form.kind == "Table":
        shown = table(target.kind, page, str(version), form.version, options.include_object)
        shown["metadata"] = metadata
        return Answer(200, encode(shown))
    if form.kind == "PartialObjectMetadataList":
        return Answer(200, encode(_metadata_list(page, metadata, form)))
    return Answer(200, _spliced(target.kind, page, metadata))


def _metadata_list(page: Sequence[Entry], metadata: JsonObject, form: Form) -> JsonObject:
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": f"meta.k8s.io/{form.version}",
        "metadata": metadata,
        "items": [metadata_only(entry.obj, form.version) for entry in page],
    }


def _snapshot(api: Api, target: Target, options: ListOptions) -> tuple[list[Entry], int, str]:
    """Return entries, their version, and the key to go on after."""
    bucket, namespace = target.kind.bucket, target.namespace
    if options.continue_token:
        version, after = _read_token(options.continue_token)
        if version < 0:
            with api.store.transaction():
                return api.store.entries(bucket, namespace), api.store.version, after
        try:
            return api.store.entries_at(bucket, namespace, version), version, after
        except Compacted as gone:
            raise expired_page(options.continue_token) from gone
    asked = read_version(options.version)
    with api.store.transaction():
        if options.version_match == "Exact" or (
            asked and options.limit and not options.version_match
        ):
            return _exactly(api, target, asked), asked, ""
        if asked > api.store.version:
            raise too_large_version(asked, api.store.version)
        return api.store.entries(bucket, namespace), api.store.version, ""


def expired_page(token: str) -> StatusError:
    """Return the 410 for a page of a version that is gone, with a token to go on with.

    Raises:
        StatusError: 400, for what is no token.
    """
    _, after = _read_token(token)
    return expired(_EXPIRED, continue_token=_token(-1, after))


def _exactly(api: Api, target: Target, version: int) -> list[Entry]:
    try:
        return api.store.entries_at(target.kind.bucket, target.namespace, version)
    except Compacted as gone:
        message = "The resourceVersion for the provided list is too old."
        raise expired(message) from gone
    except FutureVersion as future:
        raise too_large_version(version, future.current) from future


def _page(
    entries: list[Entry], version: int, options: ListOptions
) -> tuple[list[Entry], JsonObject]:
    metadata: JsonObject = {"resourceVersion": str(version)}
    # Upstream's watch cache answers "0" whole, whatever the limit.
    limit = 0 if options.version == "0" and not options.continue_token else options.limit
    if limit <= 0 or len(entries) <= limit:
        return entries, metadata
    page = entries[:limit]
    metadata["continue"] = _token(version, page[-1].key)
    if options.selection.is_empty:
        metadata["remainingItemCount"] = len(entries) - limit
    return page, metadata


def _token(version: int, after: str) -> str:
    raw = encode({"v": "meta.k8s.io/v1", "rv": version, "start": after + "\0"})
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _read_token(token: str) -> tuple[int, str]:
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        found = msgspec.json.decode(raw)
        return int(found["rv"]), str(found["start"]).rstrip("\0")
    except (msgspec.DecodeError, binascii.Error, ValueError, KeyError, TypeError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error


def _spliced(kind: Kind, page: Sequence[Entry], metadata: JsonObject) -> bytes:
    """Join stored JSON into a list; items of built-in kinds carry no kind, as upstream."""
    head = encode({"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": metadata})
    if kind.custom is not None or kind.view is not None:
        items = b",".join([raw_of(kind, entry) for entry in page])
    else:
        prefix = encode({"kind": kind.kind, "apiVersion": kind.api_version})[:-1]
        skip = len(prefix) + 1
        items = b",".join([b"{" + entry.raw[skip:] for entry in page])
    return b'%s,"items":[%s]}\n' % (head[:-1], items)
