"""Routing: from the method and the path of a request to its handler."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from navarchos.testing.apiserver import (
    binding,
    bodies,
    discovery,
    eviction,
    kinds,
    objects,
    patches,
    proxy_subresources,
    reads,
    requests,
    store,
    watches,
    writes,
)
from navarchos.testing.apiserver import status as statuses
from navarchos.testing.apiserver.access.reviews import review
from navarchos.testing.apiserver.access.rules import selected_name
from navarchos.testing.apiserver.apply import apply, read_configuration
from navarchos.testing.apiserver.deletion import DeleteOptions, delete, read_delete_options
from navarchos.testing.apiserver.scale import apply_scale, read_scale, write_scale

__all__ = ["ApiCall", "open_watch", "read_eviction", "route", "serve", "watch_head"]

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
class ApiCall:
    """The verb of a request and its object.

    Attributes:
        verb: The verb, as in RBAC; `evict` for an eviction.
        target: `None` for paths that are not resources, such as discovery and health.
        selected: The name to which a field selector limits a request on a collection.
    """

    verb: str
    target: requests.Target | None = None
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
        except statuses.StatusError as refusal:
            refusal.warnings = [*self.warnings, *refusal.warnings]
            raise


def route(api: writes.Api, request: requests.Request) -> ApiCall:
    """Return the verb of a request and its object.

    Raises:
        StatusError: 404 or 405.
    """
    target = (
        None
        if proxy_subresources.is_proxied(request.path)
        else requests.parse_target(request.path, api.kinds)
    )
    if target is None:
        return ApiCall(request.method.lower())
    verb = _verb(request, target)
    if not verb or (verb not in target.kind.verbs and verb != "evict"):
        raise statuses.method_not_allowed()
    return ApiCall(verb, target, "" if target.name else selected_name(request.query))


def _verb(request: requests.Request, target: requests.Target) -> str:
    if target.subresource in _WRITE_ONLY:
        method, verb = _WRITE_ONLY[target.subresource]
        return verb if request.method == method else ""
    if target.name:
        return {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}.get(
            request.method, ""
        )
    if request.method == "GET":
        return "watch" if requests.is_watch(request.query) else "list"
    return {"POST": "create", "DELETE": "deletecollection"}.get(request.method, "")


def serve(api: writes.Api, call: ApiCall, request: requests.Request) -> requests.ApiResponse:
    """Return the response to any request but a watch.

    Raises:
        StatusError: The request is refused.
    """
    if call.target is None:
        return _serve_path(api, request)
    with call.warned():
        answer = _VERBS[call.verb](api, call.target, request)
    return requests.with_warnings(answer, call.warnings)


def open_watch(
    api: writes.Api, call: ApiCall, request: requests.Request, *, streaming: bool
) -> watches.WatchLines:
    """Return the lines of a watch.

    Raises:
        StatusError: The request is refused; the watch does not begin.
    """
    target = call.target
    assert target is not None
    with call.warned():
        options = requests.read_list_options(request.query, target.kind)
        form = requests.negotiate(
            request.accept, kind=target.kind, forms=_OBJECT_FORMS, of_list=True
        )
        return watches.WatchLines(api, target, options, form, streaming=streaming)


def watch_head(call: ApiCall) -> requests.ApiResponse:
    """Return the response to a watch without its body."""
    return requests.with_warnings(requests.ApiResponse(200, b""), call.warnings)


def _serve_path(api: writes.Api, request: requests.Request) -> requests.ApiResponse:
    if proxy_subresources.is_proxied(request.path):
        return proxy_subresources.serve_proxied(api, request.method, request.path, request.query)
    path = request.path.rstrip("/") or "/"
    if (
        path in _HEALTH
        or path.partition("/")[0] in _HEALTH
        or path.startswith(("/readyz/", "/livez/"))
    ):
        return requests.ApiResponse(200, b"ok", "text/plain; charset=utf-8")
    if path == "/version":
        return requests.json_response(discovery.VERSION)
    answer = discovery.discover(path, request.accept, api.kinds) or discovery.openapi(
        path, api.kinds
    )
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
        return requests.json_response({"paths": paths})
    return requests.ApiResponse(404, b"404 page not found\n", "text/plain; charset=utf-8")


def _serve_get(
    api: writes.Api, target: requests.Target, request: requests.Request
) -> requests.ApiResponse:
    if target.subresource == "scale":
        return requests.json_response(read_scale(api, target))
    form = requests.negotiate(request.accept, kind=target.kind, forms=_OBJECT_FORMS)
    query = request.query
    return reads.get(
        api, target, query.get("resourceVersion", ""), form, query.get("includeObject", "")
    )


def _serve_list(
    api: writes.Api, target: requests.Target, request: requests.Request
) -> requests.ApiResponse:
    form = requests.negotiate(request.accept, kind=target.kind, forms=_LIST_FORMS, of_list=True)
    return reads.list_objects(
        api, target, requests.read_list_options(request.query, target.kind), form
    )


def _serve_create(
    api: writes.Api, target: requests.Target, request: requests.Request
) -> requests.ApiResponse:
    kind = target.kind
    options = bodies.read_write_options(request, "create")
    body = requests.read_body(request.content_type, request.body)
    if target.subresource == "binding":
        return requests.json_response(binding.bind(api, target, body, options), 201)
    if target.subresource == "token":
        tokens = api.access.tokens
        found = tokens.request(target.namespace, target.name, body, dry_run=options.dry_run)
        return requests.json_response(found, 201)
    if target.kind.group.startswith(("authentication.", "authorization.")):
        return requests.json_response(
            review(api.access, kind, target.namespace, body, request.user), 201
        )
    if kind.namespaced and not target.namespace:
        raise statuses.method_not_allowed()
    form = requests.negotiate(request.accept, kind=target.kind, forms=_OBJECT_FORMS)
    entry = writes.create(api, kind, target.namespace, body, options)
    return _written_response(kind, entry, form, options, 201)


def read_eviction(request: requests.Request) -> tuple[objects.JsonValue, bodies.WriteOptions]:
    """Return the body and the options of an eviction.

    Raises:
        StatusError: 400, 415 or 422.
    """
    return requests.read_body(request.content_type, request.body), bodies.read_write_options(
        request, "evict"
    )


def _serve_evict(
    api: writes.Api, target: requests.Target, request: requests.Request
) -> requests.ApiResponse:
    body, options = read_eviction(request)
    answer = eviction.evict(api, target, body, options)
    return requests.with_warnings(requests.json_response(answer, 201), options.warnings)


def _serve_update(
    api: writes.Api, target: requests.Target, request: requests.Request
) -> requests.ApiResponse:
    options = bodies.read_write_options(request, "update")
    body = requests.read_body(request.content_type, request.body)
    if target.subresource == "scale":
        scale = write_scale(api, target, lambda _: body, options)
        return requests.with_warnings(requests.json_response(scale), options.warnings)
    form = requests.negotiate(request.accept, kind=target.kind, forms=_OBJECT_FORMS)
    entry, created = writes.replace(api, target, body, options)
    return _written_response(target.kind, entry, form, options, 201 if created else 200)


def _serve_patch(
    api: writes.Api, target: requests.Target, request: requests.Request
) -> requests.ApiResponse:
    kind = target.kind
    media = request.content_type.partition(";")[0].strip()
    _check_patch_format(kind, media)
    options = bodies.read_write_options(request, "patch", applying=media == patches.APPLY_PATCH)
    options.patching = True
    if media == patches.APPLY_PATCH:
        return _serve_apply(api, target, request, options)
    change = _patch(kind, request, scaling=target.subresource == "scale")
    if target.subresource == "scale":
        scale = write_scale(api, target, change, options)
        return requests.with_warnings(requests.json_response(scale), options.warnings)
    form = requests.negotiate(request.accept, kind=target.kind, forms=_OBJECT_FORMS)
    entry = writes.modify(api, target, change, options)
    return _written_response(kind, entry, form, options, 200)


def _serve_apply(
    api: writes.Api,
    target: requests.Target,
    request: requests.Request,
    options: bodies.WriteOptions,
) -> requests.ApiResponse:
    form = requests.negotiate(request.accept, kind=target.kind, forms=_OBJECT_FORMS)
    config = read_configuration(request.body, options)
    force = requests.read_flag(request.query, "force")
    if target.subresource == "scale":
        answer = requests.json_response(apply_scale(api, target, config, options, force=force))
        return requests.with_warnings(answer, options.warnings)
    entry, created = apply(api, target, config, options, force=force)
    return _written_response(target.kind, entry, form, options, 201 if created else 200)


def _check_patch_format(kind: kinds.Kind, media: str) -> None:
    if kind.custom is None:
        if media not in {
            patches.JSON_PATCH,
            patches.MERGE_PATCH,
            patches.STRATEGIC_PATCH,
            patches.APPLY_PATCH,
        }:
            raise statuses.unsupported_by_router()
    elif media not in {patches.JSON_PATCH, patches.MERGE_PATCH, patches.APPLY_PATCH}:
        raise statuses.unsupported_media_type(
            (patches.JSON_PATCH, patches.MERGE_PATCH, patches.APPLY_PATCH)
        )


def _patch(
    kind: kinds.Kind, request: requests.Request, *, scaling: bool
) -> Callable[[objects.JsonObject], objects.JsonValue]:
    media = request.content_type.partition(";")[0].strip()
    patch = requests.read_body("application/json", request.body)
    if media == patches.JSON_PATCH:
        return lambda obj: patches.apply_json_patch(obj, patch)
    if not isinstance(patch, dict):
        raise statuses.bad_request(
            "error decoding patch: json: cannot unmarshal into Go value of type"
            " map[string]interface {}"
        )
    if media == patches.MERGE_PATCH or scaling:
        return lambda obj: patches.apply_merge_patch(obj, patch)
    return lambda obj: patches.apply_strategic_patch(obj, patch, kind.schema)


def _serve_delete(
    api: writes.Api, target: requests.Target, request: requests.Request
) -> requests.ApiResponse:
    if target.subresource:
        raise statuses.method_not_allowed()
    form = requests.negotiate(request.accept, kind=target.kind, forms=_OBJECT_FORMS)
    deletion = read_delete_options(request.content_type, request.body, request.query)
    warnings = _deletion_warnings(target.kind, deletion)
    try:
        answer = _delete(api, target, deletion, form, _deletion_options(request, "delete"))
    except statuses.StatusError as refusal:
        refusal.warnings += warnings
        raise
    return requests.with_warnings(answer, warnings)


def _deletion_options(request: requests.Request, verb: str) -> bodies.WriteOptions:
    return bodies.WriteOptions(origin=store.Origin(verb, request.user_agent), user=request.user)


def _deletion_warnings(kind: kinds.Kind, deletion: DeleteOptions) -> list[str]:
    unsaid = not deletion.policy and not deletion.legacy_cascade
    return [_JOB_PODS_WARNING] if unsaid and (kind.plural, kind.group) == ("jobs", "batch") else []


def _delete(
    api: writes.Api,
    target: requests.Target,
    deletion: DeleteOptions,
    form: requests.Form,
    options: bodies.WriteOptions,
) -> requests.ApiResponse:
    kind = target.kind
    entry, gone = delete(api, target, deletion, options)
    if gone and not kind.strategy.returns_deleted:
        return requests.json_response(_deleted(kind, entry))
    status = 202 if not gone and deletion.legacy_cascade else 200
    return reads.object_response(kind, entry, form, status=status)


def _deleted(kind: kinds.Kind, entry: store.Entry) -> objects.JsonObject:
    details: objects.JsonObject = {"name": entry.name}
    if kind.group:
        details["group"] = kind.group
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {**details, "kind": kind.plural, "uid": entry.uid},
    }


def _serve_delete_collection(
    api: writes.Api, target: requests.Target, request: requests.Request
) -> requests.ApiResponse:
    kind = target.kind
    form = requests.negotiate(request.accept, kind=kind, forms=_LIST_FORMS, of_list=True)
    listing = requests.read_list_options(request.query, kind)
    requests.check_list_options(listing)
    deletion = read_delete_options(request.content_type, request.body, request.query)
    options = _deletion_options(request, "deletecollection")
    with api.store.transaction():
        page, metadata = reads.find_page(api, target, listing)
        for entry in page:
            if api.store.get(kind.bucket, entry.key) is not None:  # a page may be of an old version
                found = requests.Target(kind, entry.namespace, entry.name)
                delete(api, found, deletion, options)
    return reads.list_response(kind, page, metadata, form, listing.include_object)


def _written_response(
    kind: kinds.Kind,
    entry: store.Entry,
    form: requests.Form,
    options: bodies.WriteOptions,
    status: int,
) -> requests.ApiResponse:
    answer = reads.object_response(kind, entry, form, status=status)
    return requests.with_warnings(answer, options.warnings)


_VERBS: Final[
    Mapping[str, Callable[[writes.Api, requests.Target, requests.Request], requests.ApiResponse]]
] = {
    "get": _serve_get,
    "list": _serve_list,
    "create": _serve_create,
    "evict": _serve_evict,
    "update": _serve_update,
    "patch": _serve_patch,
    "delete": _serve_delete,
    "deletecollection": _serve_delete_collection,
}
