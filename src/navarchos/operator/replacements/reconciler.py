"""The replacement's reconciler: one worker for admission and for every node."""

from typing import Final

from navarchos.logs import get_logger
from navarchos.operator.api.v1alpha1 import NodeReplacement, Step
from navarchos.operator.objects import Objects
from navarchos.operator.replacements.admission_loop import AdmissionLoop
from navarchos.operator.replacements.pipeline import Pipeline
from navarchos.runtime import DONE, OUTDATED_READ, Reconciler, Request, Result

__all__ = ["ADMISSION", "ReplacementReconciler"]

ADMISSION: Final = Request("navarchos", "admission")
"""The request that stands for all replacements at once.

Replacements have no namespace, so none of them can have this key. Any number of
changes before it runs are one pass: the queue keeps a key once.
"""

_log = get_logger(__name__)


class ReplacementReconciler(Reconciler):
    """Admits nodes, and moves those that were admitted along.

    Threads: one worker (OP-21). Two could each see room for one more node.
    """

    def __init__(self, objects: Objects, admission: AdmissionLoop, pipeline: Pipeline) -> None:
        self._objects = objects
        self._admission = admission
        self._pipeline = pipeline

    def reconcile(self, request: Request) -> Result:
        """Run one pass of admission, or move one node as far as it goes now.

        A node that gives its slot back lets the next one start at once (OP-23): the watch
        would bring admission about as well, behind all the nodes that wait for this worker.
        """
        if request == ADMISSION:
            after = self._admission.throttled_for()
            if after is None:
                after = self._admission.run()
            return DONE if after is None else Result(requeue_after=after)
        try:
            if self._advance(request.name):
                # When to look again is the answer of the pass that the watch brings about.
                self._admission.run()
        except OUTDATED_READ as error:
            _log.debug("replacement_overtaken", name=request.name, error=str(error))
            return Result(requeue=True)
        deferred_write_in = self._pipeline.deferred_write_in(request.name)
        return DONE if deferred_write_in is None else Result(requeue_after=deferred_write_in)

    def _advance(self, name: str) -> bool:
        """Move a node as far as it goes now; return whether it has given its slot back."""
        found = replacement = self._objects.replacements.find(name)
        # No step leads back to one that was left in the same pass, except by way of
        # Waiting, which only admission leaves.
        for _ in Step:
            if replacement is None or replacement.metadata.deletion_timestamp is not None:
                self._pipeline.forget(name)
                break
            moved = self._pipeline.advance(replacement)
            if moved.metadata.resource_version == replacement.metadata.resource_version:
                break
            replacement = moved
        return _occupies_slot(found) and not _occupies_slot(replacement)


def _occupies_slot(replacement: NodeReplacement | None) -> bool:
    return replacement is not None and replacement.status.occupies_slot
