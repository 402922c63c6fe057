"""Puts the objects of a new cluster on a server, whoever gives the uids."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from navarchos.testing.cluster.kinds import (
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    NODES,
    REPLICA_SETS,
    STATEFUL_SETS,
)
from navarchos.testing.server import Server

__all__ = ["install_owned"]

JsonObject = dict[str, Any]

_OWNERS: Final = {
    each.kind: each for each in (DAEMON_SETS, DEPLOYMENTS, JOBS, NODES, REPLICA_SETS, STATEFUL_SETS)
}


def install_owned(server: Server, manifests: Sequence[JsonObject]) -> None:
    """Create objects that say by uid which of the others owns them.

    The in-process server keeps uids as they are given. A real one gives its own, and
    owners are named by those: so owners are created first, and looked at.

    Args:
        server: Where to.
        manifests: Objects with uids, owners before what they own.
    """
    given: dict[str, str] = {}  # the server's uid of an owner, where it is another one
    for generation in _generations(manifests):
        server.install(*(_with_owners(manifest, given) for manifest in generation))
        given.update(_other_uids(server, generation))


def _generations(manifests: Iterable[JsonObject]) -> list[list[JsonObject]]:
    """Sort objects by how many owners are above them."""
    depths: dict[str, int] = {}
    found: dict[int, list[JsonObject]] = defaultdict(list)
    for manifest in manifests:
        metadata = manifest["metadata"]
        owners = [owner["uid"] for owner in metadata.get("ownerReferences", ())]
        depth = max((depths[uid] + 1 for uid in owners), default=0)
        depths[metadata["uid"]] = depth
        found[depth].append(manifest)
    return [found[depth] for depth in sorted(found)]


def _with_owners(manifest: JsonObject, given: Mapping[str, str]) -> JsonObject:
    metadata = manifest["metadata"]
    owners = metadata.get("ownerReferences", ())
    if not any(owner["uid"] in given for owner in owners):
        return manifest
    named = [{**owner, "uid": given.get(owner["uid"], owner["uid"])} for owner in owners]
    return {**manifest, "metadata": {**metadata, "ownerReferences": named}}


def _other_uids(server: Server, manifests: Iterable[JsonObject]) -> Iterator[tuple[str, str]]:
    made: dict[str, list[JsonObject]] = defaultdict(list)
    for manifest in manifests:
        made[manifest["kind"]].append(manifest["metadata"])
    for kind in made.keys() & _OWNERS.keys():
        resource = _OWNERS[kind]
        stored = {
            _key(each["metadata"]): each["metadata"]["uid"]
            for each in server.list(resource.plural, group=resource.group)
        }
        for metadata in made[kind]:
            uid = stored[_key(metadata)]
            if uid != metadata["uid"]:
                yield metadata["uid"], uid


def _key(metadata: JsonObject) -> tuple[str, str]:
    return metadata.get("namespace", ""), metadata["name"]
