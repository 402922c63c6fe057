"""The token subresource of service accounts."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from navarchos.testing.apiserver.access.tokens import AUDIENCE
from navarchos.testing.apiserver.objects import JsonObject, JsonValue, dig, meta, timestamp
from navarchos.testing.apiserver.status import (
    ResourceName,
    bad_request,
    conflict,
    invalid,
    invalid_value,
    not_found,
)
from navarchos.testing.apiserver.store import BucketId, Entry, entry_key
from navarchos.testing.apiserver.writing import Api, Options

__all__ = ["request_token"]

_GROUP: Final = "authentication.k8s.io"
_KIND: Final = "TokenRequest"
_ACCOUNTS: Final = BucketId("serviceaccounts", "")
_NODES: Final = BucketId("nodes", "")
_BINDABLE: Final = {
    "Pod": BucketId("pods", ""),
    "Secret": BucketId("secrets", ""),
    "Node": _NODES,
}
_LIFETIME: Final = 3600
_SHORTEST: Final = 600
_LONGEST: Final = 1 << 32


def request_token(
    api: Api, namespace: str, name: str, body: JsonValue, options: Options
) -> JsonObject:
    """Give out a token of a service account; returns the `TokenRequest` with it.

    Raises:
        StatusError: 404, 409 for another uid, 422 for a lifetime that cannot be; 400
            for an object that tokens do not end with.
    """
    if not isinstance(body, dict) or body.get("kind", _KIND) != _KIND:
        raise bad_request(f"expected a {_KIND}")
    spec: dict[str, Any] = body.get("spec") or {}
    _check_names(namespace, name, meta(body))
    account = api.store.get(_ACCOUNTS, entry_key(namespace, name))
    if account is None:
        raise not_found(ResourceName("", "serviceaccounts"), name)
    _check_uid(account, meta(body))
    lifetime = spec.get("expirationSeconds")
    lifetime = _LIFETIME if lifetime is None else int(lifetime)
    _check_lifetime(lifetime)
    bound = _bound(api, account, spec.get("boundObjectRef") or {})
    now = datetime.now(UTC)
    audiences = spec.get("audiences") or [AUDIENCE]
    status = {}
    if not options.dry_run:
        token = api.access.tokens.for_account(account, audiences, lifetime, now, bound)
        expires = timestamp(now + timedelta(seconds=lifetime))
        status = {"expirationTimestamp": expires, "token": token}
    return {
        "kind": _KIND,
        "apiVersion": f"{_GROUP}/v1",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": account.uid,
            "creationTimestamp": timestamp(now),
        },
        "spec": {
            "audiences": audiences,
            "expirationSeconds": lifetime,
            "boundObjectRef": spec.get("boundObjectRef"),
        },
        "status": status,
    }


def _check_names(namespace: str, name: str, metadata: JsonObject) -> None:
    for field, meant in (("name", name), ("namespace", namespace)):
        if (given := metadata.get(field)) and given != meant:
            text = f"must match the service account {field} if specified"
            error = invalid_value(f"metadata.{field}", given, text)
            raise invalid(_KIND, _GROUP, name, [error])


def _check_uid(account: Entry, metadata: JsonObject) -> None:
    uid = metadata.get("uid")
    if uid and uid != account.uid:
        why = (
            f"the UID in the token request ({uid}) does not match the UID of the service account"
            f" ({account.uid})"
        )
        raise conflict(ResourceName(_GROUP, _KIND), account.name, why)


def _check_lifetime(seconds: int) -> None:
    text = ""
    if seconds < _SHORTEST:
        text = "may not specify a duration less than 10 minutes"
    elif seconds > _LONGEST:
        text = "may not specify a duration larger than 2^32 seconds"
    if text:
        error = invalid_value("spec.expirationSeconds", seconds, text)
        raise invalid(_KIND, _GROUP, "", [error])


def _bound(api: Api, account: Entry, reference: JsonObject) -> list[tuple[str, Entry]]:
    """Return the objects with which the token is to end, and the node of a pod."""
    if not reference:
        return []
    kind, name = reference.get("kind") or "", reference.get("name") or ""
    group, _, version = (reference.get("apiVersion") or "").rpartition("/")
    if group or kind not in _BINDABLE:
        shown = f"{group}/{version}, Kind={kind}"
        raise bad_request(f"cannot bind token to object of type {shown}")
    key = entry_key("" if kind == "Node" else account.namespace, name)
    found = api.store.get(_BINDABLE[kind], key)
    if found is None:
        raise not_found(ResourceName("", _BINDABLE[kind].plural), name)
    uid = reference.get("uid")
    if uid and uid != found.uid:
        why = (
            f"the UID in the bound object reference ({uid}) does not match the UID in record. The"
            " object might have been deleted and then recreated"
        )
        raise conflict(ResourceName("", kind), name, why)
    if kind != "Pod":
        return [(kind.lower(), found)]
    if dig(found.obj, "spec", "serviceAccountName") != account.name:
        raise bad_request(
            f'cannot bind token for serviceaccount "{account.name}" to pod running with different'
            " serviceaccount name."
        )
    node = api.store.get(_NODES, dig(found.obj, "spec", "nodeName", default=""))
    return [("pod", found), *([("node", node)] if node is not None else [])]
