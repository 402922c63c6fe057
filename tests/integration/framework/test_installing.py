"""Definitions from files, folders and objects: installed, changed, taken away."""

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.framework.waiting import LIMIT, until

from navarchos.client import (
    Client,
    Conflict,
    Invalid,
    NotFound,
    Resource,
    UpsertOutcome,
)
from navarchos.crd import ManifestError, to_yaml
from navarchos.testing.definitions import (
    DEFINITIONS,
    DefinitionNotReady,
    install_definitions,
    uninstall_definitions,
)

GROUP = "installing.example.com"


def definition(plural: str, *versions: str, kind: str = "") -> dict[str, Any]:
    """A namespaced kind of that name, with a size, in some versions; the first is stored."""
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": {"size": {"type": "integer"}}},
        },
    }
    return {
        "apiVersion": DEFINITIONS.api_version,
        "kind": DEFINITIONS.kind,
        "metadata": {"name": f"{plural}.{GROUP}", "labels": {"made": "by-us"}},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind or plural.removesuffix("s").title()},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": version == versions[0],
                    "schema": {"openAPIV3Schema": schema},
                }
                for version in versions
            ],
        },
    }


def resource(plural: str, version: str = "v1") -> Resource[dict[str, Any]]:
    kind = plural.removesuffix("s").title()
    return Resource(GROUP, version, plural, kind, namespaced=True, type=dict)


@pytest.fixture
def mine(client: Client) -> Iterator[Callable[..., dict[str, Any]]]:
    """Makes definitions that are gone after the test."""
    made: list[dict[str, Any]] = []

    def make(plural: str, *versions: str, kind: str = "") -> dict[str, Any]:
        made.append(definition(plural, *(versions or ("v1",)), kind=kind))
        return made[-1]

    yield make
    names = {each["metadata"]["name"]: each for each in made}
    uninstall_definitions(client, *names.values(), timeout=LIMIT)


def stored(client: Client, plural: str) -> dict[str, Any]:
    return client.resource(DEFINITIONS).get(f"{plural}.{GROUP}")


def served_as(client: Client, plural: str) -> set[str]:
    """The versions that a fresh look at discovery shows."""
    found = set()
    for version in ("v1", "v2"):
        answer = client.raw("GET", f"/apis/{GROUP}/{version}")
        if answer.status == 200 and f'"name":"{plural}"'.encode() in answer.body.replace(b" ", b""):
            found.add(version)
    return found


@pytest.mark.rule("TE-02")
def test_definitions_of_a_folder_can_be_used_at_once(
    client: Client, namespace: str, tmp_path: Path, mine: Callable[..., dict[str, Any]]
) -> None:
    (tmp_path / "a.yaml").write_text(to_yaml([mine("apples"), mine("pears", "v1", "v2")]))
    (tmp_path / "b.json").write_text(json.dumps(mine("plums")))
    (tmp_path / "c.yml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n")
    (tmp_path / "notes.txt").write_text("no: manifest")

    written = install_definitions(client, tmp_path)

    assert [each.outcome for each in written] == [UpsertOutcome.CREATED] * 3
    for plural, versions in (("apples", {"v1"}), ("pears", {"v1", "v2"}), ("plums", {"v1"})):
        conditions = {
            c["type"]: c["status"] for c in stored(client, plural)["status"]["conditions"]
        }
        assert conditions["Established"] == "True"
        assert served_as(client, plural) == versions
        for version in versions:
            made = client.resource(resource(plural, version)).create(
                {"metadata": {"name": version}, "spec": {"size": 1}}, namespace
            )
            assert made["spec"] == {"size": 1}


@pytest.mark.rule("TE-02")
def test_a_definition_that_is_there_is_brought_to_what_is_given(
    client: Client, namespace: str, tmp_path: Path, mine: Callable[..., dict[str, Any]]
) -> None:
    (tmp_path / "first.yaml").write_text(to_yaml([mine("apples")]))
    install_definitions(client, tmp_path / "first.yaml")
    before = stored(client, "apples")

    changed = mine("apples", "v1", "v2")
    changed["metadata"]["labels"] = {"changed": "yes"}
    for version in changed["spec"]["versions"]:
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        spec["size"]["maximum"] = 3
    (written,) = install_definitions(client, changed)

    after = stored(client, "apples")
    assert written.outcome is UpsertOutcome.UPDATED
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["metadata"]["labels"] == {"changed": "yes"}
    assert served_as(client, "apples") == {"v1", "v2"}
    apples = client.resource(resource("apples", "v2"))

    def refuses() -> bool:  # a server goes on with the old schema for a moment
        body = {"metadata": {"generateName": "a-"}, "spec": {"size": 4}}
        try:
            apples.create(body, namespace)
        except Invalid:
            return True
        return False

    until(refuses)


class Rival:
    """A gate of a client, asked before each write: writes something itself, the first times."""

    def __init__(self, writes: int, write: Callable[[], object]) -> None:
        self.left = writes
        self._write = write

    def __call__(self) -> float:
        if self.left:
            self.left -= 1
            self._write()
        return LIMIT


@pytest.mark.rule("TE-02")
def test_a_concurrent_write_of_the_definition_is_overwritten(
    client: Client, mine: Callable[..., dict[str, Any]]
) -> None:
    install_definitions(client, mine("apples"))
    name, turns = f"apples.{GROUP}", itertools.count()

    def annotate() -> None:
        patch = {"metadata": {"annotations": {"turn": str(next(turns))}}}
        client.resource(DEFINITIONS).patch(name, patch)

    rival = Rival(3, annotate)
    (written,) = install_definitions(client.fenced(rival), mine("apples", "v1", "v2"))
    assert (rival.left, next(turns)) == (0, 3)
    assert written.outcome is UpsertOutcome.UPDATED
    assert "annotations" not in stored(client, "apples")["metadata"]
    assert served_as(client, "apples") == {"v1", "v2"}

    with pytest.raises(Conflict):  # a client that always loses gets an error
        install_definitions(client.fenced(Rival(100, annotate)), mine("apples"))


@pytest.mark.rule("TE-02")
def test_two_may_install_the_same_at_once(
    client: Client, mine: Callable[..., dict[str, Any]]
) -> None:
    rival = Rival(1, lambda: install_definitions(client, mine("apples", "v1", "v2")))
    (written,) = install_definitions(client.fenced(rival), mine("apples", "v1"))
    assert rival.left == 0
    assert written.outcome is UpsertOutcome.UPDATED
    assert served_as(client, "apples") == {"v1"}


@pytest.mark.rule("TE-02")
def test_an_uninstalled_definition_can_be_installed_again(
    client: Client, namespace: str, tmp_path: Path, mine: Callable[..., dict[str, Any]]
) -> None:
    file = tmp_path / "both.yaml"
    file.write_text(to_yaml([mine("apples"), mine("pears")]))
    install_definitions(client, file)
    apples = client.resource(resource("apples"))
    apples.create({"metadata": {"name": "a"}}, namespace)

    uninstall_definitions(client, file, timeout=LIMIT)

    for plural in ("apples", "pears"):
        with pytest.raises(NotFound):
            stored(client, plural)
    uninstall_definitions(client, file)  # a missing object: nothing
    assert [each.outcome for each in install_definitions(client, file)] == [
        UpsertOutcome.CREATED
    ] * 2
    assert apples.list(namespace).items == []


@pytest.mark.rule("TE-02")
def test_one_that_is_being_removed_is_waited_for(
    client: Client, namespace: str, mine: Callable[..., dict[str, Any]]
) -> None:
    wanted = mine("apples")
    install_definitions(client, wanted)
    apples = client.resource(resource("apples"))
    apples.create({"metadata": {"name": "a", "finalizers": [f"{GROUP}/held"]}}, namespace)
    with pytest.raises(DefinitionNotReady, match="still exists; its finalizers: custom") as caught:
        uninstall_definitions(client, wanted, timeout=0.2)
    assert (caught.value.name, caught.value.seconds) == (f"apples.{GROUP}", 0.2)
    before = stored(client, "apples")["metadata"]["uid"]

    with pytest.raises(DefinitionNotReady, match="is still being removed"):
        install_definitions(client, wanted, timeout=0.2)
    apples.patch("a", {"metadata": {"finalizers": None}}, namespace)
    (written,) = install_definitions(client, wanted, timeout=LIMIT)

    assert written.outcome is UpsertOutcome.CREATED
    assert stored(client, "apples")["metadata"]["uid"] != before
    assert served_as(client, "apples") == {"v1"}


@pytest.mark.rule("TE-02")
def test_nothing_is_written_when_anything_cannot_be_read(
    client: Client, tmp_path: Path, mine: Callable[..., dict[str, Any]]
) -> None:
    missing = tmp_path / "crds"
    with pytest.raises(ManifestError, match="the file or folder does not exist") as caught:
        install_definitions(client, mine("apples"), missing)
    assert caught.value.file == str(missing)
    with pytest.raises(NotFound):
        stored(client, "apples")
    install_definitions(client, mine("apples"), missing, missing_ok=True)
    assert served_as(client, "apples") == {"v1"}


def test_a_refusal_has_the_message_of_the_server(
    client: Client, mine: Callable[..., dict[str, Any]]
) -> None:
    wrong = mine("apples")
    wrong["spec"]["scope"] = "Everywhere"
    with pytest.raises(Invalid, match=r"spec\.scope"):
        install_definitions(client, wrong)
