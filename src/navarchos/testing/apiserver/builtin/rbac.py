"""Roles and bindings: defaults and validation (`pkg/apis/rbac/validation`)."""

from collections.abc import Callable, Iterator
from typing import Final

from navarchos.testing.apiserver import names, objects
from navarchos.testing.apiserver import status as statuses
from navarchos.testing.apiserver.kinds import KindStrategy

__all__ = ["CLUSTER_BINDING", "CLUSTER_ROLE", "ROLE", "ROLE_BINDING"]

_GROUP: Final = "rbac.authorization.k8s.io"
_SUBJECTS: Final = ("ServiceAccount", "User", "Group")


def _write_null_rules(role: objects.JsonObject) -> None:
    """Write `rules: null` for a role without rules."""
    role.setdefault("rules", None)


def _write_null_rules_on_update(role: objects.JsonObject, _old: objects.JsonObject) -> None:
    _write_null_rules(role)


def _role_errors(role: objects.JsonObject, *, namespaced: bool) -> list[statuses.FieldError]:
    errors: list[statuses.FieldError] = []
    for index, rule in enumerate(role.get("rules") or ()):
        errors += _rule_errors(rule, f"rules[{index}]", namespaced=namespaced)
    return errors


def _rule_errors(
    rule: objects.JsonObject, at: str, *, namespaced: bool
) -> Iterator[statuses.FieldError]:
    if not rule.get("verbs"):
        yield statuses.required(f"{at}.verbs", "verbs must contain at least one value")
    urls = rule.get("nonResourceURLs")
    if urls:
        field = f"{at}.nonResourceURLs"
        if namespaced:
            text = "namespaced rules cannot apply to non-resource URLs"
            yield statuses.invalid_value(field, urls, text)
        if any(rule.get(key) for key in ("apiGroups", "resources", "resourceNames")):
            text = "rules cannot apply to both regular resources and non-resource URLs"
            yield statuses.invalid_value(field, urls, text)
        return
    if not rule.get("apiGroups"):
        yield statuses.required(
            f"{at}.apiGroups", "resource rules must supply at least one api group"
        )
    if not rule.get("resources"):
        yield statuses.required(
            f"{at}.resources", "resource rules must supply at least one resource"
        )


def _cluster_role_errors(role: objects.JsonObject) -> list[statuses.FieldError]:
    errors = _role_errors(role, namespaced=False)
    rule = role.get("aggregationRule")
    if rule is not None and not rule.get("clusterRoleSelectors"):
        text = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        errors.append(statuses.required("aggregationRule.clusterRoleSelectors", text))
    return errors


def _default_binding(binding: objects.JsonObject) -> None:
    role = binding.get("roleRef")
    if isinstance(role, dict) and not role.get("apiGroup"):
        role["apiGroup"] = _GROUP
    for subject in binding.get("subjects") or ():
        if subject.get("kind") in {"User", "Group"} and not subject.get("apiGroup"):
            subject["apiGroup"] = _GROUP


def _binding_errors(binding: objects.JsonObject, *, namespaced: bool) -> list[statuses.FieldError]:
    kinds = ("Role", "ClusterRole") if namespaced else ("ClusterRole",)
    reference = binding.get("roleRef") or {}
    errors = []
    if reference.get("apiGroup") != _GROUP:
        given = reference.get("apiGroup") or ""
        errors.append(statuses.unsupported_value("roleRef.apiGroup", given, (_GROUP,)))
    if reference.get("kind") not in kinds:
        errors.append(
            statuses.unsupported_value("roleRef.kind", reference.get("kind") or "", kinds)
        )
    name = reference.get("name") or ""
    if not name:
        errors.append(statuses.required("roleRef.name"))
    errors += [
        statuses.invalid_value("roleRef.name", name, why) for why in names.path_segment(name)
    ]
    for index, subject in enumerate(binding.get("subjects") or ()):
        errors += _subject_errors(subject, f"subjects[{index}]", namespaced=namespaced)
    return errors


def _subject_errors(
    subject: objects.JsonObject, at: str, *, namespaced: bool
) -> Iterator[statuses.FieldError]:
    name, kind = subject.get("name") or "", subject.get("kind") or ""
    if not name:
        yield statuses.required(f"{at}.name")
    if kind not in _SUBJECTS:
        yield statuses.unsupported_value(f"{at}.kind", kind, _SUBJECTS)
        return
    group = "" if kind == "ServiceAccount" else _GROUP
    if (subject.get("apiGroup") or "") != group:
        yield statuses.unsupported_value(f"{at}.apiGroup", subject.get("apiGroup") or "", (group,))
    if kind != "ServiceAccount":
        return
    for why in names.dns_subdomain(name) if name else ():
        yield statuses.invalid_value(f"{at}.name", name, why)
    if not namespaced and not subject.get("namespace"):
        yield statuses.required(f"{at}.namespace")


def _role_change_errors(
    new: objects.JsonObject, old: objects.JsonObject
) -> list[statuses.FieldError]:
    if new.get("roleRef") == old.get("roleRef"):
        return []
    shown = {
        name: new["roleRef"].get(key)
        for name, key in (("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name"))
    }
    return [statuses.invalid_value("roleRef", shown, "cannot change roleRef")]


def _binding(check: Callable[[objects.JsonObject], list[statuses.FieldError]]) -> KindStrategy:
    return KindStrategy(
        name_rule=names.path_segment,
        default=_default_binding,
        validate=check,
        validate_update=_role_change_errors,
    )


def _role(check: Callable[[objects.JsonObject], list[statuses.FieldError]]) -> KindStrategy:
    return KindStrategy(
        name_rule=names.path_segment,
        prepare_create=_write_null_rules,
        prepare_update=_write_null_rules_on_update,
        validate=check,
    )


ROLE: Final = _role(lambda role: _role_errors(role, namespaced=True))
CLUSTER_ROLE: Final = _role(_cluster_role_errors)
ROLE_BINDING: Final = _binding(lambda binding: _binding_errors(binding, namespaced=True))
CLUSTER_BINDING: Final = _binding(lambda binding: _binding_errors(binding, namespaced=False))
