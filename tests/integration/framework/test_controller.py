"""A whole controller: a custom kind, owned objects, finalizer, status and events."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.integration.framework.kinds import CONFIG_MAPS, GIZMOS, ConfigMap, Gizmo
from tests.integration.framework.waiting import until
from tests.servers import Served

from navarchos.client import (
    Client,
    NotFound,
    ResourceClient,
    add_finalizer,
    has_finalizer,
    owner_reference,
    remove_finalizer,
)
from navarchos.events import EventType
from navarchos.runtime import (
    DONE,
    Builder,
    Condition,
    Manager,
    Reconciler,
    Request,
    Result,
    is_true,
    set_condition,
)
from navarchos.testing.managers import StartManager

FINALIZER = "framework.example.com/copies"


class CopyMaker(Reconciler):
    """Keeps a config map for each copy that a gizmo wants, and takes them away with it."""

    def __init__(self, manager: Manager) -> None:
        self._clock = manager.clock
        self._gizmos = manager.cached_client(GIZMOS)
        self._maps = manager.cached_client(CONFIG_MAPS)
        self._recorder = manager.recorder

    def reconcile(self, request: Request) -> Result:
        gizmo = self._gizmos.find(request.name, request.namespace)
        if gizmo is None:
            return DONE
        if gizmo.metadata.deletion_timestamp is not None:
            self._release(gizmo)
            return DONE
        if patch := add_finalizer(gizmo.metadata, FINALIZER):
            gizmo = self._gizmos.patch(gizmo, patch)
        for copy in gizmo.spec.copies:
            self._ensure(gizmo, f"{request.name}-{copy}")
        self._report(gizmo)
        return DONE

    def _ensure(self, gizmo: Gizmo, name: str) -> None:
        namespace = gizmo.metadata.namespace
        if self._maps.find(name, namespace) is None:
            owners = msgspec.to_builtins([owner_reference(gizmo, GIZMOS)])
            body = {"metadata": {"name": name, "ownerReferences": owners}}
            self._maps.create(body, namespace)
            self._recorder.record(GIZMOS, gizmo, EventType.NORMAL, "Copied", name)

    def _report(self, gizmo: Gizmo) -> None:
        generation = gizmo.metadata.generation
        ready = Condition(
            type="Ready", status="True", reason="Copied", observed_generation=generation
        )
        conditions = set_condition(gizmo.status.conditions, ready, now=self._clock.now())
        status = {"observedGeneration": generation, "conditions": msgspec.to_builtins(conditions)}
        if (generation, conditions) != (
            gizmo.status.observed_generation,
            gizmo.status.conditions,
        ):
            self._gizmos.patch_status(gizmo, status)

    def _release(self, gizmo: Gizmo) -> None:
        meta = gizmo.metadata
        for copy in gizmo.spec.copies:
            found = self._maps.find(f"{meta.name}-{copy}", meta.namespace)
            if found is not None:
                self._maps.delete(found)
        if patch := remove_finalizer(meta, FINALIZER):
            self._gizmos.patch(gizmo, patch)


@pytest.fixture
def running(served: Served, gizmos_served: None, manager: StartManager) -> Manager:
    """The manager at work."""
    return manager(
        lambda m: Builder(m).for_(GIZMOS).owns(CONFIG_MAPS).build(CopyMaker(m)),
        config=served.config,
    )


@pytest.fixture
def names(maps: ResourceClient[ConfigMap], namespace: str) -> Callable[[], set[str]]:
    """The gizmo's config maps; clusters create another one in every namespace."""
    return lambda: {
        found.metadata.name
        for found in maps.list(namespace).items
        if found.metadata.name.startswith("a-")
    }


@pytest.mark.usefixtures("running")
def test_owned_objects_are_created_kept_and_deleted(
    client: Client,
    gizmos: ResourceClient[Gizmo],
    maps: ResourceClient[ConfigMap],
    namespace: str,
    names: Callable[[], set[str]],
) -> None:
    def is_ready() -> bool:
        found = gizmos.get("a", namespace)
        seen = found.status.observed_generation == found.metadata.generation
        return seen and is_true(found.status.conditions, "Ready")

    gizmos.create({"metadata": {"name": "a"}, "spec": {"copies": ["x", "y"]}}, namespace)
    until(is_ready)
    assert names() == {"a-x", "a-y"}
    assert has_finalizer(gizmos.get("a", namespace).metadata, FINALIZER)

    before = maps.get("a-x", namespace).metadata.uid
    maps.delete("a-x", namespace)
    until(lambda: names() == {"a-x", "a-y"})
    assert maps.get("a-x", namespace).metadata.uid != before

    gizmos.patch("a", {"spec": {"copies": ["x", "y", "z"]}}, namespace)
    until(is_ready)
    assert names() == {"a-x", "a-y", "a-z"}

    gizmos.delete("a", namespace)
    until(lambda: is_gone(gizmos, namespace))
    assert names() == set()
    query = {"fieldSelector": "involvedObject.name=a,reason=Copied"}
    answer: Any = msgspec.json.decode(
        client.raw("GET", f"/api/v1/namespaces/{namespace}/events", query=query).body
    )
    assert {event["involvedObject"]["kind"] for event in answer["items"]} == {"Gizmo"}


def is_gone(gizmos: ResourceClient[Gizmo], namespace: str) -> bool:
    try:
        gizmos.get("a", namespace)
    except NotFound:
        return True
    return False
