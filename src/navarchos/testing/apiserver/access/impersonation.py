"""Impersonation: its headers, and the permissions that it needs.

Upstream tries the constrained modes (KEP-5284) before the old verb `impersonate`, and reports the
refusal of the first mode that applies. The mode for the node of a service account's pod is missing,
because no kubelet runs on the nodes of this server.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import unquote

from navarchos.testing.apiserver.access import rules, users
from navarchos.testing.apiserver.access.authorizer import Authorizer
from navarchos.testing.apiserver.names import dns_subdomain
from navarchos.testing.apiserver.status import StatusError, bad_request, quote

__all__ = ["ImpersonatedUser", "impersonated_user"]

_USER: Final = "Impersonate-User"
_GROUP: Final = "Impersonate-Group"
_UID: Final = "Impersonate-Uid"
_EXTRA: Final = "impersonate-extra-"
_GROUP_OF_USERS: Final = "authentication.k8s.io"
_NODE: Final = "system:node:"
_NODES: Final = "system:nodes"


def impersonated_user(headers: Collection[tuple[str, str]]) -> users.User | None:
    """Return the user to impersonate; `None` if the headers do not ask for it.

    Raises:
        StatusError: 400, the headers have groups, a uid or extra values, but no user.
    """
    found: dict[str, list[str]] = {}
    for name, value in headers:
        if name.lower().startswith("impersonate-"):
            found.setdefault(name.lower(), []).append(value)
    if not found:
        return None
    name, uid = (found.get(header.lower(), [""])[0] for header in (_USER, _UID))
    extra = {
        unquote(header.removeprefix(_EXTRA)): tuple(values)
        for header, values in found.items()
        if header.startswith(_EXTRA)
    }
    wanted = users.User(name, tuple(found.get(_GROUP.lower(), ())), uid, extra)
    if not name:
        raise bad_request(f"requested {_go_syntax(wanted)} without impersonating a user name")
    return wanted


def _go_syntax(user: users.User) -> str:
    """Return a user as Go prints it."""
    extra = ", ".join(f"{quote(key)}:{_go_list(user.extra[key])}" for key in sorted(user.extra))
    shown = f"map[string][]string{{{extra}}}" if extra else "map[string][]string(nil)"
    return (
        f"&user.DefaultInfo{{Name:{quote(user.name)}, UID:{quote(user.uid)},"
        f" Groups:{_go_list(user.groups)}, Extra:{shown}}}"
    )


def _go_list(values: Sequence[str]) -> str:
    listed = ", ".join(quote(value) for value in values)
    return f"[]string{{{listed}}}" if values else "[]string(nil)"


@dataclass(frozen=True, slots=True)
class _Mode:
    """One mode of impersonation.

    Attributes:
        verb: The verb that must be allowed on users, groups and so on.
        applies: Whether a user can be impersonated in this mode.
        group: The API group of users and groups in rules.
        constraint: Precedes the request's verb in a permission that the request itself needs; empty
            if it needs none.
    """

    verb: str
    applies: Callable[[users.User], bool]
    group: str = _GROUP_OF_USERS
    constraint: str = ""

    @property
    def is_constrained(self) -> bool:
        """Whether this is one of the newer, stricter modes."""
        return bool(self.constraint)


def _constrained(name: str, applies: Callable[[users.User], bool]) -> _Mode:
    return _Mode(f"impersonate:{name}", applies, constraint=f"impersonate-on:{name}:")


def _node(user: users.User) -> str:
    name = user.name.removeprefix(_NODE)
    return name if user.name.startswith(_NODE) and not dns_subdomain(name) else ""


def _has_only_name(user: users.User) -> bool:
    return not (user.groups or user.uid or user.extra)


_MODES: Final = (
    _constrained("arbitrary-node", lambda user: bool(_node(user)) and _has_only_name(user)),
    _constrained(
        "serviceaccount",
        lambda user: users.split_account_name(user.name) is not None and _has_only_name(user),
    ),
    _constrained(
        "user-info", lambda user: not _node(user) and users.split_account_name(user.name) is None
    ),
    _Mode("impersonate", lambda _: True, group=""),
)


class ImpersonatedUser:
    """Checks impersonation, and remembers the last successful mode of each user.

    As upstream since 1.36, the mode that succeeded last is tried first, and its refusal is
    reported. The text of a refusal therefore depends on earlier requests of the user.

    Threads: safe from any thread.
    """

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer
        self._last: dict[str, _Mode] = {}

    def impersonate(
        self, requestor: users.User, wanted: users.User, request: rules.Attributes
    ) -> users.User:
        """Return the impersonated user, with the groups that follow from the user's name.

        Raises:
            StatusError: 403, the requestor lacks the permission.
        """
        last = self._last.get(requestor.name)
        refusal: StatusError | None = None
        for mode in sorted(_MODES, key=lambda mode: mode is not last):
            if not mode.applies(wanted):
                continue
            try:
                found = _impersonate_in_mode(mode, self._authorizer, requestor, wanted, request)
            except StatusError as error:
                refusal = refusal or error
            else:
                self._last[requestor.name] = mode
                return found
        assert refusal is not None, "the last mode applies to every user"
        raise refusal


def _impersonate_in_mode(
    mode: _Mode,
    authorizer: Authorizer,
    requestor: users.User,
    wanted: users.User,
    request: rules.Attributes,
) -> users.User:
    if mode.is_constrained:
        asked = replace(request, verb=mode.constraint + request.verb)
        _require(authorizer, requestor, asked)
        _refuse_always_forbidden(mode, requestor, wanted)
    for asked in _required_attributes(mode, wanted):
        _require(authorizer, requestor, asked)
    return replace(wanted, groups=_groups(mode, wanted))


def _refuse_always_forbidden(mode: _Mode, requestor: users.User, wanted: users.User) -> None:
    """Refuse the groups and extra keys that a constrained mode never allows."""
    asked = rules.Attributes(mode.verb, mode.group, "groups")
    if "" in wanted.groups:
        why = "impersonating the empty string group is not allowed"
        raise rules.denied(requestor.name, asked, why)
    if users.MASTERS in wanted.groups:
        why = "impersonating the system:masters group is not allowed"
        raise rules.denied(requestor.name, replace(asked, name=users.MASTERS), why)
    for key, values in wanted.extra.items():
        prefix, found, _ = key.partition("/")
        if not found or dns_subdomain(prefix) or "" in values:
            why = "impersonating an invalid key in extra is not allowed"
            asked = rules.Attributes(mode.verb, _GROUP_OF_USERS, "userextras")
            raise rules.denied(requestor.name, asked, why)


def _require(authorizer: Authorizer, user: users.User, asked: rules.Attributes) -> None:
    decision = authorizer.decide(user, asked)
    if not decision.allowed:
        raise rules.denied(user.name, asked, decision.reason)


def _required_attributes(mode: _Mode, wanted: users.User) -> Iterator[rules.Attributes]:
    """Iterate the permissions that impersonating a user needs."""
    account = users.split_account_name(wanted.name)
    if account is not None:
        namespace, name = account
        yield rules.Attributes(
            mode.verb, mode.group, "serviceaccounts", namespace=namespace, name=name
        )
    elif mode.is_constrained and _node(wanted):
        yield rules.Attributes(mode.verb, mode.group, "nodes", name=_node(wanted))
    else:
        yield rules.Attributes(mode.verb, mode.group, "users", name=wanted.name)
    if wanted.uid:
        yield rules.Attributes(mode.verb, _GROUP_OF_USERS, "uids", name=wanted.uid)
    for group in wanted.groups:
        yield rules.Attributes(mode.verb, mode.group, "groups", name=group)
    for key, value in _pairs(wanted.extra):
        yield rules.Attributes(mode.verb, _GROUP_OF_USERS, "userextras", key, name=value)


def _pairs(extra: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    for key in sorted(extra):
        for value in extra[key]:
            yield key, value


def _groups(mode: _Mode, wanted: users.User) -> tuple[str, ...]:
    groups = wanted.groups
    if mode.is_constrained and _node(wanted):
        groups = (_NODES,)
    account = users.split_account_name(wanted.name)
    if account is not None and not groups:
        groups = users.account_groups(account[0])
    if wanted.name == users.ANONYMOUS.name:
        own = users.UNAUTHENTICATED
    elif users.UNAUTHENTICATED in groups:
        return groups
    else:
        own = users.AUTHENTICATED
    return groups if own in groups else (*groups, own)
