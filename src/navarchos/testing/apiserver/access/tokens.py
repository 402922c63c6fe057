"""Bearer tokens of users and of service accounts, and the token subresource."""

import hmac
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from navarchos.testing.apiserver import objects
from navarchos.testing.apiserver import status as statuses
from navarchos.testing.apiserver.access import users
from navarchos.testing.apiserver.store import BucketId, Entry, ObjectStore, entry_key

__all__ = ["AUDIENCE", "InvalidToken", "Tokens"]

AUDIENCE: Final = "https://kubernetes.default.svc.cluster.local"
"""The audience of tokens by default, which is this server; also their issuer."""

_ACCOUNTS: Final = BucketId("serviceaccounts", "")
_GROUP: Final = "authentication.k8s.io"
_KIND: Final = "TokenRequest"
_NODES: Final = BucketId("nodes", "")
_BINDABLE: Final = {
    "Pod": BucketId("pods", ""),
    "Secret": BucketId("secrets", ""),
    "Node": _NODES,
}
_DEFAULT_LIFETIME: Final = 3600
_MIN_LIFETIME: Final = 600
_MAX_LIFETIME: Final = 1 << 32
_UNKNOWN: Final = "invalid bearer token"
_INVALIDATED: Final = "service account token has been invalidated"


class InvalidToken(Exception):
    """A token that is not valid; the text is the error of a `TokenReview`."""


class Tokens:
    """Issues tokens, and verifies them.

    The tokens of service accounts are JSON web tokens with upstream's claims. They are signed with
    a secret key (HS256), so only this server can verify them.

    Threads: safe from any thread.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._secret = secrets.token_bytes(32)
        self._users: dict[str, users.User] = {}

    def for_user(self, user: users.User) -> str:
        """Return the token of a user; always the same one."""
        signature = self._sign(objects.encode([user.name, *user.groups]))
        token = f"user-{signature}"
        self._users[token] = user
        return token

    def for_account(
        self,
        account: Entry,
        audiences: Sequence[str],
        lifetime: int,
        now: datetime,
        bound: Sequence[tuple[str, Entry]] = (),
    ) -> str:
        """Return a new token of a service account.

        Args:
            account: The service account.
            audiences: The audiences of the token.
            lifetime: Seconds until the token expires.
            now: The time of issue.
            bound: The objects whose deletion invalidates the token, each with its kind in lower
                case.
        """
        issued = int(now.timestamp())
        private: objects.JsonObject = {
            "namespace": account.namespace,
            **{kind: {"name": found.name, "uid": found.uid} for kind, found in bound},
            "serviceaccount": {"name": account.name, "uid": account.uid},
        }
        claims = {
            "aud": list(audiences),
            "exp": issued + lifetime,
            "iat": issued,
            "iss": AUDIENCE,
            "jti": objects.new_uid(),
            "kubernetes.io": private,
            "nbf": issued,
            "sub": users.account_name(account.namespace, account.name),
        }
        content = f"{_encoded({'alg': 'HS256', 'typ': 'JWT'})}.{_encoded(claims)}"
        return f"{content}.{self._sign(content.encode())}"

    def request(
        self, namespace: str, name: str, body: objects.JsonValue, *, dry_run: bool = False
    ) -> objects.JsonObject:
        """Issue a token of a service account; return the `TokenRequest` with the token.

        Raises:
            StatusError: 404 for an unknown account, 409 for a different uid, 422 for an invalid
                lifetime, 400 for a kind of object that tokens cannot be bound to.
        """
        if not isinstance(body, dict) or body.get("kind", _KIND) != _KIND:
            raise statuses.bad_request(f"expected a {_KIND}")
        spec: dict[str, Any] = body.get("spec") or {}
        _check_names(namespace, name, objects.meta(body))
        account = self._store.get(_ACCOUNTS, entry_key(namespace, name))
        if account is None:
            raise statuses.not_found(statuses.ResourceName("", "serviceaccounts"), name)
        _check_uid(account, objects.meta(body))
        lifetime = spec.get("expirationSeconds")
        lifetime = _DEFAULT_LIFETIME if lifetime is None else int(lifetime)
        _check_lifetime(lifetime)
        bound = _bound_objects(self._store, account, spec.get("boundObjectRef") or {})
        now = datetime.now(UTC)
        audiences = spec.get("audiences") or [AUDIENCE]
        status = {}
        if not dry_run:
            token = self.for_account(account, audiences, lifetime, now, bound)
            expires = objects.timestamp(now + timedelta(seconds=lifetime))
            status = {"expirationTimestamp": expires, "token": token}
        return {
            "kind": _KIND,
            "apiVersion": f"{_GROUP}/v1",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": account.uid,
                "creationTimestamp": objects.timestamp(now),
            },
            "spec": {
                "audiences": audiences,
                "expirationSeconds": lifetime,
                "boundObjectRef": spec.get("boundObjectRef"),
            },
            "status": status,
        }

    def authenticate(
        self, token: str, audiences: Sequence[str] = (AUDIENCE,)
    ) -> tuple[users.User, Sequence[str]]:
        """Return the user of a token, and the part of `audiences` that the token has.

        Raises:
            InvalidToken: This server did not issue the token, or it has expired, or it is for other
                audiences.
        """
        found = self._users.get(token)
        if found is not None:
            return found, audiences
        claims = self._claims(token)
        meant = [audience for audience in claims["aud"] if audience in audiences]
        if not meant:
            raise InvalidToken(
                f"[{_UNKNOWN}, token audiences {_listed(claims['aud'])} is invalid for the target"
                f" audiences {_listed(audiences)}]"
            )
        if datetime.now(UTC) > datetime.fromtimestamp(claims["exp"], UTC) + timedelta(seconds=60):
            raise InvalidToken(f"[{_UNKNOWN}, service account token has expired]")
        return self._account_of(claims), meant

    def _claims(self, token: str) -> dict[str, Any]:
        content, _, signature = token.rpartition(".")
        if not content or not hmac.compare_digest(signature, self._sign(content.encode())):
            raise InvalidToken(_UNKNOWN)
        body = content.partition(".")[2]
        claims: dict[str, Any] = msgspec.json.decode(
            urlsafe_b64decode(body + "=" * (-len(body) % 4))
        )
        return claims

    def _account_of(self, claims: dict[str, Any]) -> users.User:
        private = claims["kubernetes.io"]
        namespace, account = private["namespace"], private["serviceaccount"]
        found = self._store.get(_ACCOUNTS, entry_key(namespace, account["name"]))
        if found is None:
            missing = f'serviceaccounts "{account["name"]}" not found'
            raise InvalidToken(f"[{_UNKNOWN}, {missing}]")
        if found.uid != account["uid"]:
            why = f"service account UID ({found.uid}) does not match claim ({account['uid']})"
            raise InvalidToken(f"[{_UNKNOWN}, {why}]")
        extra: dict[str, tuple[str, ...]] = {
            "authentication.kubernetes.io/credential-id": (f"JTI={claims['jti']}",)
        }
        for kind, bucket in _BINDABLE.items():
            if kind.lower() in private:
                extra |= self._bound_to(kind.lower(), bucket, namespace, private)
        groups = (*users.account_groups(namespace), users.AUTHENTICATED)
        return users.User(claims["sub"], groups, account["uid"], extra)

    def _bound_to(
        self, kind: str, bucket: BucketId, namespace: str, private: dict[str, Any]
    ) -> dict[str, tuple[str, ...]]:
        """Return the extra values of a bound object, which must still exist."""
        claim = private[kind]
        if (
            kind != "node" or "pod" not in private
        ):  # a pod's node is information only, and may be gone
            key = entry_key("" if kind == "node" else namespace, claim["name"])
            found = self._store.get(bucket, key)
            if found is None or found.uid != claim["uid"]:
                raise InvalidToken(f"[{_UNKNOWN}, {_INVALIDATED}]")
            if objects.meta(found.obj).get("deletionTimestamp", "~") < _a_minute_ago():
                raise InvalidToken(f"[{_UNKNOWN}, {_INVALIDATED}]")
        if kind == "secret":
            return {}
        prefix = f"authentication.kubernetes.io/{kind}"
        return {f"{prefix}-name": (claim["name"],), f"{prefix}-uid": (claim["uid"],)}

    def _sign(self, content: bytes) -> str:
        return _text(hmac.digest(self._secret, content, "sha256"))


def _a_minute_ago() -> str:
    return (datetime.now(UTC) - timedelta(seconds=60)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _listed(values: Sequence[str]) -> str:
    return f"[{' '.join(statuses.quote(value) for value in values)}]"


def _encoded(value: objects.JsonObject) -> str:
    return _text(objects.encode(value))


def _text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def _check_names(namespace: str, name: str, metadata: objects.JsonObject) -> None:
    for field, meant in (("name", name), ("namespace", namespace)):
        if (given := metadata.get(field)) and given != meant:
            text = f"must match the service account {field} if specified"
            error = statuses.invalid_value(f"metadata.{field}", given, text)
            raise statuses.invalid(_KIND, _GROUP, name, [error])


def _check_uid(account: Entry, metadata: objects.JsonObject) -> None:
    uid = metadata.get("uid")
    if uid and uid != account.uid:
        why = (
            f"the UID in the token request ({uid}) does not match the UID of the service account"
            f" ({account.uid})"
        )
        raise statuses.conflict(statuses.ResourceName(_GROUP, _KIND), account.name, why)


def _check_lifetime(seconds: int) -> None:
    text = ""
    if seconds < _MIN_LIFETIME:
        text = "may not specify a duration less than 10 minutes"
    elif seconds > _MAX_LIFETIME:
        text = "may not specify a duration larger than 2^32 seconds"
    if text:
        error = statuses.invalid_value("spec.expirationSeconds", seconds, text)
        raise statuses.invalid(_KIND, _GROUP, "", [error])


def _bound_objects(
    store: ObjectStore, account: Entry, reference: objects.JsonObject
) -> list[tuple[str, Entry]]:
    """Return the object that a token is bound to; for a pod also its node."""
    if not reference:
        return []
    kind, name = reference.get("kind") or "", reference.get("name") or ""
    group, _, version = (reference.get("apiVersion") or "").rpartition("/")
    if group or kind not in _BINDABLE:
        shown = f"{group}/{version}, Kind={kind}"
        raise statuses.bad_request(f"cannot bind token to object of type {shown}")
    key = entry_key("" if kind == "Node" else account.namespace, name)
    found = store.get(_BINDABLE[kind], key)
    if found is None:
        raise statuses.not_found(statuses.ResourceName("", _BINDABLE[kind].plural), name)
    uid = reference.get("uid")
    if uid and uid != found.uid:
        why = (
            f"the UID in the bound object reference ({uid}) does not match the UID in record. The"
            " object might have been deleted and then recreated"
        )
        raise statuses.conflict(statuses.ResourceName("", kind), name, why)
    if kind != "Pod":
        return [(kind.lower(), found)]
    if objects.dig(found.obj, "spec", "serviceAccountName") != account.name:
        raise statuses.bad_request(
            f'cannot bind token for serviceaccount "{account.name}" to pod running with different'
            " serviceaccount name."
        )
    node = store.get(_NODES, objects.dig(found.obj, "spec", "nodeName", default=""))
    return [("pod", found), *([("node", node)] if node is not None else [])]
