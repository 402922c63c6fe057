"""The objects of gates: informers that exist only while a rollout has such a gate."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from navarchos.client import Client, Forbidden, ListOptions, NotFound, Resource
from navarchos.client.errors import ClientError
from navarchos.client.rbac import PolicyRule
from navarchos.client.selectors import FieldSelector, Selector
from navarchos.clock import Clock
from navarchos.errors import ConfigError
from navarchos.informers import InformerOptions, Scope, SharedInformer, Tombstone
from navarchos.informers.source import informer_rbac
from navarchos.instrument import Instruments
from navarchos.logs import get_logger
from navarchos.meta import Object, Unstructured
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.gates.decide import ObservedObject, Workload
from navarchos.operator.gates.expressions import Expression, Outcome, evaluate, parse
from navarchos.stopping import StopToken

__all__ = [
    "WORKLOAD_KINDS",
    "WORKLOAD_RBAC",
    "ObjectWatches",
    "ObservedKind",
    "key_of_gate",
    "observed_object",
    "read_objects",
    "uid_of",
    "workload_of",
]

_RETRY_SECONDS: Final = 5.0
"""Seconds until a kind that does not exist, or that may not be read, is tried again."""

_SYNC_POLL: Final = 0.05
"""Seconds between two looks whether the first list has arrived."""

_TIMEOUT: Final = 10.0
_JOIN_TIMEOUT: Final = 10.0

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ObservedKind:
    """What an informer watches for gates; equal gates share it.

    Without an expression, the objects are controllers of pods.
    """

    api_version: str
    kind: str
    namespace: str = ""
    name: str = ""
    selector: str = ""
    expression: str = ""


WORKLOAD_KINDS: Final = (
    ObservedKind("apps/v1", "ReplicaSet"),
    ObservedKind("apps/v1", "StatefulSet"),
)
"""The controllers that say how many pods they want. The pods of a Job are not replaced one by one,
and the pods of a DaemonSet are not evicted."""

_WORKLOADS: Final = tuple(
    Resource("apps", "v1", f"{key.kind.lower()}s", key.kind, namespaced=True, type=Object)
    for key in WORKLOAD_KINDS
)

WORKLOAD_RBAC: Final[tuple[PolicyRule, ...]] = informer_rbac(*_WORKLOADS)
"""The permissions (RBAC) of the gate `evictedPods`."""


def key_of_gate(gate: api.GateSpec) -> ObservedKind | None:
    """Return what must be watched for a gate on objects; `None` for other gates."""
    wanted = gate.object
    if wanted is None:
        return None
    selector = "" if wanted.selector is None else str(Selector.from_spec(wanted.selector))
    return ObservedKind(
        wanted.api_version, wanted.kind, wanted.namespace, wanted.name, selector, gate.condition
    )


class _GateProblem(Exception):
    """Why objects cannot be observed, in words."""


def _resource(client: Client, wanted: ObservedKind) -> Resource[Unstructured]:
    """Find the plural of a kind.

    Raises:
        _GateProblem: The server does not serve the kind, or the namespace does not fit it.
        ClientError: The server did not answer.
    """
    group, _, version = wanted.api_version.rpartition("/")
    for each in client.api_resources(group, version):
        if each.kind == wanted.kind and "/" not in each.name:
            kind = f"{wanted.kind} of {wanted.api_version}"
            if wanted.namespace and not each.namespaced:
                raise _GateProblem(f"{kind} has no namespace: remove object.namespace")
            if wanted.name and each.namespaced and not wanted.namespace:
                raise _GateProblem(f"{kind} has a namespace: set object.namespace")
            type_ = cast("type[Unstructured]", dict)
            return Resource(group, version, each.name, each.kind, each.namespaced, type_)
    raise _GateProblem(f"the server has no kind {wanted.kind} in {wanted.api_version}")


def _scope(wanted: ObservedKind) -> Scope:
    fields = str(FieldSelector.of({"metadata.name": wanted.name})) if wanted.name else ""
    return Scope(wanted.namespace, wanted.selector, fields)


def _expression(wanted: ObservedKind) -> Expression | None:
    return parse(wanted.expression) if wanted.expression else None


def _problem_of(error: Exception, wanted: ObservedKind, plural: str) -> str:
    """Return why the manager cannot read objects, in words; the plural may be unknown."""
    if isinstance(error, Forbidden):
        group = wanted.api_version.rpartition("/")[0]
        rule = f'apiGroups: ["{group}"], resources: ["{plural}"], verbs: ["list", "watch"]'
        return (
            f"no permission to list and watch {wanted.kind} of {wanted.api_version}: add a "
            'ClusterRole with the label navarchos.pusher.com/aggregate-to-gates: "true"'
            + (f" and the rule {{{rule}}}" if plural else "")
        )
    return str(error)


def _reduced(expression: Expression | None, obj: Unstructured) -> Unstructured:
    """Return identity and outcome of an object; the rest is not kept in memory."""
    metadata = cast("Mapping[str, object]", obj.get("metadata") or {})
    kept = {
        name: metadata[name]
        for name in ("name", "namespace", "uid", "resourceVersion", "labels")
        if name in metadata
    }
    if expression is None:
        spec = cast("Mapping[str, object]", obj.get("spec") or {})
        status = cast("Mapping[str, object]", obj.get("status") or {})
        counts = {"wanted": spec.get("replicas", 1), "ready": status.get("readyReplicas", 0)}
        return {"metadata": kept, **counts}
    outcome = evaluate(expression, obj)
    return {"metadata": kept, "met": outcome.met, "value": outcome.value}


def observed_object(obj: Unstructured) -> ObservedObject:
    """Return an object as `decide` reads it."""
    return ObservedObject(_name(obj), Outcome(bool(obj.get("met")), str(obj.get("value", ""))))


def _name(obj: Unstructured) -> str:
    metadata = cast("Mapping[str, str]", obj["metadata"])
    namespace = metadata.get("namespace", "")
    return f"{namespace}/{metadata['name']}" if namespace else metadata["name"]


def uid_of(obj: Unstructured) -> str:
    """Return the uid of an object."""
    return str(cast("Mapping[str, object]", obj["metadata"]).get("uid", ""))


def workload_of(kind: str, obj: Unstructured) -> Workload:
    """Return a controller of pods as `decide` reads it."""
    wanted, ready = cast("int", obj["wanted"]), cast("int", obj["ready"])
    return Workload(f"{kind} {_name(obj)}", wanted, ready)


def read_objects(client: Client, wanted: ObservedKind) -> tuple[str, Sequence[Unstructured]]:
    """List the objects once, without an informer.

    Returns:
        Why they cannot be observed, or an empty text; and the objects, each reduced to identity
        and outcome.

    Raises:
        ClientError: The server did not answer.
    """
    try:
        expression = _expression(wanted)
        resource, scope = _resource(client, wanted), _scope(wanted)
        options = ListOptions(
            label_selector=scope.label_selector, field_selector=scope.field_selector
        )
        found = client.resource(resource).list(wanted.namespace, options=options, timeout=_TIMEOUT)
    except (_GateProblem, ConfigError, NotFound) as error:
        return str(error), ()
    except Forbidden:
        # The manager has another account, whose permissions are not known here.
        kind = f"{wanted.kind} of {wanted.api_version}"
        return f"this account has no permission to list {kind}, which the gate needs", ()
    return "", [_reduced(expression, obj) for obj in found.items]


class _OpenWatch:
    """One informer, and why it does not work."""

    def __init__(self) -> None:
        self.informer: SharedInformer[Unstructured] | None = None
        self.plural = ""  # until the kind was found
        self.problem = ""
        self.failed = False  # since the last successful check
        self.is_announced = False  # whether the first list was reported
        self.retry_at = 0.0  # monotonic


class ObjectWatches:
    """The informers of gates. A thread of the caller opens and repairs them with `service`.

    Args:
        client: Lists and watches.
        on_change: Called with the key, and the object of the event if it does not meet the
            expression; from a thread of the informer.
        on_problem: Called when a watch that worked can no longer be opened, so that `service` is
            due; from a thread of the informer.
        clock: Time.
        instruments: Where informers count.

    Threads: safe from any thread, `service` from one thread.
    """

    def __init__(
        self,
        client: Client,
        *,
        on_change: Callable[[ObservedKind, ObservedObject | None], None],
        on_problem: Callable[[], None],
        clock: Clock,
        instruments: Instruments,
    ) -> None:
        self._client = client
        self._on_change = on_change
        self._on_problem = on_problem
        self._clock = clock
        self._instruments = instruments
        self._watches_lock = threading.Lock()
        self._watches: dict[ObservedKind, _OpenWatch] = {}  # guarded by _watches_lock
        self._ending: list[SharedInformer[Unstructured]] = []  # guarded by _watches_lock
        self._closed = False  # guarded by _watches_lock

    def __len__(self) -> int:
        with self._watches_lock:
            return len(self._watches)

    def want(self, keys: Iterable[ObservedKind]) -> bool:
        """Set what is watched; stop all other informers without waiting for their threads.

        Returns:
            Whether `service` has to open informers.
        """
        wanted = dict.fromkeys(keys)
        with self._watches_lock:
            if self._closed:
                return False
            gone = [key for key in self._watches if key not in wanted]
            removed = [self._watches.pop(key).informer for key in gone]
            ended = [informer for informer in removed if informer is not None]
            self._ending = [each for each in self._ending if not each.has_ended()] + ended
            fresh = [key for key in wanted if key not in self._watches]
            self._watches.update({key: _OpenWatch() for key in fresh})
        for informer in ended:
            informer.stop("no gate needs it")
        return bool(fresh)

    def service(self, stop: StopToken) -> float | None:
        """Open informers, and try again what has failed.

        Returns:
            Seconds until the next attempt; `None` if all informers work.
        """
        with self._watches_lock:
            watches = dict(self._watches)
        due = []
        for key, watch in watches.items():
            if stop.is_set():
                return None
            if (after := self._service_one(key, watch, stop)) is not None:
                due.append(after)
        return min(due, default=None)

    def problem(self, key: ObservedKind) -> str:
        """Return why the objects cannot be observed; empty if they can."""
        with self._watches_lock:
            watch = self._watches.get(key)
            return watch.problem if watch is not None else ""

    def objects(self, key: ObservedKind) -> Sequence[ObservedObject] | None:
        """Return the objects of a gate; `None` until they have been read for the first time."""
        informer = self._synced(key)
        return (
            None if informer is None else [observed_object(obj) for obj in informer.lister.list()]
        )

    def find(self, key: ObservedKind, name: str, namespace: str) -> Unstructured | None:
        """Return one object; `None` if it does not exist."""
        informer = self._synced(key)
        return informer.lister.find(name, namespace) if informer is not None else None

    def has_synced(self, key: ObservedKind) -> bool:
        """Return whether the objects have been read for the first time."""
        return self._synced(key) is not None

    def close(self) -> None:
        """Stop all informers and wait until their threads have ended."""
        with self._watches_lock:
            self._closed = True
            open_ = [watch.informer for watch in self._watches.values()]
            self._ending += [informer for informer in open_ if informer is not None]
            self._watches.clear()
            ending = list(self._ending)
        for informer in ending:
            informer.stop("the gates end")
        deadline = self._clock.monotonic() + _JOIN_TIMEOUT
        for informer in ending:
            informer.join(max(0.0, deadline - self._clock.monotonic()))

    def _synced(self, key: ObservedKind) -> SharedInformer[Unstructured] | None:
        with self._watches_lock:
            watch = self._watches.get(key)
            informer = watch.informer if watch is not None else None
        return informer if informer is not None and informer.has_synced() else None

    def _service_one(self, key: ObservedKind, watch: _OpenWatch, stop: StopToken) -> float | None:
        now = self._clock.monotonic()
        with self._watches_lock:
            informer, failed, left = watch.informer, watch.failed, watch.retry_at - now
        if informer is not None and not failed:
            return self._announce(key, watch, informer)
        if failed and left > 0:
            return left
        try:
            if informer is None or not informer.has_synced():
                self._open(key, watch)
                return _SYNC_POLL
            if not informer.catch_up(_TIMEOUT, stop):
                return _RETRY_SECONDS
        except (_GateProblem, ConfigError, ClientError) as error:
            self._fail(key, watch, error)
            return _RETRY_SECONDS  # mutant: gate-problems-are-final
        with self._watches_lock:
            watch.problem, watch.failed = "", False
        self._on_change(key, None)
        return None

    def _announce(
        self, key: ObservedKind, watch: _OpenWatch, informer: SharedInformer[Unstructured]
    ) -> float | None:
        """Report the first list once; no event reports a list without objects."""
        if watch.is_announced:
            return None
        if not informer.has_synced():
            return _SYNC_POLL
        with self._watches_lock:
            watch.is_announced, watch.problem = True, ""
        self._on_change(key, None)
        return None

    def _open(self, key: ObservedKind, watch: _OpenWatch) -> None:
        expression = _expression(key)
        resource = _resource(self._client, key)
        watch.plural = resource.plural
        informer = SharedInformer(
            self._client.resource(resource),
            _scope(key),
            InformerOptions(
                name=f"gate-{key.kind.lower()}",
                transform=lambda obj: _reduced(expression, obj),
                on_watch_error=lambda error: self._watch_failed(key, watch, error),
            ),
            clock=self._clock,
            instruments=self._instruments,
        )
        self._listen(key, informer)
        with self._watches_lock:
            if self._closed or self._watches.get(key) is not watch:
                return  # not wanted any more
            former, watch.informer, watch.failed = watch.informer, informer, False
            # Under the lock, so that a stop follows the start.
            informer.start()
            if former is not None:
                self._ending.append(former)
        if former is not None:
            former.stop("the objects are listed again")

    def _listen(self, key: ObservedKind, informer: SharedInformer[Unstructured]) -> None:
        def added(obj: Unstructured, _is_in_initial_list: bool) -> None:
            self._changed(key, obj)

        def updated(old: Unstructured, new: Unstructured) -> None:
            if _content(old) != _content(new):
                self._changed(key, new)

        def deleted(_: Unstructured | Tombstone[Unstructured]) -> None:
            self._on_change(key, None)

        informer.add_handler(on_add=added, on_update=updated, on_delete=deleted)

    def _changed(self, key: ObservedKind, obj: Unstructured) -> None:
        unmet = key.expression and not obj.get("met")
        self._on_change(key, observed_object(obj) if unmet else None)

    def _watch_failed(self, key: ObservedKind, watch: _OpenWatch, error: Exception) -> None:
        """Record the failure. The informer tries again, but only `service` ends the problem."""
        self._fail(key, watch, error)
        if self.problem(key):
            self._on_problem()  # mutant: lost-watches-stay-lost

    def _fail(self, key: ObservedKind, watch: _OpenWatch, error: Exception) -> None:
        """Record why the objects cannot be observed.

        A server that does not answer is not reported: the gate keeps its state, and nothing
        can be written meanwhile.
        """
        problem = (
            _problem_of(error, key, watch.plural)
            if isinstance(error, Forbidden | NotFound | _GateProblem | ConfigError)
            else ""
        )
        with self._watches_lock:
            is_new = problem != watch.problem
            watch.failed = True
            watch.retry_at = self._clock.monotonic() + _RETRY_SECONDS
            if problem:
                watch.problem = problem
        if is_new:
            _log.warning(
                "gate_objects_unreadable",
                kind=key.kind,
                namespace=key.namespace,
                name=key.name,
                error=str(error),
            )
            self._on_change(key, None)


def _content(obj: Unstructured) -> Mapping[str, Any]:
    return {name: obj[name] for name in obj if name != "metadata"} | {"name": _name(obj)}
