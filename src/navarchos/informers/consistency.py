"""An alarm for streamed lists that differ from ordinary ones (RF-29)."""

import os
from typing import Final, Generic, TypeVar

from navarchos.client.errors import ClientError
from navarchos.informers.errors import InconsistentList
from navarchos.informers.ingest import Draft
from navarchos.informers.scoped import ScopedSource
from navarchos.logs import get_logger
from navarchos.meta import ResourceVersion, identity_of, key_of
from navarchos.stopping import StopToken

__all__ = ["DETECT_VARIABLE", "ConsistencyDetector", "detector_wanted"]

T = TypeVar("T")

DETECT_VARIABLE: Final = "NAVARCHOS_DETECT_INCONSISTENT_LISTS"
"""The environment variable that turns the detector on, when it is not empty."""

_log = get_logger(__name__)


def detector_wanted() -> bool:
    """Tell whether the environment asks for the detector."""
    return bool(os.environ.get(DETECT_VARIABLE))


class ConsistencyDetector(Generic[T]):
    """Lists again, in the ordinary way and at the same version, and compares.

    For test suites and canaries: each streamed list costs a whole list more.
    As client-go's `KUBE_WATCHLIST_INCONSISTENCY_DETECTOR`.

    Threads: owned by the reflector's thread.
    """

    def __init__(self, source: ScopedSource[T]) -> None:
        self._source = source

    def check(self, draft: Draft[T], version: ResourceVersion, stop: StopToken) -> None:
        """Compare a streamed list with an ordinary one, by uid and version of each object.

        A list that fails, for instance because that version has just been
        compacted, proves nothing and is only logged.

        Args:
            draft: The streamed list.
            version: Its version.
            stop: Ends the wait for the ordinary list.

        Raises:
            InconsistentList: They differ.
            Stopped: The token was set.
        """
        try:
            page = self._source.page(version, limit=0, match="Exact", stop=stop)
        except ClientError as error:
            _log.warning("streamed_list_not_checked", resource=self._source.name, why=str(error))
            return
        listed = {key_of(obj): _stamp(obj) for obj in page.items}
        unreadable = {failure.key for failure in page.failures} | draft.unreadable.keys()
        streamed = {key: _stamp(obj) for key, obj in draft.objects.items()}
        differing = {
            key
            for key in (listed.keys() | streamed.keys()) - unreadable
            if listed.get(key) != streamed.get(key)
        }
        if differing:
            raise InconsistentList(self._source.name, version, differing)


def _stamp(obj: object) -> tuple[str, str]:
    identity = identity_of(obj)
    return identity.uid, identity.resource_version
