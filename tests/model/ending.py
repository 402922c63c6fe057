"""Check the state of the cluster after the end of a run."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.model.facts import FINISHED, owner_uid
from tests.model.judging import GROUP, Judge, step_of
from tests.model.people import People
from tests.model.serving import Server

from navarchos.operator.names import (
    ACTION_FINALIZER,
    CORDONED_BY_ANNOTATION,
    DRAIN_COMPLETED_LABEL,
    MARKS_ANNOTATION,
    TO_BE_REPLACED_TAINT,
)

__all__ = ["faults_at_the_end"]

JsonObject = Mapping[str, Any]


def faults_at_the_end(server: Server, judge: Judge, people: People) -> list[str]:
    """Return every violation as a text."""
    return [
        *_orphans(server),
        *_cordons(server, judge, people),
        *_taints(server),
        *_marks(server),
        *_jobs(server),
        *_ends_of_nodes(server),
        *_accounts(server),
    ]


def _orphans(server: Server) -> Iterator[str]:
    owners = {
        obj["metadata"]["uid"]
        for plural in ("noderollouts", "nodereplacements")
        for obj in server.list(plural, GROUP)
    }
    for plural in ("nodereplacements", "nodedrains"):
        for obj in server.list(plural, GROUP):
            owner = next(iter(obj["metadata"].get("ownerReferences") or ()), None)
            if owner is None or owner["uid"] not in owners:
                yield f"{obj['kind']} {obj['metadata']['name']} is an orphan"
            if obj["metadata"].get("deletionTimestamp"):
                yield f"{obj['kind']} {obj['metadata']['name']} is not deleted"


def _cordons(server: Server, judge: Judge, people: People) -> Iterator[str]:
    drains = {
        f"{drain['metadata']['name']}/{drain['metadata']['uid']}": drain
        for drain in server.list("nodedrains", GROUP)
    }
    for node in server.list("nodes"):
        uid, name = node["metadata"]["uid"], node["metadata"]["name"]
        mark = (node["metadata"].get("annotations") or {}).get(CORDONED_BY_ANNOTATION)
        closed = bool(node["spec"].get("unschedulable"))
        is_drained = DRAIN_COMPLETED_LABEL in (node["metadata"].get("labels") or {})
        is_kept = mark in judge.drains.kept_cordons
        if closed and mark and mark not in drains and not is_drained and not is_kept:
            yield f"node {name} is cordoned by {mark}, which does not exist any more"
        if closed and not mark and uid not in people.interfered:
            yield f"node {name} is cordoned, without an annotation that names the owner"
        if uid in people.cordoned and not closed:
            yield f"node {name} is uncordoned, and another client had cordoned it"
        if is_drained and not closed and uid not in judge.drains.opened_by_others:
            yield f"node {name} has been drained, and is not cordoned any more"


def _taints(server: Server) -> Iterator[str]:
    # Replacements of a Halted rollout are not finished, and a user decides.
    wanted = {
        replacement["spec"].get("nodeUID", "")
        for replacement in server.list("nodereplacements", GROUP)
        if replacement["spec"]["strategy"].get("taintWaitingNodes")
        and step_of(replacement) not in FINISHED
    }
    for node in server.list("nodes"):
        taints = {taint["key"] for taint in node["spec"].get("taints") or ()}
        if TO_BE_REPLACED_TAINT in taints and node["metadata"]["uid"] not in wanted:
            yield f"node {node['metadata']['name']} still has the taint of waiting nodes"


def _marks(server: Server) -> Iterator[str]:
    """Yield marks of a node whose drain is gone, unless the node stays cordoned (IG-74)."""
    drains = {drain["metadata"]["uid"] for drain in server.list("nodedrains", GROUP)}
    for node in server.list("nodes"):
        name, metadata = node["metadata"]["name"], node["metadata"]
        record = (metadata.get("annotations") or {}).get(MARKS_ANNOTATION, "")
        for mark, entry in (json.loads(record) if record else {}).items():
            for holder in entry["holders"]:
                kind, uid = holder.split("/")[0], holder.split("/")[-1]
                is_kept = kind == "Node" and uid == metadata["uid"]
                if is_kept and not node["spec"].get("unschedulable"):
                    yield f"node {name} is in service, and has the mark {mark}"
                elif not is_kept and uid not in drains:
                    yield f"node {name} has the mark {mark} for {holder}, which does not exist"


def _jobs(server: Server) -> Iterator[str]:
    replacements = {r["metadata"]["uid"]: r for r in server.list("nodereplacements", GROUP)}
    for job in server.list("jobs", "batch"):
        if owner_uid(job) not in replacements:
            yield f"Job {job['metadata']['name']} is an orphan"
    for replacement in replacements.values():
        if ACTION_FINALIZER in (replacement["metadata"].get("finalizers") or ()):
            yield f"{replacement['metadata']['name']} still has the finalizer of its action"


def _ends_of_nodes(server: Server) -> Iterator[str]:
    nodes = {node["metadata"]["uid"]: node for node in server.list("nodes")}
    owners = {
        f"{drain['metadata']['name']}/{drain['metadata']['uid']}": owner["uid"]
        for drain in server.list("nodedrains", GROUP)
        for owner in drain["metadata"].get("ownerReferences") or ()
    }
    for replacement in server.list("nodereplacements", GROUP):
        node = nodes.get(replacement["spec"].get("nodeUID", ""))
        if node is None:
            continue
        step = (replacement.get("status") or {}).get("step") or {}
        name, metadata = node["metadata"]["name"], node["metadata"]
        if (step.get("name"), step.get("reason")) == ("Done", "Drained"):
            if DRAIN_COMPLETED_LABEL not in (metadata.get("labels") or {}):
                yield f"node {name} has been drained, and lacks the label"
        elif step.get("name") == "Failed":
            mark = (metadata.get("annotations") or {}).get(CORDONED_BY_ANNOTATION, "")
            policy = replacement["spec"]["strategy"].get("onNodeFailure", "Uncordon")
            if policy == "Uncordon" and owners.get(mark) == replacement["metadata"]["uid"]:
                yield f"node {name} was released, and is still cordoned by {mark}"


def _accounts(server: Server) -> Iterator[str]:
    children: dict[str, dict[str, JsonObject]] = {}
    for replacement in server.list("nodereplacements", GROUP):
        for owner in replacement["metadata"].get("ownerReferences") or ():
            found = children.setdefault(owner["uid"], {})
            found[replacement["spec"]["nodeName"]] = replacement
    for rollout in server.list("noderollouts", GROUP):
        yield from _account(rollout, children.get(rollout["metadata"]["uid"], {}))


def _account(rollout: JsonObject, children: Mapping[str, JsonObject]) -> Iterator[str]:
    name, status = rollout["metadata"]["name"], rollout.get("status") or {}
    planned = {node["name"] for node in status.get("nodes") or ()}
    completed = set(status.get("replacementsCompleted") or ())
    failed = set(status.get("replacementsFailed") or ())
    cancelled = set(status.get("replacementsCancelled") or ())
    ended = completed | failed | cancelled
    if status.get("phase") == "Completed" and planned != ended:
        missing = planned ^ ended
        yield f"rollout {name} is Completed without {', '.join(sorted(missing))}"
    if twice := completed & failed | (completed | failed) & cancelled:
        yield f"rollout {name} counts nodes twice: {', '.join(sorted(twice))}"
    for field in ("inFlight", "stalled"):
        if status.get(field):
            yield f"rollout {name}: {field} lists {status[field]}, which are not finished"
    for node in planned - ended:
        if node not in children:
            yield f"rollout {name} has no replacement for node {node}"
    for node, child in children.items():
        step = step_of(child)
        lists = {"Done": completed, "Failed": failed, "Cancelled": cancelled}
        if any((step == each) != (node in names) for each, names in lists.items()):
            yield f"rollout {name} does not report the step {step} of node {node}"
    if status.get("phase") == "Halted":
        yield from _reason_to_halt(rollout)


def _reason_to_halt(rollout: JsonObject) -> Iterator[str]:
    conditions = (rollout.get("status") or {}).get("conditions") or ()
    said = next((c for c in conditions if c["type"] == "Halted" and c["status"] == "True"), None)
    if said is None:
        yield f"rollout {rollout['metadata']['name']} is Halted without a reason"
