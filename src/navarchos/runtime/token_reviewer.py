"""Authorization of HTTP requests by the API server (TokenReview, SubjectAccessReview).

After controller-runtime's pkg/metrics/filters, which kubebuilder's projects use, and the
delegating authenticator and authorizer of k8s.io/apiserver, which it uses.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from navarchos.client import Client, ClientError, Resource
from navarchos.client.rbac import ACCESS_REVIEWS, PolicyRule
from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.logs import get_logger
from navarchos.meta import Object
from navarchos.runtime.httpserver import HttpResponse

__all__ = ["RBAC", "TokenReviewer"]

V = TypeVar("V")

_log = get_logger(__name__)

_REQUEST_LIMIT: Final = 10.0
_USER_TTL: Final = 60.0
_ALLOWED_TTL: Final = 300.0
_DENIED_TTL: Final = 30.0
_MAX_ENTRIES: Final = 1024


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


class _ReviewStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _User = _User()


class _TokenReview(Object, frozen=True):
    status: _ReviewStatus = _ReviewStatus()


_TOKEN_REVIEWS: Final = Resource(
    "authentication.k8s.io",
    "v1",
    "tokenreviews",
    "TokenReview",
    namespaced=False,
    type=_TokenReview,
)

RBAC: Final = (PolicyRule(_TOKEN_REVIEWS, ("create",)), PolicyRule(ACCESS_REVIEWS, ("create",)))
"""The permissions that a `TokenReviewer` needs."""


class TokenReviewer:
    """Admits clients that may `get` the requested path as a `nonResourceURL`.

    Promises: a client passes only after the API server has allowed it. Without a token, or
    with an unknown token, the response is 401; without the permission, 403; when the API server
    does not answer, 500 and a line in the log. Answers are cached: the user of a token for 60 s,
    "allowed" for 300 s, "denied" for 30 s; failures are not cached. Tokens are not stored, only
    their SHA-256.

    Does not promise: one review only for concurrent requests with the same token.

    Threads: safe from any thread.

    Args:
        client: Sends the reviews; not fenced, because a follower is scraped, too.
        clock: Time.
    """

    def __init__(self, client: Client, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._tokens = client.resource(_TOKEN_REVIEWS)
        self._accesses = client.resource(ACCESS_REVIEWS)
        self._users: _ReviewCache[_User | None] = _ReviewCache(clock)
        self._answers: _ReviewCache[bool] = _ReviewCache(clock)

    def guard(self, path: str, authorization: str) -> HttpResponse | None:
        """Return the refusal, or `None` for an allowed request.

        Args:
            path: The requested path.
            authorization: The header `Authorization`; empty if it is missing.
        """
        token = _bearer(authorization)
        if not token:
            return _unauthorized()
        try:
            user = self._user(token)
        except ClientError as error:
            _log.error("access_review_failed", path=path, error=str(error))
            return HttpResponse.text(500, "Authentication failed\n")
        if user is None:
            return _unauthorized()
        try:
            allowed = self._is_allowed(user, path)
        except ClientError as error:
            _log.error("access_review_failed", path=path, user=user.username, error=str(error))
            return HttpResponse.text(500, f"Authorization for user {user.username} failed\n")
        if allowed:
            return None
        return HttpResponse.text(403, f"Authorization denied for user {user.username}\n")

    def _user(self, token: str) -> _User | None:
        key = hashlib.sha256(token.encode()).digest()
        known = self._users.find(key)
        if known is not None:
            return known.value
        review = {"spec": {"token": token}}
        status = self._tokens.create(review, timeout=_REQUEST_LIMIT).status
        # controller-runtime answers 500 if the review has an error. But the API server sets an
        # error for every unknown token, and the client must learn that its token is unknown.
        user = status.user if status.authenticated else None
        return self._users.store(key, user, _USER_TTL)

    def _is_allowed(self, user: _User, path: str) -> bool:
        key = msgspec.json.encode((user, path))
        known = self._answers.find(key)
        if known is not None:
            return known.value
        spec: dict[str, Any] = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "nonResourceAttributes": {"path": path, "verb": "get"},
        }
        status = self._accesses.create(
            {"metadata": {}, "spec": spec}, timeout=_REQUEST_LIMIT
        ).status
        seconds = _ALLOWED_TTL if status.allowed else _DENIED_TTL
        return self._answers.store(key, status.allowed, seconds)


class _CachedReview(msgspec.Struct, Generic[V], frozen=True):
    value: V
    until: float


class _ReviewCache(Generic[V]):
    """Keeps the latest reviews until they expire."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known_lock = threading.Lock()
        self._known: OrderedDict[Hashable, _CachedReview[V]] = (
            OrderedDict()
        )  # guarded by _known_lock

    def find(self, key: Hashable) -> _CachedReview[V] | None:
        with self._known_lock:
            known = self._known.get(key)
        return known if known is not None and self._clock.monotonic() < known.until else None

    def store(self, key: Hashable, value: V, seconds: float) -> V:
        with self._known_lock:
            self._known[key] = _CachedReview(value, self._clock.monotonic() + seconds)
            self._known.move_to_end(key)
            # Any client may send invented tokens, which must not fill the memory.
            if len(self._known) > _MAX_ENTRIES:
                self._known.popitem(last=False)
        return value


def _bearer(authorization: str) -> str:
    scheme, _, token = authorization.strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _unauthorized() -> HttpResponse:
    return HttpResponse.text(401, "Unauthorized\n", {"WWW-Authenticate": "Bearer"})
