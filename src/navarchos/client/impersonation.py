"""Acting as somebody else, as far as the server lets one.

After client-go's transport/round_trippers.go.
"""

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote

import msgspec

from navarchos.errors import ConfigError

__all__ = ["Impersonation", "impersonation_of"]

_KEYS: Final = ("as", "as-uid", "as-groups", "as-user-extra")
_EXTRA: Final = "Impersonate-Extra-"
# What may stand in a header's name (RFC 9110), but for the sign of an escape.
_PLAIN: Final = "!#$&'*+-.^_`|~"
_CONTROLS: Final = frozenset(map(chr, [*range(32), 127]))


class Impersonation(msgspec.Struct, frozen=True):
    """The user that requests are made as, instead of the one who signs in.

    The server asks whether that one has the right `impersonate` for each part. It
    adds the group of those who are signed in, and no other that is not named here.

    Raises:
        ConfigError: No user is named, or a value holds what a header cannot.

    Attributes:
        user: The name, such as `system:serviceaccount:default:builder`.
        uid: The uid; empty for none.
        groups: The groups.
        extra: Further facts by key. Servers take keys in lower case.
    """

    user: str
    uid: str = ""
    groups: Sequence[str] = ()
    extra: Mapping[str, Sequence[str]] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.user:
            raise ConfigError("as", self.user, "uid, groups and extra require a user")
        for name, value in self._fields():
            # A space at either end would be lost on the way: another user.
            if not value or value != value.strip() or not _CONTROLS.isdisjoint(value):
                raise ConfigError(name, value, "it cannot be sent in a header")

    def headers(self) -> Sequence[tuple[str, str]]:
        """Return the header fields; some names come several times."""
        # Servers read UTF-8, and the library below writes Latin-1.
        return [(name, value.encode().decode("latin-1")) for name, value in self._fields()]

    def _fields(self) -> Sequence[tuple[str, str]]:
        return [
            ("Impersonate-User", self.user),
            *([("Impersonate-Uid", self.uid)] if self.uid else []),
            *(("Impersonate-Group", group) for group in self.groups),
            *(
                (_EXTRA + quote(key, safe=_PLAIN), value)
                for key, values in self.extra.items()
                for value in values
            ),
        ]


def impersonation_of(user: Mapping[str, object]) -> Impersonation | None:
    """Return what `as`, `as-uid`, `as-groups` and `as-user-extra` of a kubeconfig's user say.

    Raises:
        ConfigError: They cannot be followed.
    """
    given = {name: value for name, value in user.items() if name in _KEYS and value}
    unknown = sorted(name for name in user if name.startswith("as-") and name not in _KEYS)
    if unknown:
        # To act as the user itself instead would be another right.
        raise ConfigError("user", unknown, f"impersonation supports only {', '.join(_KEYS)}")
    if not given:
        return None
    return Impersonation(
        user=_text("as", given.get("as", "")),
        uid=_text("as-uid", given.get("as-uid", "")),
        groups=_texts("as-groups", given.get("as-groups", [])),
        extra=_extra(given.get("as-user-extra", {})),
    )


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigError(name, value, "it must be a string")
    return value


def _texts(name: str, value: object) -> Sequence[str]:
    if not isinstance(value, list):
        raise ConfigError(name, value, "it must be a list of strings")
    return [_text(name, item) for item in value]


def _extra(value: object) -> Mapping[str, Sequence[str]]:
    name = "as-user-extra"
    if not isinstance(value, dict):
        raise ConfigError(name, value, "it must be lists of strings by key")
    return {_text(name, key): _texts(f"{name}.{key}", item) for key, item in value.items()}
