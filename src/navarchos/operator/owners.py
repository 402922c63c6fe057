"""Owners of replacements, of any kind, and how they pause and cancel their replacements (NP-22).

A NodeRollout owns its replacements. A controller that creates replacements registers
the kind of their owner here, with a function that shows each owner as a rollout. Admission then
treats the replacements as those of a rollout: priorities, limits, failures and wait reasons.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from navarchos.client import Resource
from navarchos.errors import ConfigError
from navarchos.meta import ObjectMeta, OwnerReference, controller_of
from navarchos.operator.api import v1alpha1 as api

__all__ = ["ROLLOUT_KIND", "OwnerKind", "Owners", "kind_of", "owner_view"]


class OwnerKind(NamedTuple):
    """A kind of owners, in any version of its group."""

    group: str
    kind: str


ROLLOUT_KIND: Final = OwnerKind(api.GROUP, api.NODE_ROLLOUTS.kind)


def kind_of(owner: OwnerReference) -> OwnerKind:
    """Return the kind to which an owner reference points."""
    # The version of the core group is `v1`, without a group.
    return OwnerKind(owner.api_version.rpartition("/")[0], owner.kind)


def owner_view(
    metadata: ObjectMeta,
    spec: api.NodeRolloutSpec,
    nodes: Sequence[api.PlannedNode] = (),
    *,
    is_ready: bool = True,
) -> api.NodeRollout:
    """Return an owner as admission sees it: as a rollout that is in progress.

    Args:
        metadata: The metadata of the owner. One that is being deleted has abandoned its
            replacements.
        spec: `paused`, `cancel` and `strategy` count, with everything that a strategy limits.
        nodes: All nodes of the owner, of which percentages are computed.
        is_ready: Whether its replacements may start. Otherwise they wait until all of them exist.
    """
    phase = api.RolloutPhase.IN_PROGRESS if is_ready else api.RolloutPhase.NEW
    status = api.NodeRolloutStatus(phase=phase, nodes=tuple(nodes))
    return api.NodeRollout(metadata=metadata, spec=spec, status=status)


class Owners:
    """The kinds of owners that controllers of this process have registered, besides rollouts.

    Lifecycle: controllers register while the manager is assembled, or later, when the
    CustomResourceDefinitions of their kinds are installed; one thread registers at a time.
    Threads: reads and `changed` are safe from any thread.
    """

    def __init__(self) -> None:
        # Never changed, only replaced: other threads iterate over it.
        self._sources: dict[OwnerKind, Callable[[], Iterable[api.NodeRollout]]] = {}
        self._listeners: list[Callable[[str], None]] = []

    def register(
        self, resource: Resource[Any], views: Callable[[], Iterable[api.NodeRollout]]
    ) -> None:
        """Register a kind whose objects own replacements as their controller.

        Args:
            resource: The kind.
            views: Returns the `owner_view` of each owner that exists. A function of cached
                objects that sends no request. When its result may have changed, the controller
                calls `changed`.

        Raises:
            ConfigError: The kind is registered already, or it is the kind of rollouts.
        """
        kind = OwnerKind(resource.group, resource.kind)
        if kind in self._sources or kind == ROLLOUT_KIND:
            raise ConfigError("owner", resource.kind, "this kind is registered already")
        self._sources = {**self._sources, kind: views}

    def listen(self, notify: Callable[[str], None]) -> None:
        """Have a function called with the uid of each owner that may have changed."""
        self._listeners.append(notify)

    def changed(self, uid: str) -> None:
        """Report that the view of an owner may have changed; never blocks."""
        for notify in self._listeners:
            notify(uid)

    @property
    def kinds(self) -> frozenset[OwnerKind]:
        """The registered kinds, and rollouts."""
        return frozenset(self._sources) | {ROLLOUT_KIND}

    def views(self) -> Mapping[str, api.NodeRollout]:
        """Return all owners of the registered kinds, by uid."""
        return {view.metadata.uid: view for source in self._sources.values() for view in source()}

    def is_registered(self, replacement: api.NodeReplacement) -> bool:
        """Return whether an owner of a registered kind, other than a rollout, controls it."""
        owner = controller_of(replacement.metadata)
        return owner is not None and bool(self._sources) and kind_of(owner) in self._sources

    def view_of(self, replacement: api.NodeReplacement) -> api.NodeRollout | None:
        """Return the owner of a replacement for which `is_registered` holds.

        `None` if it has been deleted.
        """
        owner = controller_of(replacement.metadata)
        source = self._sources.get(kind_of(owner)) if owner is not None else None
        if owner is None or source is None:
            return None
        return next((view for view in source() if view.metadata.uid == owner.uid), None)
