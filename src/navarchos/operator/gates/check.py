"""Evaluates gates once, by requests and without informers, for a plan."""

from collections.abc import Iterable, Mapping, Sequence

from navarchos.client import Client
from navarchos.client.errors import ClientError
from navarchos.clock import Clock
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.gates import decide
from navarchos.operator.gates.alerts import AlertReader, QueryFailed, query_of_gate
from navarchos.operator.gates.objects import (
    WORKLOAD_KINDS,
    key_of_gate,
    observed_object,
    read_objects,
    uid_of,
    workload_of,
)
from navarchos.operator.nodes import Node

__all__ = ["GateChecker"]


class GateChecker:
    """Reads what gates observe, and judges them.

    Args:
        client: Reads the objects.
        read_alerts: Queries Prometheus, from this process.
        clock: Time.
    """

    def __init__(self, client: Client, read_alerts: AlertReader, clock: Clock) -> None:
        self._client = client
        self._read_alerts = read_alerts
        self._clock = clock

    def check(
        self,
        rollout: api.NodeRollout,
        nodes: Sequence[Node],
        replacements: Sequence[api.NodeReplacement],
    ) -> Mapping[str, decide.GateRecord]:
        """Return the state of each gate of a rollout now, by name.

        A gate keeps the time in the status of its rollout if its state is the same. A gate that
        cannot be read is closed, and its message says why.
        """
        known = {status.name: decide.recorded(status) for status in rollout.status.gates}
        found = {}
        for gate in rollout.spec.gates:
            observed = self._observe(gate, rollout, nodes, replacements)
            now = self._clock.now()
            record = known.get(gate.name, decide.GateRecord(gate.name))
            found[gate.name] = decide.follow(record, decide.judge(gate, observed, now), now)
        return found

    def _observe(
        self,
        gate: api.GateSpec,
        rollout: api.NodeRollout,
        nodes: Sequence[Node],
        replacements: Sequence[api.NodeReplacement],
    ) -> decide.GateObservation:
        if (key := key_of_gate(gate)) is not None:
            try:
                problem, objects = read_objects(self._client, key)
            except ClientError as error:
                return decide.GateObservation(problem=str(error))
            return decide.GateObservation(
                problem=problem, objects=list(map(observed_object, objects))
            )
        if gate.nodes is not None:
            statuses = ((each.spec.node_name, each.status) for each in replacements)
            busy = frozenset(n for n, s in statuses if s.occupies_slot or s.is_stalled)
            return decide.GateObservation(nodes=nodes, in_flight=busy)
        if gate.alerts is not None:
            return decide.GateObservation(alerts=self._alerts(gate.alerts))
        owners = {
            owner.uid: owner
            for each in replacements
            if any(o.uid == rollout.metadata.uid for o in each.metadata.owner_references)
            for owner in each.status.evicted_owners
        }
        return self._evicted(owners.values())

    def _alerts(self, gate: api.AlertsGate) -> decide.AlertResult:
        at = self._clock.now()
        try:
            return decide.AlertResult(at, 0, self._read_alerts(query_of_gate(gate)))
        except QueryFailed as error:
            return decide.AlertResult(at, 0, failure=str(error))

    def _evicted(self, owners: Iterable[api.OwnerKey]) -> decide.GateObservation:
        wanted = {owner.uid for owner in owners}
        found: list[decide.Workload] = []
        for key in WORKLOAD_KINDS if wanted else ():
            try:
                problem, objects = read_objects(self._client, key)
            except ClientError as error:
                problem, objects = str(error), ()
            if problem:
                return decide.GateObservation(problem=problem)
            found += [workload_of(key.kind, obj) for obj in objects if uid_of(obj) in wanted]
        return decide.GateObservation(workloads=found)
