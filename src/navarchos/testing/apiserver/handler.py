"""Routing: from the method and the path of a request to its handler."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from navarchos.testing.apiserver.access.reviews import review
from navarchos.testing.apiserver.access.rules import selected_name
from navarchos.testing.apiserver.apply import apply, read_configuration
from navarchos.testing.apiserver.binding import bind
from navarchos.testing.apiserver.bodies import WriteOptions, read_write_options
from navarchos.testing.apiserver.deletion import DeleteOptions, delete, read_delete_options
from navarchos.testing.apiserver.discovery import VERSION, discover, openapi
from navarchos.testing.apiserver.eviction import evict
from navarchos.testing.apiserver.kinds import Kind
from navarchos.testing.apiserver.objects import JsonObject, JsonValue
from navarchos.testing.apiserver.patches import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    apply_json_patch,
    apply_merge_patch,
    apply_strategic_patch,
)
from navarchos.testing.apiserver.proxy_subresources import is_proxied, serve_proxied
from navarchos.testing.apiserver.reads import (
    find_page,
    get,
    list_objects,
    list_response,
    object_response,
)
from navarchos.testing.apiserver.requests import (
    Form,
    Request,
    Response,
    Target,
    check_list_options,
    is_watch,
    json_response,
    negotiate,
    parse_target,
    read_body,
    read_flag,
    read_list_options,
    with_warnings,
)
from navarchos.testing.apiserver.scale import apply_scale, read_scale, write_scale
from navarchos.testing.apiserver.status import (
    StatusError,
    bad_request,
    method_not_allowed,
    unsupported_by_router,
    unsupported_media_type,
)
from navarchos.testing.apiserver.store import Entry, Origin
from navarchos.testing.apiserver.watches import WatchLines
from navarchos.testing.apiserver.writes import Api, create, modify, replace

__all__ = ["Call", "open_watch", "read_eviction", "route", "serve", "watch_head"]

_HEALTH: Final = frozenset({"/healthz", "/readyz", "/livez"})
_OBJECT_FORMS: Final = ("Table", "PartialObjectMetadata")
_LIST_FORMS: Final = ("Table", "PartialObjectMetadataList")
_JOB_PODS_WARNING: Final = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to"
    " remove them or set propagationPolicy=Orphan to suppress this warning"
)
# Subresources without reads: their method, and the verb in the audit log.
_WRITE_ONLY: Final = {
    "binding": ("POST", "create"),
    "eviction": ("POST", "evict"),
    "finalize": ("PUT", "update"),
    "token": ("POST", "create"),
}


@dataclass(frozen=True, slots=True)
class Call:
    """The verb of a request and its object.

    Attributes:
        verb: The verb, as in RBAC; `evict` for an eviction.
        target: `None` for paths that are not resources, such as discovery and health.
        selected: The name to which a field selector limits a request on a collection.
    """

    verb: str
    target: Target | None = None
    selected: str = ""

    @property
    def resource(self) -> str:
        """The plural; empty if there is no target."""
        return self.target.kind.plural if self.target else ""

    @property
    def name(self) -> str:
        """The object's name; empty if there is no target."""
        return self.target.name if self.target else ""

    @property
    def warnings(self) -> list[str]:
        """The warnings that every response of this kind has."""
        custom = self.target.kind.custom if self.target else None
        return [custom.deprecation] if custom is not None and custom.deprecation else []

    @contextmanager
    def warned(self) -> Iterator[None]:
        """Add the warnings of the kind to a refusal that is raised in a `with` block."""
        try:
            yield
        except StatusError as refusal:
            refusal.warnings = [*self.warnings, *refusal.warnings]
            raise


def route(api: Api, request: Request) -> Call:
    """Return the verb of a request and its object.

    Raises:
        StatusError: 404 or 405.
    """
    target = None if is_proxied(request.path) else parse_target(request.path, api.kinds)
    if target is None:
        return Call(request.method.lower())
    verb = _verb(request, target)
    if not verb or (verb not in target.kind.verbs and verb != "evict"):
        raise method_not_allowed()
    return Call(verb, target, "" if target.name else selected_name(request.query))


def _verb(request: Request, target: Target) -> str:
    if target.subresource in _WRITE_ONLY:
        method, verb = _WRITE_ONLY[target.subresource]
        return verb if request.method == method else ""
    if target.name:
        return {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}.get(
            request.method, ""
        )
    if request.method == "GET":
        return "watch" if is_watch(request.query) else "list"
    return {"POST": "create", "DELETE": "deletecollection"}.get(request.method, "")


def serve(api: Api, call: Call, request: Request) -> Response:
    """Return the response to any request but a watch.

    Raises:
        StatusError: The request is refused.
    """
    if call.target is None:
        return _serve_path(api, request)
    with call.warned():
        answer = _VERBS[call.verb](api, call.target, request)
    return with_warnings(answer, call.warnings)


def open_watch(api: Api, call: Call, request: Request, *, streaming: bool) -> WatchLines:
    """Return the lines of a watch.

    Raises:
        StatusError: The request is refused; the watch does not begin.
    """
    target = call.target
    assert target is not None
    with call.warned():
        options = read_list_options(request.query, target.kind)
        form = negotiate(request.accept, kind=target.kind, forms=_OBJECT_FORMS, of_list=True)
        return WatchLines(api, target, options, form, streaming=streaming)


def watch_head(call: Call) -> Response:
    """Return the response to a watch without its body."""
    return with_warnings(Response(200, b""), call.warnings)


def _serve_path(api: Api, request: Request) -> Response:
    if is_proxied(request.path):
        return serve_proxied(api, request.method, request.path, request.query)
    path = request.path.rstrip("/") or "/"
    if (
        path in _HEALTH
        or path.partition("/")[0] in _HEALTH
        or path.startswith(("/readyz/", "/livez/"))
    ):
        return Response(200, b"ok", "text/plain; charset=utf-8")
    if path == "/version":
        return json_response(VERSION)
    answer = discover(path, request.accept, api.kinds) or openapi(path, api.kinds)
    if answer is not None and request.method in {"GET", "HEAD"}:
        return answer
    if path == "/":
        paths = [
            "/api",
            "/api/v1",
            "/apis",
            *sorted(_HEALTH),
            "/openapi/v2",
            "/openapi/v3",
            "/version",
        ]
        return json_response({"paths": paths})
    return Response(404, b"404 page not found\n", "text/plain; charset=utf-8")


def _serve_get(api: Api, target: Target, request: Request) -> Response:
    if target.subresource == "scale":
        return json_response(read_scale(api, target))
    form = negotiate(request.accept, kind=target.kind, forms=_OBJECT_FORMS)
    query = request.query
    return get(api, target, query.get("resourceVersion", ""), form, query.get("includeObject", ""))


def _serve_list(api: Api, target: Target, request: Request) -> Response:
    form = negotiate(request.accept, kind=target.kind, forms=_LIST_FORMS, of_list=True)
    return list_objects(api, target, read_list_options(request.query, target.kind), form)


def _serve_create(api: Api, target: Target, request: Request) -> Response:
    kind = target.kind
    options = read_write_options(request, "create")
    body = read_body(request.content_type, request.body)
    if target.subresource == "binding":
        return json_response(bind(api, target, body, options), 201)
    if target.subresource == "token":
        tokens = api.access.tokens
        found = tokens.request(target.namespace, target.name, body, dry_run=options.dry_run)
        return json_response(found, 201)
    if target.kind.group.startswith(("authentication.", "authorization.")):
        return json_response(review(api.access, kind, target.namespace, body, request.user), 201)
    if kind.namespaced and not target.namespace:
        raise method_not_allowed()
    form = negotiate(request.accept, kind=target.kind, forms=_OBJECT_FORMS)
    entry = create(api, kind, target.namespace, body, options)
    return _written_response(kind, entry, form, options, 201)


def read_eviction(request: Request) -> tuple[JsonValue, WriteOptions]:
    """Return the body and the options of an eviction.

    Raises:
        StatusError: 400, 415 or 422.
    """
    return read_body(request.content_type, request.body), read_write_options(request, "evict")


def _serve_evict(api: Api, target: Target, request: Request) -> Response:
    body, options = read_eviction(request)
    answer = evict(api, target, body, options)
    return with_warnings(json_response(answer, 201), options.warnings)


def _serve_update(api: Api, target: Target, request: Request) -> Response:
    options = read_write_options(request, "update")
    body = read_body(request.content_type, request.body)
    if target.subresource == "scale":
        scale = write_scale(api, target, lambda _: body, options)
        return with_warnings(json_response(scale), options.warnings)
    form = negotiate(request.accept, kind=target.kind, forms=_OBJECT_FORMS)
    entry, created = replace(api, target, body, options)
    return _written_response(target.kind, entry, form, options, 201 if created else 200)


def _serve_patch(api: Api, target: Target, request: Request) -> Response:
    kind = target.kind
    media = request.content_type.partition(";")[0].strip()
    _check_patch_format(kind, media)
    options = read_write_options(request, "patch", applying=media == APPLY_PATCH)
    options.patching = True
    if media == APPLY_PATCH:
        return _serve_apply(api, target, request, options)
    change = _patch(kind, request, scaling=target.subresource == "scale")
    if target.subresource == "scale":
        scale = write_scale(api, target, change, options)
        return with_warnings(json_response(scale), options.warnings)
    form = negotiate(request.accept, kind=target.kind, forms=_OBJECT_FORMS)
    entry = modify(api, target, change, options)
    return _written_response(kind, entry, form, options, 200)


def _serve_apply(api: Api, target: Target, request: Request, options: WriteOptions) -> Response:
    form = negotiate(request.accept, kind=target.kind, forms=_OBJECT_FORMS)
    config = read_configuration(request.body, options)
    force = read_flag(request.query, "force")
    if target.subresource == "scale":
        answer = json_response(apply_scale(api, target, config, options, force=force))
        return with_warnings(answer, options.warnings)
    entry, created = apply(api, target, config, options, force=force)
    return _written_response(target.kind, entry, form, options, 201 if created else 200)


def _check_patch_format(kind: Kind, media: str) -> None:
    if kind.custom is None:
        if media not in {JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH}:
            raise unsupported_by_router()
    elif media not in {JSON_PATCH, MERGE_PATCH, APPLY_PATCH}:
        raise unsupported_media_type((JSON_PATCH, MERGE_PATCH, APPLY_PATCH))


def _patch(kind: Kind, request: Request, *, scaling: bool) -> Callable[[JsonObject], JsonValue]:
    media = request.content_type.partition(";")[0].strip()
    patch = read_body("application/json", request.body)
    if media == JSON_PATCH:
        return lambda obj: apply_json_patch(obj, patch)
    if not isinstance(patch, dict):
        raise bad_request(
            "error decoding patch: json: cannot unmarshal into Go value of type"
            " map[string]interface {}"
        )
    if media == MERGE_PATCH or scaling:
        return lambda obj: apply_merge_patch(obj, patch)
    return lambda obj: apply_strategic_patch(obj, patch, kind.schema)


def _serve_delete(api: Api, target: Target, request: Request) -> Response:
    if target.subresource:
        raise method_not_allowed()
    form = negotiate(request.accept, kind=target.kind, forms=_OBJECT_FORMS)
    deletion = read_delete_options(request.content_type, request.body, request.query)
    warnings = _deletion_warnings(target.kind, deletion)
    try:
        answer = _delete(api, target, deletion, form, _deletion_options(request, "delete"))
    except StatusError as refusal:
        refusal.warnings += warnings
        raise
    return with_warnings(answer, warnings)


def _deletion_options(request: Request, verb: str) -> WriteOptions:
    return WriteOptions(origin=Origin(verb, request.user_agent), user=request.user)


def _deletion_warnings(kind: Kind, deletion: DeleteOptions) -> list[str]:
    unsaid = not deletion.policy and not deletion.legacy_cascade
    return [_JOB_PODS_WARNING] if unsaid and (kind.plural, kind.group) == ("jobs", "batch") else []


def _delete(
    api: Api, target: Target, deletion: DeleteOptions, form: Form, options: WriteOptions
) -> Response:
    kind = target.kind
    entry, gone = delete(api, target, deletion, options)
    if gone and not kind.strategy.returns_deleted:
        return json_response(_deleted(kind, entry))
    status = 202 if not gone and deletion.legacy_cascade else 200
    return object_response(kind, entry, form, status=status)


def _deleted(kind: Kind, entry: Entry) -> JsonObject:
    details: JsonObject = {"name": entry.name}
    if kind.group:
        details["group"] = kind.group
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {**details, "kind": kind.plural, "uid": entry.uid},
    }


def _serve_delete_collection(api: Api, target: Target, request: Request) -> Response:
    kind = target.kind
    form = negotiate(request.accept, kind=kind, forms=_LIST_FORMS, of_list=True)
    listing = read_list_options(request.query, kind)
    check_list_options(listing)
    deletion = read_delete_options(request.content_type, request.body, request.query)
    options = _deletion_options(request, "deletecollection")
    with api.store.transaction():
        page, metadata = find_page(api, target, listing)
        for entry in page:
            if api.store.get(kind.bucket, entry.key) is not None:  # a page may be of an old version
                found = Target(kind, entry.namespace, entry.name)
                delete(api, found, deletion, options)
    return list_response(kind, page, metadata, form, listing.include_object)


def _written_response(
    kind: Kind, entry: Entry, form: Form, options: WriteOptions, status: int
) -> Response:
    answer = object_response(kind, entry, form, status=status)
    return with_warnings(answer, options.warnings)


_VERBS: Final[Mapping[str, Callable[[Api, Target, Request], Response]]] = {
    "get": _serve_get,
    "list": _serve_list,
    "create": _serve_create,
    "evict": _serve_evict,
    "update": _serve_update,
    "patch": _serve_patch,
    "delete": _serve_delete,
    "deletecollection": _serve_delete_collection,
}
