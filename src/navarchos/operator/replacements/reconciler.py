"""The replacements' reconciler: one worker for admission and for the pipeline of every node."""

from typing import Final

from navarchos.logs import get_logger
from navarchos.operator.api.v1alpha1 import NODE_REPLACEMENTS, NodeReplacement, Step
from navarchos.operator.clients import OperatorClients
from navarchos.operator.replacements.admission_loop import AdmissionLoop
from navarchos.operator.replacements.pipeline import Pipeline
from navarchos.runtime import DONE, OUTDATED_READ, Reconciler, Request, Result

__all__ = ["ADMISSION", "ReplacementReconciler"]

ADMISSION: Final = Request("navarchos", "admission")
"""The request for admission, which concerns all replacements at once.

Replacements have no namespace, so that no replacement has this key. The queue holds a key once:
any number of changes before the reconcile cause one run of admission.
"""

_log = get_logger(__name__)


class ReplacementReconciler(Reconciler):
    """Admits nodes, and advances admitted nodes through the pipeline.

    Threads: one worker (OP-21). Two workers could assign the last slot twice.
    """

    def __init__(
        self, clients: OperatorClients, admission: AdmissionLoop, pipeline: Pipeline
    ) -> None:
        self._clients = clients
        self._admission = admission
        self._pipeline = pipeline

    def reconcile(self, request: Request) -> Result:
        """Run admission, or advance one node through its steps as far as possible now.

        A node that releases its slot starts the next node at once (OP-23). The watch would
        trigger admission as well, but after all nodes that wait for this worker.
        """
        if request == ADMISSION:
            after = self._admission.run()
            return DONE if after is None else Result(requeue_after=after)
        try:
            if self._advance(request.name):
                # The result is not needed: the watch triggers admission, which returns it again.
                self._admission.run(urgent=True)
        except OUTDATED_READ as error:
            _log.debug(
                "replacement_outdated",
                kind=NODE_REPLACEMENTS.kind,
                name=request.name,
                error=str(error),
            )
            return Result(requeue=True)
        after = self._pipeline.due_in(request.name)
        return DONE if after is None else Result(requeue_after=after)

    def _advance(self, name: str) -> bool:
        """Advance a node as far as possible; return whether it has released its slot."""
        found = replacement = self._clients.replacements.find(name)
        # The loop ends: within one reconcile no step is entered twice, except through Waiting,
        # and only admission leaves Waiting.
        for _ in Step:
            if replacement is None or replacement.metadata.deletion_timestamp is not None:
                self._pipeline.forget(name)
                if replacement is not None:
                    self._pipeline.give_back(replacement)
                break
            advanced = self._pipeline.advance(replacement)
            if advanced.metadata.resource_version == replacement.metadata.resource_version:
                break
            replacement = advanced
        return _occupies_slot(found) and not _occupies_slot(replacement)


def _occupies_slot(replacement: NodeReplacement | None) -> bool:
    return replacement is not None and replacement.status.occupies_slot
