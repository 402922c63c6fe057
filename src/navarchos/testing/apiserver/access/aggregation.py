"""Cluster roles that gather the rules of others.

Upstream this is a controller of its own (clusterroleaggregation); here it is done
before the write that brings it about is answered.
"""

from typing import Final

from navarchos.testing.apiserver.access.authorizer import RBAC_GROUP
from navarchos.testing.apiserver.objects import JsonObject, dig, meta
from navarchos.testing.apiserver.selectors import label_selector_matches
from navarchos.testing.apiserver.store import BucketId, Change, Entry, Store

__all__ = ["Aggregation"]

_CLUSTER_ROLES: Final = BucketId("clusterroles", RBAC_GROUP)


class Aggregation:
    """Keeps the rules of roles with an `aggregationRule` as they should be.

    Threads: the listener runs under the store's lock.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def on_change(self, change: Change) -> None:
        """Gather again after a change of any cluster role."""
        if change.resource != _CLUSTER_ROLES:
            return
        roles = self._store.entries(_CLUSTER_ROLES)
        for role in roles:
            selectors = dig(role.obj, "aggregationRule", "clusterRoleSelectors", default=())
            if not selectors:
                continue
            rules = _gathered(role, selectors, roles)
            if rules != (role.obj.get("rules") or []):
                # Whoever gathers this one in turn is told of it, and so on.
                self._store.put(
                    _CLUSTER_ROLES,
                    {**role.obj, "metadata": dict(meta(role.obj)), "rules": rules},
                )
                return


def _gathered(role: Entry, selectors: list[JsonObject], roles: list[Entry]) -> list[JsonObject]:
    found: list[JsonObject] = []
    for selector in selectors:
        for other in roles:
            labels = meta(other.obj).get("labels") or {}
            if other.name != role.name and label_selector_matches(selector, labels):
                found += [rule for rule in other.obj.get("rules") or () if rule not in found]
    return found
