"""RBAC rules, and the attributes of a request that the rules are matched with.

The rules follow `pkg/apis/rbac/v1/evaluation_helpers.go` and component-helpers'
`policy_comparator.go`, the attributes apiserver's RequestInfo.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from navarchos.testing.apiserver.objects import JsonObject
from navarchos.testing.apiserver.status import ResourceName, StatusError, forbidden, quote

__all__ = [
    "EVERYTHING",
    "Attributes",
    "allows",
    "attributes_of",
    "denied",
    "describe",
    "selected_name",
    "uncovered",
]

_VERBS: Final = {
    "POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch",
    "DELETE": "delete",
}  # fmt: skip
_NAMESPACE_SUBRESOURCES: Final = frozenset({"status", "finalize"})
_MIN_PARTS: Final = {"api": 3, "apis": 4}  # least number of parts: prefix, group, version, resource
_ALL: Final = "*"


@dataclass(frozen=True, slots=True)
class Attributes:
    """The verb of a request and its resource; a request without a resource has only a path.

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
        """The resource and the subresource as rules write them."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def attributes_of(method: str, path: str, query: Mapping[str, str]) -> Attributes:
    """Return the attributes of a request.

    They are read from the path alone, so that a user without permission cannot learn from a 404
    which resources exist.
    """
    parts = path.strip("/").split("/")
    if len(parts) < _MIN_PARTS.get(parts[0], len(parts) + 1):
        return Attributes(method.lower(), path=path)
    group = parts[1] if parts[0] == "apis" else ""
    rest = parts[_MIN_PARTS[parts[0]] - 1 :]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in _NAMESPACE_SUBRESOURCES:
            rest = rest[2:]
    resource, name, subresource, *_ = [*rest, "", ""]
    verb = _VERBS.get(method, "")
    if not name and verb == "get":
        verb = "watch" if query.get("watch", "false").lower() not in {"false", "0"} else "list"
        name = selected_name(query)
    elif not name and verb == "delete":
        verb = "deletecollection"
    return Attributes(verb, group, resource, subresource, namespace, name, path)


def selected_name(query: Mapping[str, str]) -> str:
    """Return the name to which a field selector limits a request; empty if it does not."""
    for term in query.get("fieldSelector", "").split(","):
        field, _, value = term.partition("=")
        if field.strip() == "metadata.name":
            return value.removeprefix("=").strip()
    return ""


def denied(user: str, attributes: Attributes, reason: str = "") -> StatusError:
    """Return the 403 that names the user and the missing permission."""
    if not attributes.resource:
        why = f'User "{user}" cannot {attributes.verb} path "{attributes.path}"'
        return StatusError(403, "Forbidden", f"forbidden: {_escape_html(why, reason)}", details={})
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
    return forbidden(resource, attributes.name, _escape_html(why, reason))


def _escape_html(why: str, reason: str) -> str:
    """Escape the characters with which a message could look like HTML."""
    for letter, name in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        why = why.replace(letter, name)
    return f"{why}: {reason}" if reason else why


EVERYTHING: Final[Sequence[JsonObject]] = (
    {"apiGroups": [_ALL], "resources": [_ALL], "verbs": [_ALL]},
    {"nonResourceURLs": [_ALL], "verbs": [_ALL]},
)
"""The rules that allow everything."""


def allows(rule: JsonObject, asked: Attributes) -> bool:
    """Return whether a rule allows a request."""
    if not _has(rule, "verbs", asked.verb):
        return False
    if not asked.resource:
        return any(_covers_path(url, asked.path) for url in _list(rule, "nonResourceURLs"))
    names = _list(rule, "resourceNames")
    return (
        _has(rule, "apiGroups", asked.group)
        and (
            _has(rule, "resources", asked.full_resource)
            or bool(asked.subresource and f"*/{asked.subresource}" in _list(rule, "resources"))
        )
        and (not names or asked.name in names)
    )


def _list(rule: JsonObject, key: str) -> Sequence[str]:
    return rule.get(key) or ()


def _has(rule: JsonObject, key: str, value: str) -> bool:
    found = _list(rule, key)
    return _ALL in found or value in found


def _covers_path(owned: str, path: str) -> bool:
    return owned in {_ALL, path} or (owned.endswith(_ALL) and path.startswith(owned.rstrip(_ALL)))


class _SingleRule(NamedTuple):
    """A rule with one verb and one resource, or with one path."""

    verb: str
    group: str = ""
    resource: str = ""
    name: str = ""
    path: str = ""


def uncovered(owned: Sequence[JsonObject], wanted: Iterable[JsonObject]) -> list[str]:
    """Return descriptions of the parts of `wanted` that no rule of `owned` allows, sorted."""
    missing = [
        single
        for rule in wanted
        for single in _single_rules(rule)
        if not any(_covers(own, single) for own in owned)
    ]
    return sorted({describe(rule) for rule in _compacted(missing)})


def _single_rules(rule: JsonObject) -> Iterator[_SingleRule]:
    for group in _list(rule, "apiGroups"):
        for resource in _list(rule, "resources"):
            for verb in _list(rule, "verbs"):
                for name in _list(rule, "resourceNames") or ("",):
                    yield _SingleRule(verb, group, resource, name)
    for path in _list(rule, "nonResourceURLs"):
        for verb in _list(rule, "verbs"):
            yield _SingleRule(verb, path=path)


def _covers(owned: JsonObject, single: _SingleRule) -> bool:
    if not _has(owned, "verbs", single.verb):
        return False
    if single.path:
        return any(_covers_path(url, single.path) for url in _list(owned, "nonResourceURLs"))
    names = _list(owned, "resourceNames")
    _, found, subresource = single.resource.partition("/")
    return (
        _has(owned, "apiGroups", single.group)
        and (
            _has(owned, "resources", single.resource)
            or bool(found and f"*/{subresource}" in _list(owned, "resources"))
        )
        and (not names or single.name in names)
    )


def _compacted(singles: Iterable[_SingleRule]) -> Iterable[JsonObject]:
    """Combine the rules of one resource into one rule with several verbs."""
    found: dict[_SingleRule, JsonObject] = {}
    for single in singles:
        if single.path:
            found[single] = {"nonResourceURLs": [single.path], "verbs": [single.verb]}
            continue
        rule = found.setdefault(
            single._replace(verb=""), _rule(single.group, single.resource, single.name)
        )
        rule["verbs"].append(single.verb)
    return found.values()


def _rule(group: str, resource: str, name: str) -> JsonObject:
    names = {"resourceNames": [name]} if name else {}
    return {"apiGroups": [group], "resources": [resource], **names, "verbs": []}


def describe(rule: JsonObject) -> str:
    """Return a rule as upstream's refusals write it."""
    parts = []
    for key, shown in (
        ("apiGroups", "APIGroups"),
        ("resources", "Resources"),
        ("nonResourceURLs", "NonResourceURLs"),
        ("resourceNames", "ResourceNames"),
        ("verbs", "Verbs"),
    ):
        if values := _list(rule, key):
            parts.append(f"{shown}:[{' '.join(quote(value) for value in values)}]")
    return "{" + ", ".join(parts) + "}"
