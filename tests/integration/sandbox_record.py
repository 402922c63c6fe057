"""Record what the manager writes during the sandbox's own example, and what is left (NP-06).

`python -m tests.integration.sandbox_record` replaces the record. It was made with the code
before the later fields of rollouts existed, and must not be replaced to let a change pass.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib import resources
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import yaml

from navarchos.operator.api.v1alpha1 import GROUP
from navarchos.operator.api.v1alpha1.definitions import manifests
from navarchos.operator.names import DRAIN_COMPLETED_LABEL
from navarchos.operator.setup import add_operator
from navarchos.testing.apiserver import ApiServer, Change
from navarchos.testing.clock import FakeClock
from navarchos.testing.cluster import Cluster, ClusterOptions
from navarchos.testing.managers import running_manager

__all__ = ["RECORD", "differences", "play"]

JsonObject = dict[str, Any]

RECORD: Final = Path(__file__).with_name("sandbox_record.json")

_AGENT: Final = "navarchos-manager/0"
_KINDS: Final = ("noderollouts", "nodereplacements", "nodedrains", "nodes")
_VIRTUAL_SECONDS: Final = 3600.0

_TIMES: Final = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z"), "<time>"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\dh\d\dm\d\ds"), "<time>"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uid>"),
)
_HIDDEN: Final = frozenset({"resourceVersion", "uid", "creationTimestamp", "managedFields"})

_OF_PODS: Final = frozenset(
    {
        *("blocked", "blockedSince", "blockers", "deadline"),  # of a wait, if it is reported
        *("evicted", "evictedOwners", "evictedPods"),
        *("evictedPodsCount", "ignoredPods", "message", "nodePods", "nodePodsCount", "pods"),
        *("remaining", "total"),
    }
)
"""Fields that depend on the names, places and times of pods, which differ from run to run."""

_UNCOUNTED: Final = frozenset({"get", "watch", "evict", "patch"})
"""The verbs of requests whose number depends on how fast the threads are."""


class _Writes:
    """The writes of the manager, in order for each object."""

    def __init__(self) -> None:
        self.by_object: dict[str, list[str]] = {}
        self.evicted: set[str] = set()

    def observe(self, change: Change) -> None:
        origin, metadata = change.request, change.object["metadata"]
        if origin is None or origin.user_agent != _AGENT:
            return
        plural = change.resource.plural
        if plural in _KINDS:
            if _is_progress(plural, change.previous or {}, change.object):
                return
            written = " ".join(_changed(change.previous or {}, change.object))
            if not written:
                return  # only fields of pods
            key = f"{plural} {metadata['name']}"
            self.by_object.setdefault(key, []).append(f"{origin.verb} {written}")
        elif plural == "pods":
            self.evicted.add(f"{origin.verb} {change.object['spec']['nodeName']}")


def play() -> JsonObject:
    """Return the record of one run, as JSON data."""
    clock, writes = FakeClock(), _Writes()
    server = ApiServer(crds=manifests(), clock=clock)
    # Fewer pods than in the sandbox, because they take most of the time.
    options = ClusterOptions(speed=1.0, pods_per_node=3, terminate_label=DRAIN_COMPLETED_LABEL)
    example = yaml.safe_load(
        (resources.files("navarchos.cli") / "examples" / "rollout.yml").read_text(encoding="utf-8")
    )
    example["metadata"] = {"name": "example"}
    with (
        Cluster(server, options=options) as cluster,
        server.client(user_agent=_AGENT) as client,
    ):
        cluster.populate()
        cluster.start()
        assert cluster.wait_until_ready()
        server.subscribe(writes.observe)
        with running_manager(add_operator, client, clock=clock):
            server.install(example)
            clock.advance(_VIRTUAL_SECONDS)
        assert cluster.violations == []
        left = {
            f"{plural} {each['metadata']['name']}": json.loads(_normalized(each))
            for plural in _KINDS
            if plural != "nodes"  # all of them are new machines by then
            for each in server.list(plural, group=GROUP)
        }
        requests = Counter(
            f"{each.verb} {each.resource}" + f"/{each.subresource}" * bool(each.subresource)
            for each in server.audit
            if each.user_agent == _AGENT and each.resource not in {"events", "leases"}
        )
    return {
        "writes": writes.by_object,
        "evicted": sorted(writes.evicted),
        "requests": {
            text: "some" if text.split(" ")[0] in _UNCOUNTED or text == "list pods" else count
            for text, count in sorted(requests.items())
        },
        "left": left,
    }


def differences(known: Any, found: Any, where: str = "") -> Iterator[str]:
    """Yield the differences of two records, in words."""
    if isinstance(known, dict) and isinstance(found, dict):
        for key in sorted({*known, *found}):
            yield from differences(known.get(key), found.get(key), f"{where}/{key}")
    elif isinstance(known, list) and isinstance(found, list):
        for index, pair in enumerate(zip_longest(known, found)):
            yield from differences(*pair, f"{where}[{index}]")
    elif known != found:
        yield f"{where}:\n  before {json.dumps(known)}\n  now    {json.dumps(found)}"


def _is_progress(plural: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether a write only reports progress: how often depends on the threads.

    These are the lists of nodes of a rollout, and the reason for which a replacement waits.
    """
    old, new = before.get("status", {}), after.get("status", {})
    match plural:
        case "noderollouts":
            return bool(old.get("phase") == new.get("phase"))
        case "nodereplacements":
            steps = {status.get("step", {}).get("name") for status in (old, new)}
            return steps == {"Waiting"}
        case _:
            return False


def _changed(before: Mapping[str, Any], after: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield each changed field with its value."""
    for key in sorted({*before, *after} - _HIDDEN - _OF_PODS):
        old, new = _hidden(before.get(key)), _hidden(after.get(key))
        if isinstance(old or {}, dict) and isinstance(new or {}, dict) and old != new:
            yield from _changed(old or {}, new or {}, f"{path}.{key}")
        elif old != new:
            yield f"{path}.{key}={_normalized(new)}"


def _normalized(value: Any) -> str:
    """Return JSON in which times, uids and versions are hidden."""
    text = json.dumps(_hidden(value), sort_keys=True)
    for pattern, replacement in _TIMES:
        text = pattern.sub(replacement, text)
    return text


def _hidden(value: Any) -> Any:
    if isinstance(value, dict):
        left = value.keys() - _HIDDEN - _OF_PODS
        return {key: _hidden(value[key]) for key in sorted(left)}
    return [_hidden(each) for each in value] if isinstance(value, list) else value


if __name__ == "__main__":
    RECORD.write_text(f"{json.dumps(play(), indent=1, sort_keys=True)}\n", encoding="utf-8")
