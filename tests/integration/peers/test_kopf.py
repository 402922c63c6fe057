"""An unmodified operator on kopf, as a separate process, against each API server."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client as official
from kubernetes.client.exceptions import NotFoundException
from tests.integration.framework.waiting import LIMIT, until
from tests.integration.peers.optional import present
from tests.servers import Served

OPERATOR = Path(__file__).with_name("kopf_operator.py")
GROUP, VERSION, PLURAL = "peers.navarchos.example.com", "v1", "notes"
FREE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
DEFINITION: Any = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{PLURAL}.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": PLURAL, "kind": "Note"},
        "versions": [
            {
                "name": VERSION,
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "properties": {"text": {"type": "string"}}},
                            "status": FREE,
                        },
                    }
                },
            }
        ],
    },
}


class Notes:
    """The notes of one namespace, and the operator's results."""

    def __init__(self, api: official.ApiClient, namespace: str) -> None:
        self.namespace = namespace
        self.core = official.CoreV1Api(api)
        self._custom = official.CustomObjectsApi(api)
        self._where = (GROUP, VERSION, namespace, PLURAL)

    def create(self, name: str, text: str) -> None:
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "Note",
            "metadata": {"name": name},
            "spec": {"text": text},
        }
        self._custom.create_namespaced_custom_object(*self._where, body)

    def change(self, name: str, text: str) -> None:
        self._custom.patch_namespaced_custom_object(*self._where, name, {"spec": {"text": text}})

    def delete(self, name: str) -> None:
        self._custom.delete_namespaced_custom_object(*self._where, name)

    def get(self, name: str) -> dict[str, Any]:
        found: Any = self._custom.get_namespaced_custom_object(*self._where, name)
        return dict(found)

    def let_go(self) -> None:
        """Remove all finalizers: an operator that was killed does not remove them."""
        listed: Any = self._custom.list_namespaced_custom_object(*self._where)
        for found in listed["items"]:
            patch = {"metadata": {"finalizers": None}}
            name = found["metadata"]["name"]
            self._custom.patch_namespaced_custom_object(*self._where, name, patch)

    def status(self, name: str) -> dict[str, Any]:
        return self.get(name).get("status") or {}

    def is_gone(self, name: str) -> bool:
        try:
            self.get(name)
        except NotFoundException:
            return True
        return False

    def copy(self, name: str) -> str | None:
        """Return the text of the operator's copy."""
        for found in self.core.list_namespaced_config_map(self.namespace).items:
            if present(found.metadata).name == name:
                return present(found.data)["text"]
        return None

    def events(self, name: str) -> set[tuple[str, str]]:
        """Return type and message of the events about a note."""
        selector = f"involvedObject.name={name},involvedObject.kind=Note"
        found = self.core.list_namespaced_event(self.namespace, field_selector=selector)
        return {(present(event.type), present(event.message)) for event in found.items}


class Operator:
    """The process of the operator."""

    def __init__(self, kubeconfig: Path, namespace: str, log: Path) -> None:
        self.log = log
        words = ("run", "--standalone", "--namespace", namespace, str(OPERATOR))
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kopf", *words],
                # An operator that is killed leaves temporary files with certificates.
                env={**os.environ, "KUBECONFIG": str(kubeconfig), "TMPDIR": str(log.parent)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def end(self) -> None:
        """Ask the operator to stop, and expect a clean exit."""
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(LIMIT) == 0, self.log.read_text()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def notes(api: official.ApiClient, namespace: str) -> Iterator[Notes]:
    definitions = official.ApiextensionsV1Api(api)
    definitions.create_custom_resource_definition(DEFINITION)
    name = DEFINITION["metadata"]["name"]

    def there() -> bool:
        found = definitions.read_custom_resource_definition(name).status
        return any(c.type == "Established" for c in (found and found.conditions) or [])

    until(there)
    found = Notes(api, namespace)
    yield found
    found.let_go()
    definitions.delete_custom_resource_definition(name)
    listed = definitions.list_custom_resource_definition
    until(lambda: name not in [present(found.metadata).name for found in listed().items])


@pytest.fixture
def start(served: Served, notes: Notes, tmp_path: Path) -> Iterator[Callable[[], Operator]]:
    """Starts the operator; kills it after the test."""
    if served.server is None:
        pytest.skip("a server outside this suite writes no kubeconfig")
    kubeconfig = tmp_path / "config"
    served.server.write_kubeconfig(kubeconfig)
    made: list[Operator] = []

    def begin() -> Operator:
        log = tmp_path / f"kopf-{len(made)}.log"
        made.append(Operator(kubeconfig, notes.namespace, log))
        return made[-1]

    yield begin
    for operator in made:
        operator.kill()


def test_an_operator_on_kopf_keeps_its_objects_from_create_to_delete(
    notes: Notes, start: Callable[[], Operator]
) -> None:
    operator = start()
    notes.create("a", "first")
    until(lambda: "write" in notes.status("a"))
    assert notes.status("a")["write"] == {"child": "a", "tries": 2}
    metadata = present(notes.core.read_namespaced_config_map("a", notes.namespace).metadata)
    owners = present(metadata.owner_references)
    assert [(owner.kind, owner.name, owner.controller) for owner in owners] == [("Note", "a", True)]
    until(lambda: ("Normal", "wrote 5 characters") in notes.events("a"))
    assert notes.get("a")["metadata"]["finalizers"] == ["kopf.zalando.org/KopfFinalizerMarker"]

    notes.change("a", "second")
    until(lambda: notes.copy("a") == "second")
    until(lambda: notes.status("a").get("rewrite/spec.text") == {"from": "first"})
    ticks = notes.status("a")["ticks"]
    until(lambda: notes.status("a")["ticks"] > ticks + 1)

    notes.delete("a")
    until(lambda: notes.is_gone("a"))
    assert notes.copy("a-was") == "second"
    operator.end()
    said = operator.log.read_text()
    assert "began to stay" in said
    assert "stayed until the end" in said
    assert "saw DELETED of a" in said
    assert "Traceback" not in said


def test_a_permanent_error_is_posted_as_an_event(
    notes: Notes, start: Callable[[], Operator]
) -> None:
    operator = start()
    notes.create("empty", "")
    failed = ("Error", "Handler 'write' failed permanently: a note needs a text")
    until(lambda: failed in notes.events("empty"))
    notes.delete("empty")
    operator.end()


def test_an_operator_catches_up_after_a_restart(
    notes: Notes, start: Callable[[], Operator]
) -> None:
    notes.create("a", "first")
    operator = start()
    until(lambda: "write" in notes.status("a"))
    operator.kill()
    notes.change("a", "second")
    notes.create("b", "other")
    notes.create("c", "third")
    notes.delete("a")
    assert not notes.is_gone("a")  # the finalizer waits for the operator
    operator = start()
    until(lambda: notes.is_gone("a"))
    until(lambda: (notes.copy("b"), notes.copy("c")) == ("other", "third"))
    for name in "bc":
        notes.delete(name)
        until(partial(notes.is_gone, name))
    operator.end()
