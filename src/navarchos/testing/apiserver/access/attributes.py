"""What a request is to an authorizer, as apiserver's RequestInfo has it.

It is read off the path alone, so that nobody learns from a 404 what is served here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from navarchos.testing.apiserver.status import ResourceName, StatusError, forbidden

__all__ = ["Attributes", "attributes_of", "denied"]

_VERBS: Final = {
    "POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch",
    "DELETE": "delete",
}  # fmt: skip
_NAMESPACE_SUBRESOURCES: Final = frozenset({"status", "finalize"})
_SHORTEST: Final = {"api": 3, "apis": 4}  # prefix, group, version, resource


@dataclass(frozen=True, slots=True)
class Attributes:
    """A verb on a resource, or on a path where `resource` is empty.

    Attributes:
        path: The whole path.
    """

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def full_resource(self) -> str:
        """Resource and subresource as rules spell them."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def attributes_of(method: str, path: str, query: Mapping[str, str]) -> Attributes:
    """Read a request line."""
    parts = path.strip("/").split("/")
    if len(parts) < _SHORTEST.get(parts[0], len(parts) + 1):
        return Attributes(method.lower(), path=path)
    group = parts[1] if parts[0] == "apis" else ""
    rest = parts[_SHORTEST[parts[0]] - 1 :]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in _NAMESPACE_SUBRESOURCES:
            rest = rest[2:]
    resource, name, subresource, *_ = [*rest, "", ""]
    verb = _VERBS.get(method, "")
    if not name and verb == "get":
        verb = "watch" if query.get("watch", "false").lower() not in {"false", "0"} else "list"
        name = _selected_name(query)
    elif not name and verb == "delete":
        verb = "deletecollection"
    return Attributes(verb, group, resource, subresource, namespace, name, path)


def _selected_name(query: Mapping[str, str]) -> str:
    for term in query.get("fieldSelector", "").split(","):
        field, _, value = term.partition("=")
        if field.strip() == "metadata.name":
            return value.removeprefix("=").strip()
    return ""


def denied(user: str, attributes: Attributes, reason: str = "") -> StatusError:
    """Return the 403 that says who may not do what."""
    if not attributes.resource:
        why = f'User "{user}" cannot {attributes.verb} path "{attributes.path}"'
        return StatusError(403, "Forbidden", f"forbidden: {_harmless(why, reason)}", details={})
    where = (
        f'in the namespace "{attributes.namespace}"'
        if attributes.namespace
        else "at the cluster scope"
    )
    why = (
        f'User "{user}" cannot {attributes.verb} resource "{attributes.full_resource}"'
        f' in API group "{attributes.group}" {where}'
    )
    resource = ResourceName(attributes.group, attributes.resource)
    return forbidden(resource, attributes.name, _harmless(why, reason))


def _harmless(why: str, reason: str) -> str:
    """Let nothing in a message look like HTML."""
    for letter, name in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        why = why.replace(letter, name)
    return f"{why}: {reason}" if reason else why
