"""The DaemonSets of the nodes that are being verified, and their pods.

Only a rollout with `action.verify.daemonSets` needs them. So nothing is listed or watched
before a node of such a rollout is verified, and nothing afterwards.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from navarchos.client import Client, Resource
from navarchos.client.taints import Toleration
from navarchos.clock import Clock
from navarchos.drain import PODS, Pod, pods_on
from navarchos.informers import InformerOptions, Scope, SharedInformer
from navarchos.informers.source import informer_rbac
from navarchos.instrument import Instruments
from navarchos.meta import Object
from navarchos.operator.nodes import Node
from navarchos.placement.kinds import Affinity
from navarchos.placement.node_rules import (
    DAEMON_TOLERATIONS,
    NodeAffinityRule,
    untolerated_taints,
)
from navarchos.stopping import StopToken

__all__ = [
    "DAEMON_SET_TEMPLATES",
    "RBAC",
    "DaemonPodSpec",
    "DaemonPodTemplate",
    "DaemonSetSpec",
    "DaemonSetTemplate",
    "DaemonSetWatches",
    "selects",
]

_JOIN_TIMEOUT: Final = 10.0


class DaemonPodSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """The fields of a pod template that decide which nodes get a pod."""

    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()


class DaemonPodTemplate(msgspec.Struct, frozen=True, gc=False):
    """The pod template of a DaemonSet."""

    spec: DaemonPodSpec = DaemonPodSpec()


class DaemonSetSpec(msgspec.Struct, frozen=True, gc=False):
    """The spec of a DaemonSet."""

    template: DaemonPodTemplate = DaemonPodTemplate()


class DaemonSetTemplate(Object, frozen=True):
    """A DaemonSet, with the fields that decide which nodes get a pod. Read-only."""

    spec: DaemonSetSpec = DaemonSetSpec()


DAEMON_SET_TEMPLATES: Final = Resource(
    "apps", "v1", "daemonsets", "DaemonSet", namespaced=True, type=DaemonSetTemplate
)

RBAC: Final = informer_rbac(DAEMON_SET_TEMPLATES, PODS)
"""Permissions of the watches. RBAC cannot be limited by a selector."""


def selects(daemon_set: DaemonSetTemplate, node: Node) -> bool:
    """Return whether the DaemonSet controller keeps a pod on a node, also on a cordoned one."""
    spec = daemon_set.spec.template.spec
    tolerations = (*spec.tolerations, *DAEMON_TOLERATIONS)
    if NodeAffinityRule(spec.node_selector, spec.affinity).why_not(node):
        return False
    return not any(untolerated_taints(node.spec.taints, tolerations))


class DaemonSetWatches:
    """Informers on the DaemonSets of the cluster, and on the pods of each verified node.

    Lifecycle: the manager runs it. The first call of `read` for a replacement starts its watches;
    `forget` stops them. A new process starts them again.

    Args:
        client: Lists and watches.
        wake: Called with the name of a replacement when its result may have changed, from a
            thread of an informer; must be quick.
        clock: Time.
        instruments: Where informers count.

    Threads: safe from any thread.
    """

    def __init__(
        self,
        client: Client,
        *,
        wake: Callable[[str], None],
        clock: Clock,
        instruments: Instruments,
    ) -> None:
        self._client = client
        self._wake = wake
        self._clock = clock
        self._instruments = instruments
        self._lock = threading.Lock()
        # guarded by _lock; by replacement: the node, and the informer of its pods
        self._pods: dict[str, tuple[str, SharedInformer[Pod]]] = {}
        self._daemon_sets: SharedInformer[DaemonSetTemplate] | None = None  # guarded by _lock
        self._ending: list[SharedInformer[Pod] | SharedInformer[DaemonSetTemplate]] = []
        self._closed = False  # guarded by _lock

    def run(self, stop: StopToken) -> None:
        """Wait for the stop of the process, then stop all watches."""
        stop.wait()
        self.close()

    def read(
        self, replacement: str, node: str
    ) -> tuple[Sequence[DaemonSetTemplate], Sequence[Pod]] | None:
        """Return all DaemonSets, and the pods of a node.

        Returns:
            `None` while the first lists have not arrived; then ask again soon, because an empty
            list wakes no replacement.
        """
        found = self._informers(replacement, node)
        if found is None or not all(informer.has_synced() for informer in found):
            return None
        daemon_sets, pods = found
        return daemon_sets.lister.list(), pods.lister.list()

    def forget(self, replacement: str) -> None:
        """Stop the watches of a replacement that is not verified any more."""
        with self._lock:
            _, informer = self._pods.pop(replacement, ("", None))
            stopped = [informer] if informer is not None else []
            if not self._pods and self._daemon_sets is not None:
                self._ending.append(self._daemon_sets)
                self._daemon_sets.stop()
                self._daemon_sets = None
            self._ending += stopped
            self._ending = [each for each in self._ending if not each.join(0)]
        for each in stopped:
            each.stop()

    def _informers(
        self, replacement: str, node: str
    ) -> tuple[SharedInformer[DaemonSetTemplate], SharedInformer[Pod]] | None:
        """Return the informers of a replacement, started; `None` once the process stops."""
        with self._lock:
            known = self._pods.get(replacement)
            if known is not None and known[0] == node and self._daemon_sets is not None:
                return self._daemon_sets, known[1]
        if known is not None:
            self.forget(replacement)  # another node took its place
        pods = self._make_pods(replacement, node)
        with self._lock:
            if self._closed:  # nothing would end the informers
                return None
            self._pods[replacement] = node, pods
            if self._daemon_sets is None:
                self._daemon_sets = self._make_daemon_sets()
                self._daemon_sets.start()
            daemon_sets = self._daemon_sets
        pods.start()
        return daemon_sets, pods

    def _make_pods(self, replacement: str, node: str) -> SharedInformer[Pod]:
        informer = SharedInformer(
            self._client.resource(PODS),
            Scope(field_selector=pods_on(node)),
            InformerOptions(name="verified-pods"),
            clock=self._clock,
            instruments=self._instruments,
        )

        def changed(*_: object) -> None:
            self._wake(replacement)

        informer.add_handler(on_add=changed, on_update=changed, on_delete=changed)
        return informer

    def _make_daemon_sets(self) -> SharedInformer[DaemonSetTemplate]:
        informer = SharedInformer(
            self._client.resource(DAEMON_SET_TEMPLATES),
            Scope(),
            InformerOptions(name="verified-daemon-sets"),
            clock=self._clock,
            instruments=self._instruments,
        )

        def changed(*_: object) -> None:
            with self._lock:
                names = list(self._pods)
            for name in names:
                self._wake(name)

        informer.add_handler(on_add=changed, on_update=changed, on_delete=changed)
        return informer

    def __len__(self) -> int:
        with self._lock:
            return len(self._pods)

    def close(self) -> None:
        """Stop all watches and wait until their threads have ended."""
        with self._lock:
            self._closed = True
            names = list(self._pods)
        for name in names:
            self.forget(name)
        deadline = self._clock.monotonic() + _JOIN_TIMEOUT
        with self._lock:
            ending = list(self._ending)
        for informer in ending:
            informer.join(max(0.0, deadline - self._clock.monotonic()))
