"""Requests and responses: path, query, body, representation."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from navarchos.testing.apiserver import objects, protobuf, selectors
from navarchos.testing.apiserver import status as statuses
from navarchos.testing.apiserver.access.users import ADMINISTRATOR, User
from navarchos.testing.apiserver.kinds import Kind, Kinds

__all__ = [
    "BODY_TYPES",
    "ApiResponse",
    "Form",
    "ListQuery",
    "Request",
    "Target",
    "check_list_options",
    "check_watch_options",
    "is_watch",
    "json_response",
    "negotiate",
    "parse_target",
    "read_body",
    "read_flag",
    "read_list_options",
    "read_number",
    "read_version",
    "with_warnings",
]

BODY_TYPES: Final = ("application/json", "application/yaml", protobuf.PROTOBUF)
"""The formats in which a client may send objects."""

_JSON: Final = "application/json"
_OFFERED: Final = ("application/json", "application/yaml", protobuf.PROTOBUF)
# Further formats in the 406 of upstream's router, for lists of built-in kinds.
_STREAMED: Final = ("application/json;stream=watch", f"{protobuf.PROTOBUF};stream=watch")
_PATH: Final = re.compile(
    r"^(?:/api/(?P<core>v1)|/apis/(?P<group>[^/]+)/(?P<version>[^/]+))(?:/(?P<rest>.+?))?/?$"
)


@dataclass(frozen=True, slots=True)
class Request:
    """A request as the client sent it, with its user."""

    method: str
    path: str
    query: Mapping[str, str]
    accept: str = ""
    content_type: str = ""
    body: bytes = b""
    user_agent: str = ""
    user: User = ADMINISTRATOR


@dataclass(frozen=True, slots=True)
class Target:
    """The kind and the object of a path; no name for a collection."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Form:
    """The requested representation: the object, a `Table`, or metadata only."""

    kind: str = ""
    version: str = "v1"

    @property
    def content_type(self) -> str:
        """The media type of the response."""
        return _JSON


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """A complete response."""

    status: int
    body: bytes
    content_type: str = _JSON
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ListQuery:
    """The options of list, watch and deletecollection."""

    selection: selectors.Selection
    limit: int = 0
    continue_token: str = ""
    version: str = ""
    version_match: str = ""
    bookmarks: bool = False
    initial_events: bool | None = None
    timeout: float | None = None
    include_object: str = ""


def with_warnings(answer: ApiResponse, warnings: Sequence[str]) -> ApiResponse:
    """Return a response with a `Warning` header."""
    if not warnings:
        return answer
    # Several warnings are one header line, separated by commas.
    there = answer.headers.get("Warning")
    lines = [
        *([there] if there else []),
        *(f"299 - {objects.encode(text).decode()}" for text in warnings),
    ]
    return replace(answer, headers={**answer.headers, "Warning": ", ".join(lines)})


def json_response(value: object, status: int = 200) -> ApiResponse:
    """Return a response with `value` as JSON."""
    return ApiResponse(status, objects.encode(value))


def parse_target(path: str, kinds: Kinds) -> Target | None:
    """Return the target of a resource path; `None` for other paths and unknown groups.

    Raises:
        StatusError: 404 for an unknown resource of a known group.
    """
    match = _PATH.match(path)
    if match is None or not match["rest"]:
        return None
    group, version = match["group"] or "", match["core"] or match["version"]
    if group and version not in kinds.versions(group):
        return None
    parts = match["rest"].split("/")
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2 and not _is_namespace_subresource(parts):
        namespace, parts = parts[1], parts[2:]
    kind = kinds.find(group, version, parts[0])
    if kind is None and not kinds.is_builtin(group):
        return None  # upstream has no router for a custom group, only its kinds
    if kind is None or len(parts) > 3 or (namespace and not kind.namespaced):
        raise statuses.no_such_resource()
    name = parts[1] if len(parts) > 1 else ""
    subresource = parts[2] if len(parts) > 2 else ""
    if subresource and subresource not in kind.subresources:
        raise statuses.no_such_resource()
    if kind.namespaced and name and not namespace:
        raise statuses.no_such_resource()
    return Target(kind, namespace, name, subresource)


def _is_namespace_subresource(parts: list[str]) -> bool:
    return len(parts) == 3 and parts[2] in {"status", "finalize"}


def negotiate(accept: str, *, kind: Kind, forms: tuple[str, ...], of_list: bool = False) -> Form:
    """Return the representation that the client prefers.

    Args:
        accept: The header.
        kind: The kind of the response.
        forms: The forms that are available, other than the object itself.
        of_list: Whether the response is a list.

    Raises:
        StatusError: 406, no representation that the client accepts is available.
    """
    if not accept:
        return Form()
    for clause in accept.split(","):
        media, *parameters = (part.strip() for part in clause.split(";"))
        options = dict(p.split("=", 1) for p in parameters if "=" in p)
        if media in {"*/*", "application/*"}:
            return Form()
        if media != _JSON:
            continue
        wanted = options.get("as", "")
        if not wanted:
            return Form()
        if options.get("g") == "meta.k8s.io" and wanted in forms:
            return Form(wanted, options.get("v", "v1"))
    if kind.custom is not None:
        raise statuses.not_acceptable(_OFFERED, routed=False)
    raise statuses.not_acceptable((*_OFFERED, *(_STREAMED if of_list else ())), routed=True)


def read_body(
    content_type: str, raw: bytes, accepted: tuple[str, ...] = BODY_TYPES
) -> objects.JsonValue:
    """Return the decoded body.

    Raises:
        StatusError: 415 for an unknown format, 400 for a body that cannot be decoded.
    """
    media = content_type.partition(";")[0].strip() or _JSON
    if media == protobuf.PROTOBUF:
        return _read_protobuf(raw, accepted)
    if media not in accepted:
        raise statuses.unsupported_media_type(accepted)
    if media.endswith("yaml"):
        import yaml

        try:
            return yaml.safe_load(raw)
        except yaml.YAMLError as error:
            raise statuses.bad_request(f"error converting YAML to JSON: {error}") from error
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise statuses.bad_request(f"invalid character in the body: {error}") from error


def _read_protobuf(raw: bytes, accepted: tuple[str, ...]) -> objects.JsonValue:
    try:
        return protobuf.decode_protobuf(raw)
    except protobuf.UnreadableProtobuf as error:
        raise statuses.unsupported_media_type(accepted) from error


def read_list_options(query: Mapping[str, str], kind: Kind) -> ListQuery:
    """Return the options of a list or watch.

    Raises:
        StatusError: 400 or 422.
    """
    return ListQuery(
        selection=_selection(query, kind),
        limit=read_number(query, "limit"),
        continue_token=query.get("continue", ""),
        version=query.get("resourceVersion", ""),
        version_match=query.get("resourceVersionMatch", ""),
        bookmarks=read_flag(query, "allowWatchBookmarks"),
        initial_events=(
            read_flag(query, "sendInitialEvents") if "sendInitialEvents" in query else None
        ),
        timeout=read_number(query, "timeoutSeconds") or None,
        include_object=query.get("includeObject", ""),
    )


def is_watch(query: Mapping[str, str]) -> bool:
    """Return whether a GET of a collection is a watch."""
    return read_flag(query, "watch")


def read_flag(query: Mapping[str, str], name: str) -> bool:
    """Return a boolean as upstream reads it: any value is true except `false` and `0`."""
    return name in query and query[name].lower() not in {"false", "0"}


def _selection(query: Mapping[str, str], kind: Kind) -> selectors.Selection:
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    return selectors.Selection(
        labels=selectors.parse_label_selector(labels) if labels else (),
        fields=selectors.parse_field_selector(fields, kind) if fields else (),
        text=f"{labels}\n{fields}" if labels or fields else "",
    )


def read_number(query: Mapping[str, str], name: str) -> int:
    """Return a number; 0 if it is absent.

    Raises:
        StatusError: 400.
    """
    text = query.get(name, "0")
    try:
        return int(text)
    except ValueError as error:
        raise statuses.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from error


def read_version(text: str, *, listing: bool = True) -> int:
    """Return a resourceVersion as a number; 0 if it is empty.

    Raises:
        StatusError: 400; 500 for a watch or a single object, as upstream.
    """
    if text and not text.isdigit():
        why = (
            f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}":'
            " invalid syntax"
        )
        if not listing:
            raise statuses.StatusError(500, "", why)
        raise statuses.bad_request(f"invalid resource version: {why}")
    return int(text or 0)


def check_list_options(options: ListQuery) -> None:
    """Refuse invalid combinations of the options of a list.

    Raises:
        StatusError: 422.
    """
    errors = []
    match = options.version_match
    if match and not options.version:
        text = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        errors.append(statuses.forbidden_field("resourceVersionMatch", text))
    if match and options.continue_token:
        text = "resourceVersionMatch is forbidden when continue is provided"
        errors.append(statuses.forbidden_field("resourceVersionMatch", text))
    if match and match not in {"Exact", "NotOlderThan"}:
        choices = ("Exact", "NotOlderThan", "")
        errors.append(statuses.unsupported_value("resourceVersionMatch", match, choices))
    if match == "Exact" and options.version == "0":
        text = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        errors.append(statuses.forbidden_field("resourceVersionMatch", text))
    if options.initial_events is not None:
        errors.append(
            statuses.forbidden_field("sendInitialEvents", "sendInitialEvents is forbidden for list")
        )
    _refuse_options(errors)


def check_watch_options(options: ListQuery, *, streaming: bool) -> None:
    """Refuse invalid combinations of the options of a watch.

    The rules follow apimachinery's meta/internalversion/validation.

    Args:
        options: The options.
        streaming: Whether this server offers streaming lists.

    Raises:
        StatusError: 422.
    """
    errors = []
    match = options.version_match
    wants = options.initial_events is not None
    if wants and match != "NotOlderThan":
        text = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        errors.append(statuses.forbidden_field("resourceVersionMatch", text))
    if wants and not streaming:
        text = (
            "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
        )
        errors.append(statuses.forbidden_field("sendInitialEvents", text))
    if match and not wants:
        text = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        errors.append(statuses.forbidden_field("resourceVersionMatch", text))
    if match and match != "NotOlderThan":
        errors.append(statuses.unsupported_value("resourceVersionMatch", match, ("NotOlderThan",)))
    if match and options.continue_token:
        text = "resourceVersionMatch is forbidden when continue is provided"
        errors.append(statuses.forbidden_field("resourceVersionMatch", text))
    _refuse_options(errors)


def _refuse_options(errors: list[Any]) -> None:
    if errors:
        raise statuses.invalid("ListOptions", "meta.k8s.io", "", errors)
