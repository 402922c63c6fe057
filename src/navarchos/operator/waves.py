"""Waves: the first nodes of a rollout must be well before further nodes start (NP-43). Pure.

A wave has a size, not a list of names: it is full when so many nodes have started. So an edited
priority, a paused node and a repeated attempt need no rule of their own. Which wave is the
current one follows from the children; only approvals are recorded in the rollout's status.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, assert_never

import msgspec

from navarchos.errors import ConfigError
from navarchos.meta import EPOCH
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.names import APPROVE_ANNOTATION

__all__ = [
    "ApprovalRequest",
    "WaveProgress",
    "has_begun",
    "judge_approval",
    "pending_approval",
    "wave_counts",
    "wave_progress",
]

_MAX_ANNOTATION: Final = 256
"""Characters of an annotation that the status keeps, to recognize it again."""


class ApprovalRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The approval annotation, as `navarchos approve` writes it. A bare number is valid too."""

    wave: int
    by: str = ""
    at: str = ""
    """When the command ran, so that two approvals of the same wave differ."""


@dataclass(frozen=True, slots=True)
class WaveProgress:
    """The current wave."""

    status: api.WaveStatus
    """As the rollout's status shows it, without the annotation that was judged."""
    new_nodes: int | None
    """How many nodes may still start for the first time; `None` if no wave limits it."""
    message: str
    """Why nodes beyond the wave wait."""


def has_begun(child: api.NodeReplacement) -> bool:
    """Return whether a node counts towards a wave: its first attempt has started or failed.

    A node that was cancelled, or was gone before it started, showed nothing about the change.
    """
    status = child.status
    return status.start_timestamp is not None or status.current is api.Step.FAILED


def wave_counts(rollout: api.NodeRollout) -> tuple[int, ...]:
    """Return for each wave how many nodes may have started.

    Two waves of the same size are valid: percentages of a small rollout are often equal. The
    second one then holds no further node, but its soak time and its approval apply.

    Raises:
        ConfigError: A wave is smaller than the one before it, or no number or percentage.
    """
    total = len(rollout.status.nodes)
    counts: list[int] = []
    for index, wave in enumerate(rollout.spec.strategy.waves or ()):
        name = f"strategy.waves[{index}].upTo"
        try:
            count = min(max(api.resolve_count(wave.up_to, total, round_up=True), 1), total)
        except ConfigError as error:
            raise ConfigError(name, error.value, error.rule) from error
        if counts and count < counts[-1]:
            rule = f"it must not be less than the wave before it, which is {counts[-1]}"
            raise ConfigError(name, wave.up_to, f"it is {count} of {total} nodes, but {rule}")
        counts.append(count)
    return tuple(counts)


def wave_progress(
    rollout: api.NodeRollout,
    children: Iterable[api.NodeReplacement],
    now: datetime,
) -> WaveProgress | None:
    """Return the current wave of a rollout; `None` if it has no waves.

    Args:
        rollout: The rollout, whose status has the approvals and the states of its gates.
        children: Its own replacements.
        now: The present time.

    Raises:
        ConfigError: The waves are invalid.
    """
    waves = rollout.spec.strategy.waves or ()
    if not waves:
        return None
    counts = wave_counts(rollout)
    seen = _Seen.of(rollout, children)
    passed_at = EPOCH
    for index, wave in enumerate(waves):
        # Nodes beyond this wave have started, so it was over then.
        if seen.is_over or seen.begun > counts[index]:
            continue
        current = _Wave(rollout, index + 1, counts[index], wave)
        if seen.unfinished or (seen.begun < counts[index] and seen.left):
            return current.in_progress(seen)
        stable_since = _stable_since(rollout) if wave.soak_seconds else EPOCH
        if stable_since is None:  # mutant: soak-with-closed-gates
            return current.at_gates(max(seen.finished_at, passed_at))
        soaked_at = max(seen.finished_at, passed_at, stable_since)
        since, soaked_at = soaked_at, soaked_at + timedelta(seconds=wave.soak_seconds)
        if now < soaked_at:  # mutant: soak-ignored
            return current.soaking(since, soaked_at)
        approval = current.approval()
        if wave.approval and approval is None:  # mutant: approval-ignored
            return current.awaiting_approval(soaked_at)
        passed_at = max(soaked_at, approval.at if approval is not None else EPOCH)
    last = _Wave(rollout, len(waves), counts[-1], waves[-1])
    return last.completed()


def _stable_since(rollout: api.NodeRollout) -> datetime | None:
    """Return since when all gates are open; `None` if one is not.

    Gates of alerts are left out: alerts are queried only when a node could otherwise start.
    """
    known = {gate.name: gate for gate in rollout.status.gates}
    since = EPOCH
    for gate in rollout.spec.gates:
        if gate.kind is api.GateKind.ALERTS:
            continue
        status = known.get(gate.name)
        if status is None or status.state is not api.GateState.OPEN or status.since is None:
            return None
        since = max(since, status.since)
    return since


@dataclass(frozen=True, slots=True)
class _Seen:
    """The nodes of a rollout, as a wave counts them."""

    begun: int
    unfinished: bool
    """Whether a node that has begun is not finished."""
    left: bool
    """Whether a node has not begun, and can."""
    finished_at: datetime
    """When the last of the finished nodes ended."""

    @property
    def is_over(self) -> bool:
        return not self.unfinished and not self.left

    @classmethod
    def of(cls, rollout: api.NodeRollout, children: Iterable[api.NodeReplacement]) -> "_Seen":
        kept = tuple(children)
        status = rollout.status
        begun = [child for child in kept if has_begun(child)]
        names = {child.spec.node_name for child in kept}
        # A child that was deleted after it had finished keeps its result in the rollout's status.
        # mutant: deleted-replacements-forgotten
        ended = {*status.replacements_completed, *status.replacements_failed} - names
        recorded = {*ended, *status.replacements_cancelled, *names}
        finished_at = max(
            (child.status.completion_timestamp or EPOCH for child in begun), default=EPOCH
        )
        wave = status.wave
        if wave is not None and wave.state is api.WaveState.SOAKING and wave.since is not None:
            finished_at = max(finished_at, wave.since)
        return cls(
            begun=len(begun) + len(ended),
            unfinished=any(not child.status.current.is_finished for child in begun),
            left=any(not child.status.current.is_finished for child in kept if not has_begun(child))
            or any(node.name not in recorded for node in status.nodes),
            finished_at=finished_at,
        )


@dataclass(frozen=True, slots=True)
class _Wave:
    rollout: api.NodeRollout
    number: int
    count: int
    spec: api.Wave

    def approval(self) -> api.WaveApproval | None:
        """Return the recorded approval of this wave, if there is one."""
        return next(
            (
                approval
                for approval in self._approvals
                if approval.number == self.number and approval.up_to == self.count
            ),
            None,
        )

    def in_progress(self, seen: _Seen) -> WaveProgress:
        nodes = "1 node" if self.count == 1 else f"{self.count} nodes"
        message = f"{self._name} has not finished: it has {nodes}"
        status = self._status(api.WaveState.IN_PROGRESS)
        return WaveProgress(status, max(self.count - seen.begun, 0), message)

    def soaking(self, since: datetime, until: datetime) -> WaveProgress:
        message = f"{self._name} soaks for {self.spec.soak_seconds} s after its last node"
        status = self._status(api.WaveState.SOAKING, since=since, until=until)
        return WaveProgress(status, 0, message)

    def at_gates(self, since: datetime) -> WaveProgress:
        message = f"{self._name} soaks once all gates are open"
        status = self._status(api.WaveState.SOAKING, since=since)
        return WaveProgress(status, 0, message)

    def awaiting_approval(self, since: datetime) -> WaveProgress:
        name = self.rollout.metadata.name
        message = f"{self._name} needs an approval; run: navarchos approve {name}"
        status = self._status(api.WaveState.AWAITING_APPROVAL, since=since)
        return WaveProgress(status, 0, message)

    def completed(self) -> WaveProgress:
        return WaveProgress(self._status(api.WaveState.COMPLETED), None, "")

    @property
    def _name(self) -> str:
        return f"wave {self.number} of {len(self.rollout.spec.strategy.waves or ())}"

    @property
    def _approvals(self) -> tuple[api.WaveApproval, ...]:
        wave = self.rollout.status.wave
        return wave.approvals if wave is not None else ()

    def _status(
        self,
        state: api.WaveState,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> api.WaveStatus:
        return api.WaveStatus(
            number=self.number,
            of=len(self.rollout.spec.strategy.waves or ()),
            up_to=self.count,
            state=state,
            since=since,
            until=until,
            approvals=self._approvals,
        )


def judge_approval(
    rollout: api.NodeRollout, wave: api.WaveStatus, now: datetime
) -> tuple[api.WaveStatus, str | None]:
    """Apply the approval annotation to the current wave.

    Args:
        rollout: The rollout, with its annotations and its recorded status.
        wave: The current wave.
        now: The present time.

    Returns:
        The wave, with one more approval if the annotation approves it; and in words why the
        annotation was refused: empty if it was not, `None` if it was judged before. An annotation
        is judged once, so it never approves a wave that waits for an approval later.
    """
    text = rollout.metadata.annotations.get(APPROVE_ANNOTATION, "")
    before = rollout.status.wave
    if not text:
        return wave, ""
    judged = msgspec.structs.replace(wave, judged=text[:_MAX_ANNOTATION])
    if before is not None and before.judged == judged.judged:
        return judged, None
    request = _parse(text)
    if request is None:
        why = f"{APPROVE_ANNOTATION} is neither the number of a wave nor the text of an approval"
        return judged, why
    waits = wave.state is api.WaveState.AWAITING_APPROVAL and wave.number == request.wave
    if not waits:  # mutant: wrong-approval-accepted
        return judged, f"wave {request.wave} does not wait for an approval; {_describe(wave)}"
    approval = api.WaveApproval(
        number=wave.number, up_to=wave.up_to, by=request.by[:_MAX_ANNOTATION], at=now
    )
    return msgspec.structs.replace(judged, approvals=(*wave.approvals, approval)), ""


def pending_approval(rollout: api.NodeRollout) -> int | None:
    """Return the number of the wave whose approval the manager has not judged yet, if any."""
    text, wave = rollout.metadata.annotations.get(APPROVE_ANNOTATION, ""), rollout.status.wave
    if not text or (wave is not None and wave.judged == text[:_MAX_ANNOTATION]):
        return None
    request = _parse(text)
    return request.wave if request is not None else None


def _parse(text: str) -> ApprovalRequest | None:
    try:
        found = msgspec.json.decode(text, type=int | ApprovalRequest)
    except msgspec.MsgspecError:
        return None
    return ApprovalRequest(found) if isinstance(found, int) else found


def _describe(wave: api.WaveStatus) -> str:
    name = f"wave {wave.number} of {wave.of}"
    match wave.state:
        case api.WaveState.IN_PROGRESS:
            return f"{name} has not finished"
        case api.WaveState.SOAKING:
            return f"{name} soaks"
        case api.WaveState.AWAITING_APPROVAL:
            return f"{name} does"
        case api.WaveState.COMPLETED:
            return "no wave holds nodes back any more"
        case _:
            assert_never(wave.state)
