"""The objects that rollouts and replacements are decided from."""

import threading
from dataclasses import dataclass, field
from typing import Final

from navarchos.errors import NavarchosError
from navarchos.operator.api.v1alpha1 import NodeDrain, NodeReplacement, NodeRollout
from navarchos.operator.kinds import Kind
from navarchos.operator.nodes import Node

__all__ = ["CachesBehind", "Objects"]

_CATCH_UP_TIMEOUT: Final = 30.0


class CachesBehind(NavarchosError):
    """A cache could not be brought up to the server's present state in time.

    Attributes:
        resource: The kind whose cache is behind.
    """

    def __init__(self, resource: str) -> None:
        super().__init__(resource)
        self.resource = resource

    def __str__(self) -> str:
        return f"the cache of {self.resource} is behind the server; trying again"


@dataclass
class _Once:
    lock: threading.Lock = field(default_factory=threading.Lock)
    done: bool = False  # guarded by lock


@dataclass(frozen=True)
class Objects:
    """The kinds of this operator, and nodes.

    Threads: safe from any thread.
    """

    rollouts: Kind[NodeRollout]
    replacements: Kind[NodeReplacement]
    drains: Kind[NodeDrain]
    nodes: Kind[Node]
    _once: _Once = field(default_factory=_Once)

    def catch_up_once(self) -> None:
        """Bring every cache to the present, the first time it is called.

        Reconcilers call it first: they run only while this process leads, so the
        first call is after leadership was gained, and what the former leader wrote
        until then is seen (OP-21). Later, reads see our own writes, and nobody
        else writes what decisions depend on.

        Raises:
            CachesBehind: Not in time; the next call tries again.
        """
        with self._once.lock:
            if self._once.done:
                return
            for kind in (self.rollouts, self.replacements, self.drains, self.nodes):
                if not kind.informer.catch_up(_CATCH_UP_TIMEOUT):
                    raise CachesBehind(str(kind.resource))
            self._once.done = True
