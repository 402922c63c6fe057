"""Users as the API server knows them: names and groups, not objects."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from navarchos.testing.apiserver.objects import JsonObject

__all__ = [
    "ADMINISTRATOR",
    "ANONYMOUS",
    "AUTHENTICATED",
    "MASTERS",
    "UNAUTHENTICATED",
    "User",
    "account_groups",
    "account_name",
    "split_account_name",
]

MASTERS: Final = "system:masters"
"""The group that may do everything, whatever the roles are."""

AUTHENTICATED: Final = "system:authenticated"
"""The group of all users with valid credentials."""

UNAUTHENTICATED: Final = "system:unauthenticated"
"""The group of requests without credentials."""

_ACCOUNT: Final = "system:serviceaccount:"
_ACCOUNTS: Final = "system:serviceaccounts"


@dataclass(frozen=True, slots=True)
class User:
    """The user of a request.

    Attributes:
        name: The name in RBAC subjects.
        groups: The groups in RBAC subjects.
        uid: Distinguishes users with the same name; may be empty.
        extra: Further facts about the user, shown by a `TokenReview`.
    """

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def to_json(self) -> JsonObject:
        """Return the `UserInfo` of reviews."""
        found: JsonObject = {"username": self.name}
        if self.uid:
            found["uid"] = self.uid
        if self.groups:
            found["groups"] = list(self.groups)
        if self.extra:
            found["extra"] = {key: list(self.extra[key]) for key in sorted(self.extra)}
        return found


ADMINISTRATOR: Final = User("kubernetes-admin", (MASTERS, AUTHENTICATED))
"""May do everything. Without RBAC, every client is this user."""

ANONYMOUS: Final = User("system:anonymous", (UNAUTHENTICATED,))
"""The user of requests without credentials."""


def account_name(namespace: str, name: str) -> str:
    """Return the user name of a service account."""
    return f"{_ACCOUNT}{namespace}:{name}"


def account_groups(namespace: str) -> tuple[str, ...]:
    """Return the groups of a service account, except the one of all authenticated users."""
    return _ACCOUNTS, f"{_ACCOUNTS}:{namespace}"


def split_account_name(user: str) -> tuple[str, str] | None:
    """Return namespace and name of a service account; `None` for other users."""
    namespace, found, name = user.removeprefix(_ACCOUNT).partition(":")
    if not user.startswith(_ACCOUNT) or not found or not namespace or not name or ":" in name:
        return None
    return namespace, name
