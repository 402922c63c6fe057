"""Slots: which nodes are in flight for any system, and which system may start the next ones.

Several systems of one process take nodes out of service: rollouts, and others beside them. Each has
its own admission and its own limit. They meet only here: they take turns, each counts the nodes
of all others, and each may object to the start of a node (NP-01).
"""

import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from navarchos.clock import Clock
from navarchos.errors import NavarchosError
from navarchos.informers import SharedInformer, Tombstone
from navarchos.logs import get_logger
from navarchos.meta import Object, controller_of
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.clients import OperatorClients
from navarchos.operator.nodes import Node

__all__ = [
    "DRAINS",
    "ROLLOUTS",
    "Holder",
    "ReportedSlots",
    "Slots",
    "SlotsUnknown",
    "drain_holders",
    "is_of_replacement",
    "names_of_holders",
    "operator_slots",
    "orphaned_nodes",
    "replacement_holders",
]

T = TypeVar("T", bound=Object)

ROLLOUTS: Final = "rollouts"
"""The system whose slots are NodeReplacements in flight."""

DRAINS: Final = "drains"
"""The slots of NodeDrains that no NodeReplacement controls. This system starts no nodes."""

_MAX_NAMES: Final = 3
"""Holders that a message names. It counts the others."""

_log = get_logger(__name__)

_turn: ContextVar["Slots | None"] = ContextVar("navarchos_slots_turn", default=None)
"""The slots whose turn the current thread has."""


class SlotsUnknown(NavarchosError):
    """A system could not report its slots or its objections, so no node may start.

    Attributes:
        system: The name of the system. The cause is chained.
    """

    def __init__(self, system: str) -> None:
        super().__init__(system)
        self.system = system

    def __str__(self) -> str:
        return f"system={self.system!r}: its slots are unknown, so no node starts: {self.__cause__}"


@dataclass(frozen=True, slots=True)
class Holder:
    """The object because of which a node is in flight.

    Attributes:
        kind: Its kind. The kinds of a system are a closed set.
        name: Its name, with the namespace if it has one.
        text: What else helps to find it, such as its owner; may be empty.
        owner_kind: The kind that created the object to take the slot; empty without one.
    """

    kind: str
    name: str
    text: str = ""
    owner_kind: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name} ({self.text})" if self.text else f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class ReportedSlots:
    """What a system reports to a command, which runs none of its controllers.

    Attributes:
        holders: The nodes that the system holds, by name.
        objections: Why nodes must stay in service now, by name.
    """

    holders: Mapping[str, Holder]
    objections: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Source:
    system: str
    holders: Callable[[], Mapping[str, Holder]]
    watch: Callable[[Callable[[], None]], None] | None


@dataclass(frozen=True, slots=True)
class _Admission:
    sees: frozenset[str]
    """The systems whose changes it notices itself."""
    notify: Callable[[], None]


class Slots:
    """The slots of all systems of this process.

    A system registers at assembly, or later when its kinds are installed: the slots that it
    takes, its objections to the start of nodes, and its admission. What it reports is a function
    of cached objects. The caches must belong to the manager, so that a new leader waits until
    they have caught up, and must show the writes of this process.

    Promises: two admissions that use `turn` and `holders` never take the same slot.

    Threads: register from one thread at a time; the rest from any thread.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sources: list[_Source] = []
        self._objections: list[tuple[str, Callable[[str], str | None]]] = []
        self._admissions: list[_Admission] = []
        self._confirmations: list[Callable[[], None]] = []
        self._kinds: set[str] = set()
        self._watched: set[str] = set()
        self._turn_ended = threading.Condition()
        self._is_taken = False  # guarded by _turn_ended
        self._logged_kinds: set[str] = set()  # guarded by _turn_ended

    # Registration

    def add_source(
        self,
        system: str,
        holders: Callable[[], Mapping[str, Holder]],
        *,
        watch: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        """Register the nodes that a system holds.

        Args:
            system: The system's name.
            holders: Returns the holder of each of its nodes, from cached objects.
            watch: Called with a function that must be called when the answer may have changed;
                only if there is an admission of another system. Without it the system itself
                calls `notify`.
        """
        self._sources.append(_Source(system, holders, watch))
        if any(system not in admission.sees for admission in self._admissions):
            self._watch(system)

    def add_objection(self, system: str, objection: Callable[[str], str | None]) -> None:
        """Register a reason why nodes must not start now.

        Args:
            system: The system's name; it calls `notify` when an answer may have changed.
            objection: Given the name of a node, returns in words why it must stay in service
                now; `None` if it may start. The text must not change while the reason stays.
        """
        self._objections.append((system, objection))

    def add_admission(
        self,
        system: str,
        notify: Callable[[], None],
        *,
        confirm: Callable[[], None] | None = None,
        kinds: Iterable[str] = (),
        sees: Iterable[str] = (),
    ) -> None:
        """Register an admission.

        Args:
            system: The system's name.
            notify: Requests a run within a second, and does not block. Called when a slot or an
                objection of another system may have changed.
            confirm: Called at the beginning of each turn of any system. It must read from the
                server the objects whose last write had no response, so that caches show them, and
                raise if it cannot. Without such objects it must send no request.
            kinds: The kinds of this system that own NodeDrains.
            sees: Systems whose changes `notify` need not report, because the admission watches
                their objects itself.
        """
        admission = _Admission(frozenset({system, *sees}), notify)
        self._admissions.append(admission)
        self._kinds.update(kinds)
        if confirm is not None:
            self._confirmations.append(confirm)
        for source in list(self._sources):
            if source.system not in admission.sees:
                self._watch(source.system)

    def _watch(self, system: str) -> None:
        if system in self._watched:
            return
        self._watched.add(system)
        for source in self._sources:
            if source.system == system and source.watch is not None:
                source.watch(lambda: self.notify(system))

    # Use

    @property
    def has_objections(self) -> bool:
        """Whether any system may object."""
        return bool(self._objections)

    def notify(self, system: str) -> None:
        """Request a run of the admissions of all other systems: a slot or objection changed."""
        for admission in self._admissions:
            if system not in admission.sees:
                admission.notify()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait until no other admission decides, and keep the turn.

        An admission observes, decides and writes its starts within one turn. Caches then show the
        writes of all admissions of this process, also of those that had no response.

        Raises:
            RuntimeError: This thread has the turn already.
            ClientError: A write had no response, and its object could not be read.
        """
        if _turn.get() is self:
            raise RuntimeError("this thread has the turn already; end it before the next one")
        with self._turn_ended:
            while self._is_taken:
                self._clock.wait(self._turn_ended, None)
            self._is_taken = True  # mutant: no-turns
        token = _turn.set(self)
        try:
            for confirm in self._confirmations:
                confirm()  # mutant: unconfirmed-writes-of-others
            yield
        finally:
            _turn.reset(token)
            with self._turn_ended:
                self._is_taken = False
                self._turn_ended.notify()

    def holders(self, *, without: str = "") -> dict[str, Holder]:
        """Return the holder of each node in flight, by name of the node.

        If a node has several holders, the one that was registered first is returned.

        Args:
            without: A system that is left out, because it counts its own nodes.

        Raises:
            SlotsUnknown: A system failed to report its slots.
        """
        found: dict[str, Holder] = {}
        for source in self._sources:
            if source.system == without:  # mutant: sources-ignored
                continue
            with self._reporting(source.system):
                held = source.holders()
            for node, holder in held.items():
                found.setdefault(node, holder)
        self._log_unknown_kinds(found.values())
        return found

    def objection(self, node: str) -> str | None:
        """Return why a node must stay in service now, or `None`.

        Raises:
            SlotsUnknown: A system failed to answer.
        """
        for system, objection in self._objections:
            with self._reporting(system):
                text = objection(node)
            if text is not None:
                return text
        return None

    @contextmanager
    def _reporting(self, system: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            _log.exception("slots_unknown", system=system, error=str(error))
            raise SlotsUnknown(system) from error

    def _log_unknown_kinds(self, holders: Iterable[Holder]) -> None:
        """Log each kind that owns slots and that no system of this process handles (NP-07)."""
        for holder in holders:
            kind = holder.owner_kind
            if not kind or kind in self._kinds:
                continue
            with self._turn_ended:
                is_new = kind not in self._logged_kinds
                self._logged_kinds.add(kind)
            if is_new:
                _log.warning("slot_of_unknown_kind", kind=kind, name=holder.name, slot=holder.kind)


def names_of_holders(holders: Iterable[Holder], others: int = 0) -> str:
    """Return the names of a few holders, sorted, and how many nodes in flight there are besides.

    Args:
        holders: The holders.
        others: The number of other nodes in flight.
    """
    names = sorted({str(holder) for holder in holders})
    others += max(0, len(names) - _MAX_NAMES)
    named = ", ".join(names[:_MAX_NAMES])
    if not others:
        return named
    return f"{named} and {others} other" if others == 1 else f"{named} and {others} others"


def drain_holders(
    drains: Iterable[api.NodeDrain], nodes: Mapping[str, Object]
) -> dict[str, Holder]:
    """Return the nodes that are held by a NodeDrain that no NodeReplacement controls (NP-02).

    Such a drain holds its node from creation until it is gone: in every phase, while it is paused,
    and while it is being deleted. A node that does not exist any more is not held.

    Args:
        drains: All drains.
        nodes: The existing nodes, by name.
    """
    found: dict[str, Holder] = {}
    foreign = [drain for drain in drains if not is_of_replacement(drain)]
    for drain in sorted(foreign, key=lambda drain: drain.metadata.name):
        node = nodes.get(drain.spec.node_name)
        # A drain of a former node of this name does nothing to the present one.
        if node is None or drain.spec.node_uid not in {"", node.metadata.uid}:
            continue
        owner = controller_of(drain.metadata)
        holder = Holder(
            api.NODE_DRAINS.kind,
            drain.metadata.name,
            _origin(drain),
            owner.kind if owner is not None else "",
        )
        found.setdefault(drain.spec.node_name, holder)
    return found


def orphaned_nodes(
    drains: Iterable[api.NodeDrain],
    replacements: Iterable[api.NodeReplacement],
    nodes: Container[str],
) -> frozenset[str]:
    """Return the nodes with an unfinished drain whose NodeReplacement was deleted."""
    uids = {replacement.metadata.uid for replacement in replacements}
    return frozenset(
        drain.spec.node_name
        for drain in drains
        if not drain.status.is_final
        and drain.spec.node_name in nodes
        and is_of_replacement(drain)
        and (owner := controller_of(drain.metadata)) is not None
        and owner.uid not in uids
    )


def replacement_holders(
    replacements: Iterable[api.NodeReplacement],
    drains: Iterable[api.NodeDrain],
    nodes: Container[str],
) -> dict[str, Holder]:
    """Return the nodes in flight for a NodeReplacement, stalled ones included."""
    kept = list(replacements)
    found = {
        each.spec.node_name: Holder(api.NODE_REPLACEMENTS.kind, each.metadata.name, _origin(each))
        for each in kept
        if each.status.current.in_flight
    }
    for node in orphaned_nodes(drains, kept, nodes):
        found.setdefault(node, Holder(api.NODE_DRAINS.kind, node, "of a deleted NodeReplacement"))
    return found


def is_of_replacement(drain: api.NodeDrain) -> bool:
    """Return whether a NodeReplacement controls the drain."""
    owner = controller_of(drain.metadata)
    kind = api.NODE_REPLACEMENTS
    return owner is not None and (owner.group, owner.kind) == (kind.group, kind.kind)


def _origin(obj: Object) -> str:
    owner = controller_of(obj.metadata)
    return "created by a user" if owner is None else f"of {owner.kind} {owner.name}"


def operator_slots(clients: OperatorClients, clock: Clock) -> Slots:
    """Return the slots of a process, with those that replacements and drains hold."""
    slots = Slots(clock)

    def nodes() -> Mapping[str, Node]:
        return {node.metadata.name: node for node in clients.nodes.list()}

    def watch_replacements(notify: Callable[[], None]) -> None:
        _follow(clients.replacements.informer, _state_of_replacement, notify)
        _follow(clients.drains.informer, _state_of_drain, notify)

    def watch_drains(notify: Callable[[], None]) -> None:
        _follow(clients.drains.informer, _state_of_drain, notify)
        _follow(clients.nodes.informer, _state_of_node, notify)

    slots.add_source(
        ROLLOUTS,
        lambda: replacement_holders(clients.replacements.list(), clients.drains.list(), nodes()),
        watch=watch_replacements,
    )
    slots.add_source(
        DRAINS, lambda: drain_holders(clients.drains.list(), nodes()), watch=watch_drains
    )
    return slots


def _state_of_replacement(replacement: api.NodeReplacement) -> object:
    return replacement.status.current.in_flight


def _state_of_drain(drain: api.NodeDrain) -> object:
    return drain.status.is_final


def _state_of_node(node: Node) -> object:
    return node.metadata.uid


def _follow(
    informer: SharedInformer[T], state: Callable[[T], object], notify: Callable[[], None]
) -> None:
    informer.add_handler(_SlotWatcher(state, notify))


class _SlotWatcher(Generic[T]):
    """Calls a function when objects come, go, or change in one part. A handler of an informer."""

    def __init__(self, state: Callable[[T], object], notify: Callable[[], None]) -> None:
        self._state = state
        self._notify = notify

    def on_add(self, obj: T, is_in_initial_list: bool) -> None:
        self._notify()

    def on_update(self, old: T, new: T) -> None:
        if self._state(old) != self._state(new):
            self._notify()

    def on_delete(self, obj: T | Tombstone[T]) -> None:
        self._notify()
