"""Whoever comes in: who are they, for whom do they ask, and may they."""

from collections.abc import Collection, Mapping
from typing import Final

from navarchos.testing.apiserver.access.authorizer import AllowAll, Authorizer, Rbac
from navarchos.testing.apiserver.access.impersonation import Impersonation, impersonated_user
from navarchos.testing.apiserver.access.rules import attributes_of, denied
from navarchos.testing.apiserver.access.tokens import InvalidToken, Tokens
from navarchos.testing.apiserver.access.users import ADMINISTRATOR, ANONYMOUS, User
from navarchos.testing.apiserver.status import StatusError
from navarchos.testing.apiserver.store import Store

__all__ = ["AccessControl"]

_BEARER: Final = "bearer"


class AccessControl:
    """Knows users and their rights.

    Args:
        store: Where accounts, roles and bindings are.
        rbac: Whether rights are looked at; else everybody is the administrator.

    Attributes:
        tokens: Gives out tokens; those of accounts also without `rbac`.
        authorizer: Decides.
    """

    def __init__(self, store: Store, *, rbac: bool) -> None:
        self.rbac = rbac
        self.tokens = Tokens(store)
        self.authorizer: Authorizer = Rbac(store) if rbac else AllowAll()
        self._impersonation = Impersonation(self.authorizer)

    def authorize(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Collection[tuple[str, str]],
    ) -> User:
        """Return whom a request is made for.

        Raises:
            StatusError: 401 for a token that is not good, 403 for what is not allowed.
        """
        if not self.rbac:
            return ADMINISTRATOR
        user = self._authenticate(headers)
        asked = attributes_of(method, path, query)
        wanted = impersonated_user(headers)
        if wanted is not None:
            user = self._impersonation.impersonate(user, wanted, asked)
        decision = self.authorizer.decide(user, asked)
        if not decision.allowed:
            raise denied(user.name, asked, decision.reason)
        return user

    def _authenticate(self, headers: Collection[tuple[str, str]]) -> User:
        value = next((value for name, value in headers if name.lower() == "authorization"), "")
        scheme, _, token = value.strip().partition(" ")
        if scheme.lower() != _BEARER or not token.strip():
            return ANONYMOUS  # nobody here reads anything else
        try:
            user, _ = self.tokens.authenticate(token.strip())
        except InvalidToken as error:
            raise StatusError(401, "Unauthorized", "Unauthorized") from error
        return user
