"""The protocol of actions: what runs on a node after it was taken out of service (NP-20).

The operator carries out an action through three functions and knows nothing else about it. The
controller of an action registers it when a manager is assembled.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from navarchos.errors import ConfigError
from navarchos.instrument import Instruments
from navarchos.operator.api.v1alpha1 import ActionKind, Heir, NodeReplacement
from navarchos.operator.nodes import Node
from navarchos.operator.reasons import ConditionType, Reason
from navarchos.runtime import Channel, Request
from navarchos.runtime.conditions import find_condition

__all__ = [
    "ActionDone",
    "ActionFailed",
    "ActionOutcome",
    "ActionRunning",
    "Actions",
    "NodeAction",
    "has_begun",
    "unavailable_message",
]


@dataclass(frozen=True, slots=True)
class ActionRunning:
    """The action has not ended. A change of an object leads to the next call."""

    message: str
    """What it waits for. Keep it stable: each change of it is one status update."""
    deadline: datetime | None = None
    """When the action will have failed by itself, if that is known."""
    has_begun: bool = True
    """Whether the action may have affected the node; see `has_begun`."""


@dataclass(frozen=True, slots=True)
class ActionDone:
    """The action has ended well."""

    heir: Heir | None = None
    """The node that took the place of this one, which is verified instead of this one."""


@dataclass(frozen=True, slots=True)
class ActionFailed:
    """The attempt has failed: a reason for programs, and a message for users."""

    reason: str
    message: str


ActionOutcome = ActionRunning | ActionDone | ActionFailed
"""The result of each function of an action."""


class NodeAction(Protocol):
    """An action on one node at a time.

    Each function returns at once and may be called again at any time: repeating a call changes
    nothing. State is kept in objects that are found again by name, so that a crash after any
    request continues where it was. When an object of the action changes, the action requests a
    reconcile of its replacement.

    An error of the API server that may pass is raised; the call is then repeated.
    """

    def before(self, replacement: NodeReplacement, node: Node) -> ActionOutcome:
        """Prepare a node that waits. It has no slot and no cordon yet."""
        ...

    def act(self, replacement: NodeReplacement, node: Node | None) -> ActionOutcome:
        """Continue the action in the current step: Acting, Terminating or AwaitingReplacement.

        The node is `None` if the API server does not have it any more, which only the last two
        steps survive.
        """
        ...

    def cancel(self, replacement: NodeReplacement) -> ActionOutcome:
        """End an action whose attempt has failed, or that has become useless.

        Returns:
            `ActionRunning` while the action still affects the node, `ActionDone` afterwards;
            never `ActionFailed`.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Entry:
    kind: ActionKind
    action: NodeAction
    prepares: bool
    observe: Callable[[Sequence[NodeReplacement]], None] | None


class Actions:
    """The actions that the controllers of this process carry out.

    Lifecycle: controllers register while the manager is assembled, or later, when the
    CustomResourceDefinitions of their kinds are installed; one thread registers at a time.
    Threads: reads are safe from any thread.
    """

    def __init__(self, instruments: Instruments | None = None) -> None:
        self._ended = (instruments or Instruments()).counter(
            "navarchos_actions_total",
            "Actions on nodes that have ended, by kind and outcome.",
            ["action", "outcome"],
        )
        # Never changed, only replaced: other threads iterate over it.
        self._entries: dict[ActionKind, _Entry] = {}
        self.channel: Final = Channel()
        """Brings the requests of `notify` to the controller of replacements."""

    def notify(self, replacement: str) -> None:
        """Request a reconcile of a replacement: an object of its action has changed."""
        self.channel.send(Request("", replacement))

    def register(
        self,
        kind: ActionKind,
        action: NodeAction,
        *,
        prepares: bool = False,
        observe: Callable[[Sequence[NodeReplacement]], None] | None = None,
    ) -> None:
        """Add an action.

        Args:
            kind: The member of `spec.action`.
            action: Its functions.
            prepares: Whether `before` has work to do. Otherwise it is never called, and its
                nodes start as nodes without an action do.
            observe: Called in each run of admission with all replacements, in order to release
                what the action no longer needs. It must return at once.

        Raises:
            ConfigError: The kind is registered already.
        """
        if kind in self._entries:
            raise ConfigError("action", str(kind), "an action of this kind is registered already")
        self._entries = {**self._entries, kind: _Entry(kind, action, prepares, observe)}

    @property
    def available(self) -> frozenset[ActionKind]:
        """The kinds of the registered actions."""
        return frozenset(self._entries)

    @property
    def preparing(self) -> frozenset[ActionKind]:
        """The kinds of the registered actions whose `before` has work to do."""
        return frozenset(kind for kind, entry in self._entries.items() if entry.prepares)

    def observe(self, replacements: Sequence[NodeReplacement]) -> None:
        """Show all replacements to the actions that asked for them."""
        for entry in self._entries.values():
            if entry.observe is not None:
                entry.observe(replacements)

    def before(self, replacement: NodeReplacement, node: Node) -> ActionOutcome:
        """Prepare a waiting node; done at once without an action that prepares."""
        found = self._find(replacement)
        if not isinstance(found, _Entry):
            return found
        return found.action.before(replacement, node) if found.prepares else _DONE

    def act(self, replacement: NodeReplacement, node: Node | None) -> ActionOutcome:
        """Continue the action; done at once without one."""
        found = self._find(replacement)
        if not isinstance(found, _Entry):
            return found
        outcome = found.action.act(replacement, node)
        if isinstance(outcome, ActionDone):
            self._ended.labels(found.kind, "Done").inc()
        elif isinstance(outcome, ActionFailed):
            self._ended.labels(found.kind, "Failed").inc()
        return outcome

    def cancel(self, replacement: NodeReplacement) -> ActionOutcome:
        """End the action; done at once without one."""
        found = self._find(replacement)
        return found.action.cancel(replacement) if isinstance(found, _Entry) else found

    def _find(self, replacement: NodeReplacement) -> "_Entry | ActionOutcome":
        """Return the action; without one, or without its controller, the result of any call."""
        spec = replacement.spec.action
        kind = spec.kind if spec is not None else None
        if kind is None:
            return _DONE
        entry = self._entries.get(kind)
        if entry is None:
            return ActionRunning(unavailable_message(kind), has_begun=False)
        return entry


_DONE: Final = ActionDone()


def has_begun(replacement: NodeReplacement) -> bool:
    """Return whether the status records that the action of this attempt has begun."""
    found = find_condition(replacement.status.conditions, ConditionType.ACTION_COMPLETED)
    return found is not None and found.reason == Reason.ACTION_RUNNING


def unavailable_message(kind: ActionKind) -> str:
    """Return why no controller carries out an action, and what to do."""
    return (
        f"no running controller carries out action.{kind}; start the manager with "
        f"--controllers={kind.controller}"
    )
