"""Every kind with every verb; all responses are compared."""

from typing import Any

import pytest
from tests.contract.exchanges import Http
from tests.contract.kinds import KINDS, Case

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
STRATEGIC = "application/strategic-merge-patch+json"
LABELLED = {"metadata": {"labels": {"seen": "yes"}}}

each_kind = pytest.mark.parametrize("case", KINDS, ids=lambda case: case.plural)


@pytest.fixture
def path(case: Case, http: Http, namespace: str) -> Any:
    """The path of the collection; cluster-scoped objects are deleted after the test."""
    yield case.path(namespace)
    if not case.namespaced:
        with http.unrecorded():
            http("DELETE", f"{case.path(namespace)}/{case.name}", gracePeriodSeconds=0)


@each_kind
def test_create_sets_defaults_and_get_shows_them(http: Http, case: Case, path: str) -> None:
    made = http.create(path, case.manifest())
    found = http("GET", f"{path}/{case.name}")
    assert (found.code, found.body) == (200, made)


@each_kind
def test_a_dry_run_of_a_create_stores_nothing(http: Http, case: Case, path: str) -> None:
    assert http("POST", path, case.manifest(), dryRun="All").code == 201
    assert http("GET", f"{path}/{case.name}").code == 404


@each_kind
def test_a_second_object_with_the_name_is_refused(http: Http, case: Case, path: str) -> None:
    http.create(path, case.manifest())
    assert http("POST", path, case.manifest()).code == 409


@each_kind
def test_a_missing_object_is_not_found(http: Http, case: Case, path: str) -> None:
    for method in ("GET", "DELETE"):
        assert http(method, f"{path}/none").code == 404
    assert http.merge(f"{path}/none", {}).code == 404


@each_kind
def test_an_update_needs_the_current_version(http: Http, case: Case, path: str) -> None:
    made = http.create(path, case.manifest())
    made["metadata"]["labels"] = {**made["metadata"].get("labels", {}), "seen": "yes"}
    assert http("PUT", f"{path}/{case.name}", made).code == 200
    assert http("PUT", f"{path}/{case.name}", made).code == 409


@each_kind
def test_patches_of_labels(http: Http, case: Case, path: str) -> None:
    http.create(path, case.manifest())
    assert http.merge(f"{path}/{case.name}", LABELLED).code == 200
    change = {"metadata": {"labels": {"seen": None, "more": "x"}}}
    reply = http("PATCH", f"{path}/{case.name}", change, content_type=STRATEGIC)
    assert reply.code == 200
    assert "seen" not in reply.body["metadata"]["labels"]


@each_kind
def test_a_watch_shows_creation_change_and_deletion(http: Http, case: Case, path: str) -> None:
    with http.unrecorded():
        version = http("GET", path).body["metadata"]["resourceVersion"]
        http.create(path, case.manifest())
        http.merge(f"{path}/{case.name}", LABELLED)
        http("DELETE", f"{path}/{case.name}", gracePeriodSeconds=0)
    select = f"metadata.name={case.name}"
    events = http.watch(path, 3, resourceVersion=version, fieldSelector=select)
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", case.last_event]


@each_kind
def test_delete_returns_the_object_or_a_status(http: Http, case: Case, path: str) -> None:
    http.create(path, case.manifest())
    assert http("DELETE", f"{path}/{case.name}").code == 200


@each_kind
def test_tables(http: Http, case: Case, path: str) -> None:
    http.create(path, case.manifest())
    assert http("GET", f"{path}/{case.name}", accept=TABLE).body["kind"] == "Table"
    select = f"metadata.name={case.name}"
    assert len(http("GET", path, accept=TABLE, fieldSelector=select).body["rows"]) == 1
