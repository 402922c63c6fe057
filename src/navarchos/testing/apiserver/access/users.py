"""Users as the API server knows them: by name and groups, never by object."""

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
"""The group that may do everything, whatever roles say."""

AUTHENTICATED: Final = "system:authenticated"
"""The group of everybody who has said who they are."""

UNAUTHENTICATED: Final = "system:unauthenticated"
"""The group of everybody else."""

_ACCOUNT: Final = "system:serviceaccount:"
_ACCOUNTS: Final = "system:serviceaccounts"


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who asks.

    Attributes:
        name: What RBAC goes by.
        groups: What RBAC goes by, too.
        uid: Tells users of one name apart; may be empty.
        extra: What else is known, for whoever reviews a token.
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
"""Who may do everything; who everybody is where no users are known."""

ANONYMOUS: Final = User("system:anonymous", (UNAUTHENTICATED,))
"""Who says nothing."""


def account_name(namespace: str, name: str) -> str:
    """Return the user name of a service account."""
    return f"{_ACCOUNT}{namespace}:{name}"


def account_groups(namespace: str) -> tuple[str, ...]:
    """Return the groups of a service account, without that of all who are known."""
    return _ACCOUNTS, f"{_ACCOUNTS}:{namespace}"


def split_account_name(user: str) -> tuple[str, str] | None:
    """Return namespace and name of the service account that a user is, if it is one."""
    namespace, found, name = user.removeprefix(_ACCOUNT).partition(":")
    if not user.startswith(_ACCOUNT) or not found or not namespace or not name or ":" in name:
        return None
    return namespace, name
