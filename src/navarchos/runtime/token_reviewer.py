"""Who may look at a page of ours: the API server says (TokenReview, SubjectAccessReview).

After controller-runtime's pkg/metrics/filters, which kubebuilder's projects use, and the
delegating authenticator and authorizer of k8s.io/apiserver under it.
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
_WHO_FOR: Final = 60.0
_ALLOWED_FOR: Final = 300.0
_DENIED_FOR: Final = 30.0
_REMEMBERED: Final = 1024


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _User = _User()


class _TokenReview(Object, frozen=True):
    status: _TokenStatus = _TokenStatus()


_TOKEN_REVIEWS: Final = Resource(
    "authentication.k8s.io",
    "v1",
    "tokenreviews",
    "TokenReview",
    namespaced=False,
    type=_TokenReview,
)

RBAC: Final = (PolicyRule(_TOKEN_REVIEWS, ("create",)), PolicyRule(ACCESS_REVIEWS, ("create",)))
"""What a `TokenReviewer` asks of the server."""


class TokenReviewer:
    """Lets those look at a page who may `get` its path as a `nonResourceURL`.

    Promises: nobody passes whom the server did not let pass: no answer is no. Without a
    token, or with one that the server does not know, 401; without the right, 403; when
    the server cannot be asked, 500 and a line in the log. Answers are remembered: who a
    token is for a minute, a yes for five, a no for half of one; failures are not. Tokens
    themselves are not kept, but their SHA-256.

    Does not promise: that requests which come together with the same token ask once.

    Threads: safe from any thread.

    Args:
        client: Asks; without a fence, as a standby is looked at, too.
        clock: Time.
    """

    def __init__(self, client: Client, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._tokens = client.resource(_TOKEN_REVIEWS)
        self._accesses = client.resource(ACCESS_REVIEWS)
        self._users: _Memory[_User | None] = _Memory(clock)
        self._answers: _Memory[bool] = _Memory(clock)

    def guard(self, path: str, authorization: str) -> HttpResponse | None:
        """Return the refusal, or `None` for a request that may be answered.

        Args:
            path: The path that was asked for.
            authorization: The header of that name; empty without one.
        """
        token = _bearer(authorization)
        if not token:
            return _unauthorized()
        try:
            user = self._user(token)
        except ClientError as error:
            _log.error("access_not_reviewed", path=path, error=str(error))
            return HttpResponse.text(500, "Authentication failed\n")
        if user is None:
            return _unauthorized()
        try:
            allowed = self._is_allowed(user, path)
        except ClientError as error:
            _log.error("access_not_reviewed", path=path, user=user.username, error=str(error))
            return HttpResponse.text(500, f"Authorization for user {user.username} failed\n")
        if allowed:
            return None
        return HttpResponse.text(403, f"Authorization denied for user {user.username}\n")

    def _user(self, token: str) -> _User | None:
        key = hashlib.sha256(token.encode()).digest()
        known = self._users.recall(key)
        if known is not None:
            return known.value
        review = {"spec": {"token": token}}
        status = self._tokens.create(review, timeout=_REQUEST_LIMIT).status
        # Upstream calls an error in the answer its own failure (500). It is what the server
        # says of each token that it does not know, and the one who sent it has to hear so.
        user = status.user if status.authenticated else None
        return self._users.keep(key, user, _WHO_FOR)

    def _is_allowed(self, user: _User, path: str) -> bool:
        key = msgspec.json.encode((user, path))
        known = self._answers.recall(key)
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
        seconds = _ALLOWED_FOR if status.allowed else _DENIED_FOR
        return self._answers.keep(key, status.allowed, seconds)


class _Known(msgspec.Struct, Generic[V], frozen=True):
    value: V
    until: float


class _Memory(Generic[V]):
    """Answers for a while; of many, the latest."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known_lock = threading.Lock()
        self._known: OrderedDict[Hashable, _Known[V]] = OrderedDict()  # guarded by _known_lock

    def recall(self, key: Hashable) -> _Known[V] | None:
        with self._known_lock:
            known = self._known.get(key)
        return known if known is not None and self._clock.monotonic() < known.until else None

    def keep(self, key: Hashable, value: V, seconds: float) -> V:
        with self._known_lock:
            self._known[key] = _Known(value, self._clock.monotonic() + seconds)
            self._known.move_to_end(key)
            # Anybody may send tokens: what is made up must not fill the memory.
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return value


def _bearer(authorization: str) -> str:
    scheme, _, token = authorization.strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _unauthorized() -> HttpResponse:
    return HttpResponse.text(401, "Unauthorized\n", {"WWW-Authenticate": "Bearer"})
