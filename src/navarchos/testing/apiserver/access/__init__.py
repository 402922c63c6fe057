"""Users, tokens and RBAC: who sends a request, and whether the request is allowed."""

from collections.abc import Collection, Mapping
from typing import Final

from navarchos.testing.apiserver.access.authorizer import AllowAll, Authorizer, Rbac
from navarchos.testing.apiserver.access.impersonation import ImpersonatedUser, impersonated_user
from navarchos.testing.apiserver.access.rules import attributes_of, denied
from navarchos.testing.apiserver.access.tokens import InvalidToken, Tokens
from navarchos.testing.apiserver.access.users import ADMINISTRATOR, ANONYMOUS, User
from navarchos.testing.apiserver.status import StatusError
from navarchos.testing.apiserver.store import ObjectStore

__all__ = ["AccessControl"]

_BEARER: Final = "bearer"


class AccessControl:
    """Authenticates and authorizes requests.

    Args:
        store: Has the service accounts, roles and bindings.
        rbac: Whether permissions are checked. Without it, every client is the administrator.

    Attributes:
        tokens: Issues tokens; tokens of service accounts also without `rbac`.
        authorizer: Decides what a user may do.
    """

    def __init__(self, store: ObjectStore, *, rbac: bool) -> None:
        self.rbac = rbac
        self.tokens = Tokens(store)
        self.authorizer: Authorizer = Rbac(store) if rbac else AllowAll()
        self._impersonation = ImpersonatedUser(self.authorizer)

    def authorize(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Collection[tuple[str, str]],
    ) -> User:
        """Return the user of a request, after impersonation.

        Raises:
            StatusError: 401 for an invalid token, 403 if the request is not allowed.
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
            return ANONYMOUS  # this server knows no other credentials
        try:
            user, _ = self.tokens.authenticate(token.strip())
        except InvalidToken as error:
            raise StatusError(401, "Unauthorized", "Unauthorized") from error
        return user
