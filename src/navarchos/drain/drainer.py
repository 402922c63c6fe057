"""`kubectl drain` as a function: drain one node and wait for its pods."""

from collections.abc import Callable
from typing import Final

import msgspec

from navarchos.client import Client
from navarchos.client.errors import NotFound
from navarchos.client.options import ListOptions
from navarchos.client.updates import retry_on_conflict
from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.drain import cordon
from navarchos.drain.errors import DrainTimeout, EvictionForbidden, NodeReplaced, PodsNotAllowed
from navarchos.drain.eviction import EvictionOutcome, EvictionResult, Evictor, retry_delay
from navarchos.drain.options import DrainOptions
from navarchos.drain.plan import DrainPlan, PlannedPod, classify
from navarchos.drain.pods import DAEMON_SETS, PODS, pods_on
from navarchos.stopping import StopToken

__all__ = ["DrainReport", "OnProgress", "drain_node"]

OnProgress = Callable[[str, EvictionResult], None]
"""Called with `namespace/name` of a pod and the result of each eviction request."""

_POLL: Final = 1.0
"""Seconds between two reads of the node and its pods, as in kubectl."""


class DrainReport(msgspec.Struct, frozen=True):
    """What a drain did. Pods are listed as `namespace/name`, sorted.

    Attributes:
        node: The node's name.
        cordoned: Whether this drain cordoned the node; False if it was cordoned before.
        evicted: Pods that this drain evicted and that are gone.
        ignored: Pods that stayed on the node.
    """

    node: str
    cordoned: bool
    evicted: tuple[str, ...]
    ignored: tuple[str, ...]


def drain_node(
    client: Client,
    name: str,
    options: DrainOptions | None = None,
    *,
    clock: Clock = SYSTEM_CLOCK,
    stop: StopToken | None = None,
    on_progress: OnProgress | None = None,
) -> DrainReport:
    """Cordon a node, evict its pods, and wait until they are gone.

    Unlike `kubectl drain`, this function lists the pods repeatedly, so that pods which arrive
    late are evicted too, and it never evicts from a later node of the same name. As with
    `kubectl drain`, the node stays cordoned in any case.

    Args:
        client: Sends the requests.
        name: The node.
        options: The options of `kubectl drain`; its defaults when absent.
        clock: Time.
        stop: Ends the wait; evicted pods stay evicted.
        on_progress: Called with the result of every eviction request.

    Raises:
        NotFound: The node does not exist.
        PodsNotAllowed: The options do not allow some pods to be evicted. No pod was evicted,
            unless the refused pod arrived late.
        DrainTimeout: The options' timeout passed.
        EvictionForbidden: The caller lacks a permission (RBAC).
        NodeReplaced: A new node has taken over the name.
        ClientError: The node could not be read or cordoned.
        Stopped: `stop` was set.
    """
    token = stop if stop is not None else StopToken(clock=clock)
    return _Drain(client, name, options or DrainOptions(), clock, on_progress).run(token)


class _Drain:
    def __init__(
        self,
        client: Client,
        name: str,
        options: DrainOptions,
        clock: Clock,
        on_progress: OnProgress | None,
    ) -> None:
        self._nodes = client.resource(cordon.NODE_SCHEDULING)
        self._pods = client.resource(PODS)
        self._daemon_sets = client.resource(DAEMON_SETS)
        self._evictor = Evictor(client)
        self._name = name
        self._options = options
        self._clock = clock
        self._on_progress = on_progress
        self._due: dict[str, float] = {}  # by uid: monotonic instant of the next request
        self._failures: dict[str, int] = {}  # by uid: refusals in a row
        self._last: dict[str, EvictionResult] = {}  # by uid
        self._evicted: dict[str, str] = {}  # by uid: namespace/name

    def run(self, stop: StopToken) -> DrainReport:
        node, cordoned = self._cordon(stop)
        plan = self._plan()
        if plan.refuse:
            raise PodsNotAllowed(self._name, plan.refuse)
        started = self._clock.monotonic()
        while True:
            stop.raise_if_set()
            self._check_node(node.metadata.uid)
            plan = self._plan()
            elapsed = self._clock.monotonic() - started
            if plan.is_drained and elapsed >= (cordon.LATE_BINDING if cordoned else 0):
                return self._report(plan, cordoned=cordoned)
            if self._options.timeout is not None and elapsed >= self._options.timeout:
                raise DrainTimeout(self._name, self._pending(plan))
            if plan.refuse:
                raise PodsNotAllowed(self._name, plan.refuse)
            self._evict_due(plan, stop)
            stop.wait(_POLL)

    def _cordon(self, stop: StopToken) -> tuple[cordon.NodeScheduling, bool]:
        return retry_on_conflict(self._try_cordon, clock=self._clock, stop=stop)

    def _try_cordon(self) -> tuple[cordon.NodeScheduling, bool]:
        node = self._nodes.get(self._name)
        meta = node.metadata
        state = cordon.cordon_state(
            unschedulable=node.spec.unschedulable, annotations=meta.annotations, key="", owner=""
        )
        if state is not cordon.CordonState.OPEN:
            return node, False
        patched = self._nodes.patch(
            self._name, cordon.cordon_patch(), resource_version=meta.resource_version, uid=meta.uid
        )
        return patched, True

    def _check_node(self, uid: str) -> None:
        if self._nodes.get(self._name).metadata.uid != uid:
            raise NodeReplaced(self._name)

    def _plan(self) -> DrainPlan:
        pods = self._pods.list(options=ListOptions(field_selector=pods_on(self._name))).items
        return classify(pods, self._options, self._daemon_set_exists, now=self._clock.now())

    def _daemon_set_exists(self, namespace: str, name: str) -> bool:
        try:
            self._daemon_sets.get(name, namespace)
        except NotFound:
            return False
        return True

    def _evict_due(self, plan: DrainPlan, stop: StopToken) -> None:
        for planned in plan.evict:
            stop.raise_if_set()
            if self._due.get(planned.uid, 0.0) <= self._clock.monotonic():
                self._record(planned, self._evict(planned))

    def _evict(self, planned: PlannedPod) -> EvictionResult:
        remove = self._evictor.delete if self._options.disable_eviction else self._evictor.evict
        result = remove(planned.pod, grace=self._options.grace)
        if result.outcome is EvictionOutcome.FORBIDDEN:
            raise EvictionForbidden(self._name, result.message)
        return result

    def _record(self, planned: PlannedPod, result: EvictionResult) -> None:
        failures = self._failures.get(planned.uid, 0)
        delay = retry_delay(result, failures, base=self._options.eviction_retry)
        self._due[planned.uid] = self._clock.monotonic() + delay
        self._last[planned.uid] = result
        self._failures[planned.uid] = 0 if result.outcome.is_done else failures + 1
        if result.outcome.is_done:
            self._evicted[planned.uid] = planned.name
        if self._on_progress is not None:
            self._on_progress(planned.name, result)

    def _pending(self, plan: DrainPlan) -> dict[str, str]:
        no_response = EvictionResult(EvictionOutcome.EVICTED)
        return {
            planned.name: self._last.get(planned.uid, no_response).message for planned in plan.to_go
        }

    def _report(self, plan: DrainPlan, *, cordoned: bool) -> DrainReport:
        ignored = {planned.uid: planned.name for planned in plan.ignore}
        gone = {name for uid, name in self._evicted.items() if uid not in ignored}
        return DrainReport(
            self._name, cordoned, tuple(sorted(gone)), tuple(sorted(ignored.values()))
        )
