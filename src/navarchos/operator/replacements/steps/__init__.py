"""The steps of the node pipeline: one module and one pure decision per step.

`Waiting → Reserved → Cordoned → Draining → Done`, and between the last two the steps of an
action: `decision.steps_of` has the list, which follows from the spec. A failed attempt leads from
any step in flight to `Releasing`, and from there to `Waiting` again or to `Failed`. Admission
makes a waiting node `Cancelled`. `decision.through_gates` adds Verifying for gates.

A new step takes:

1. a member of `Step`, at its place in the order, and its phase, in
   `api/v1alpha1/node_replacement.py`;
2. a module here with `decide`, and its case in `decide` below;
3. in `decision.steps_of`, when it has work; `decision.after` then leads to it;
4. its case in `StepReader.observe`, and a field of `StepObservation` if it decides from
   something new. `Pipeline._decide` gives a step that `Advance` leads to only the replacement
   and the drain, so the default of the field must not let the step advance;
5. if it does something new: a class in `decision.py`, in the union `Action`, and its case in
   `Pipeline._act`;
6. its case in `ReplacementEvents`, a style in `cli/sandbox/view.py`, an entry in
   `docs/operations.md`, and `make crds`;
7. if its drain evicts pods: the condition on `Step.DRAINING` in `ClusterReader.snapshot`.

The type checker or a test names each of these places, except the field in 4, and 7.

A new action of users (`spec.action`) takes a member of `ActionKind`, a field of `ActionSpec` (a
test finds a member without one), and a `NodeAction` that its controller registers in
`navarchos.operator.actions.Actions`.
"""

from typing import Final, assert_never

from navarchos.operator.api.v1alpha1 import Step
from navarchos.operator.replacements.steps import (
    acting,
    cordoned,
    draining,
    releasing,
    reserved,
    verifying,
    waiting,
)
from navarchos.operator.replacements.steps.decision import (
    Decision,
    GiveBack,
    NoAction,
    StepObservation,
)

__all__ = ["BEFORE_EMPTY", "decide"]

BEFORE_EMPTY: Final = frozenset({Step.RESERVED, Step.PREPARING, Step.CORDONED, Step.DRAINING})
"""Steps in flight in which a node is not empty yet, so that it can be given back."""


def decide(observed: StepObservation) -> Decision:
    """Decide what the current step of a replacement does now. Pure."""
    step = observed.replacement.status.current
    if observed.is_window_closed and step in BEFORE_EMPTY and _is_undecided(observed):
        return GiveBack()
    return _decide_step(observed, step)


def _decide_step(observed: StepObservation, step: Step) -> Decision:
    match step:
        case Step.WAITING:
            decide_step = waiting.decide
        case Step.RESERVED:
            decide_step = reserved.decide
        case Step.PREPARING | Step.CORDONED:
            decide_step = cordoned.decide
        case Step.DRAINING:
            decide_step = draining.decide
        case Step.ACTING | Step.TERMINATING | Step.AWAITING_REPLACEMENT:
            decide_step = acting.decide
        case Step.VERIFYING:
            decide_step = verifying.decide
        case Step.RETURNING:
            decide_step = releasing.decide_return
        case Step.RELEASING:
            decide_step = releasing.decide
        case Step.DONE | Step.FAILED | Step.CANCELLED:
            return NoAction()
        case _:
            assert_never(step)
    return decide_step(observed)


def _is_undecided(observed: StepObservation) -> bool:
    """Return whether the drain has neither ended nor been deleted by another client."""
    drain = observed.drain
    return drain is None or not (drain.status.is_final or drain.metadata.deletion_timestamp)
