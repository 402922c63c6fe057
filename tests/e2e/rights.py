"""What was granted and what was used, as sets that can be compared."""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import yaml
from tests.cases.target import CONFIG

from navarchos.operator.deployment.manifests import manager_rbac
from navarchos.testing.controlplane import AuditEvent

__all__ = ["ACCOUNT", "Right", "asked_by_admission", "granted", "refused", "used"]

ACCOUNT: Final = "system:serviceaccount:kube-system:navarchos"


class Right(NamedTuple):
    """One verb on one kind, in one namespace.

    Attributes:
        verb: As RBAC knows it.
        resource: `plural.group`, with `/subresource` where there is one.
        namespace: Where it was granted; empty for everywhere.
        name: The only object it is about; empty for all.
    """

    verb: str
    resource: str
    namespace: str = ""
    name: str = ""


def _target(group: str, resource: str) -> str:
    plural, slash, subresource = resource.partition("/")
    return f"{plural}.{group}".rstrip(".") + slash + subresource


def granted() -> set[Right]:
    """Return every right in `config/deploy`, read from the files that are installed."""
    found: set[Right] = set()
    for file in sorted((CONFIG / "deploy").glob("*.yaml")):
        for manifest in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            if manifest["kind"] in {"Role", "ClusterRole"}:
                found.update(_of_role(manifest))
    return found


def _of_role(manifest: dict[str, Any]) -> Iterator[Right]:
    namespace = manifest["metadata"].get("namespace", "")
    for rule in manifest["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames", [""]):
                        yield Right(verb, _target(group, resource), namespace, name)


def asked_by_admission() -> set[Right]:
    """Return the rights that only an admission plugin asks for: no log shows them."""
    return {
        Right(verb, _target(rule.resource.group, rule.target), namespace)
        for namespace, rules in manager_rbac().items()
        for rule in rules
        if rule.asked_by_admission
        for verb in rule.verbs
    }


def used(events: Iterable[AuditEvent], known: Iterable[Right]) -> set[Right]:
    """Return what the account asked for, each under the narrowest right that covers it.

    What no right covers is told as it was asked.
    """
    by_verb: dict[tuple[str, str], list[Right]] = {}
    for right in known:
        by_verb.setdefault((right.verb, right.resource), []).append(right)
    return {_narrowest(event, by_verb) for event in events if _is_ours(event)}


def _narrowest(event: AuditEvent, known: dict[tuple[str, str], list[Right]]) -> Right:
    asked = _asked(event)
    covering = [
        right
        for right in known.get((asked.verb, asked.resource), ())
        if right.namespace in {"", asked.namespace} and right.name in {"", asked.name}
    ]
    return max(covering, key=lambda right: (right.namespace, right.name), default=asked)


def refused(events: Iterable[AuditEvent]) -> list[str]:
    """Return the requests of the account that were not allowed."""
    return [
        f"{event.verb} {event.request_uri}"
        for event in events
        if _is_ours(event) and event.is_unauthorized
    ]


def _is_ours(event: AuditEvent) -> bool:
    """Whether the account asked for something that takes a right."""
    return event.user.username == ACCOUNT and event.object_ref is not None


def _asked(event: AuditEvent) -> Right:
    ref = event.object_ref
    assert ref is not None
    resource = f"{ref.resource}/{ref.subresource}" if ref.subresource else ref.resource
    return Right(event.verb, _target(ref.api_group, resource), ref.namespace, ref.name)
