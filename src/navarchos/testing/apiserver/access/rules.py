"""RBAC's rules: what one allows, and whether some cover others.

After `pkg/apis/rbac/v1/evaluation_helpers.go` and component-helpers'
`policy_comparator.go`.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from navarchos.testing.apiserver.access.attributes import Attributes
from navarchos.testing.apiserver.objects import JsonObject
from navarchos.testing.apiserver.status import quote

__all__ = ["EVERYTHING", "allows", "describe", "uncovered"]

_ALL: Final = "*"
EVERYTHING: Final[Sequence[JsonObject]] = (
    {"apiGroups": [_ALL], "resources": [_ALL], "verbs": [_ALL]},
    {"nonResourceURLs": [_ALL], "verbs": [_ALL]},
)
"""The rules of somebody who may do everything."""


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


class _Grain(NamedTuple):
    """The least that a rule can say; a path where there is no resource."""

    verb: str
    group: str = ""
    resource: str = ""
    name: str = ""
    path: str = ""


def uncovered(owned: Sequence[JsonObject], wanted: Iterable[JsonObject]) -> list[str]:
    """Return, as descriptions in order, what of `wanted` no rule of `owned` allows."""
    missing = [
        grain
        for rule in wanted
        for grain in _grains(rule)
        if not any(_covers(own, grain) for own in owned)
    ]
    return sorted({describe(rule) for rule in _compacted(missing)})


def _grains(rule: JsonObject) -> Iterator[_Grain]:
    for group in _list(rule, "apiGroups"):
        for resource in _list(rule, "resources"):
            for verb in _list(rule, "verbs"):
                for name in _list(rule, "resourceNames") or ("",):
                    yield _Grain(verb, group, resource, name)
    for path in _list(rule, "nonResourceURLs"):
        for verb in _list(rule, "verbs"):
            yield _Grain(verb, path=path)


def _covers(owned: JsonObject, grain: _Grain) -> bool:
    if not _has(owned, "verbs", grain.verb):
        return False
    if grain.path:
        return any(_covers_path(url, grain.path) for url in _list(owned, "nonResourceURLs"))
    names = _list(owned, "resourceNames")
    _, found, subresource = grain.resource.partition("/")
    return (
        _has(owned, "apiGroups", grain.group)
        and (
            _has(owned, "resources", grain.resource)
            or bool(found and f"*/{subresource}" in _list(owned, "resources"))
        )
        and (not names or grain.name in names)
    )


def _compacted(grains: Iterable[_Grain]) -> Iterable[JsonObject]:
    """Put together the verbs of one resource, as a person would write them."""
    found: dict[_Grain, JsonObject] = {}
    for grain in grains:
        if grain.path:
            found[grain] = {"nonResourceURLs": [grain.path], "verbs": [grain.verb]}
            continue
        rule = found.setdefault(
            grain._replace(verb=""), _rule(grain.group, grain.resource, grain.name)
        )
        rule["verbs"].append(grain.verb)
    return found.values()


def _rule(group: str, resource: str, name: str) -> JsonObject:
    names = {"resourceNames": [name]} if name else {}
    return {"apiGroups": [group], "resources": [resource], **names, "verbs": []}


def describe(rule: JsonObject) -> str:
    """Write a rule as refusals do."""
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
