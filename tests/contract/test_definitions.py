"""Names of custom kinds: two definitions of a group cannot share one."""

from copy import deepcopy
from functools import partial
from typing import Any

from tests.cases.waiting import wait_for
from tests.contract.conftest import DEFINITIONS, defined
from tests.contract.exchanges import Http
from tests.contract.objects import GROUP, widget_definition

FIRST = widget_definition("gears", {"type": "object"})
FIRST["spec"]["names"] |= {"singular": "gear", "shortNames": ["gr", "grs"]}
TAKEN: dict[str, dict[str, Any]] = {
    "kind": {"kind": "Gear", "listKind": "CogList"},
    "list-kind": {"listKind": "GearList"},
    "list-kind-as-kind": {"kind": "GearList"},
    "singular": {"singular": "gears"},
    "a-short-name": {"shortNames": ["cg", "gr"]},
    "short-names": {"shortNames": ["grs", "gr"]},
    "a-singular-name-as-short-name": {"shortNames": ["gear"]},
    "several": {"singular": "gr", "kind": "Gear"},
}


def condition(http: Http, name: str, kind: str) -> str:
    with http.unrecorded():
        found = http("GET", f"{DEFINITIONS}/{name}").body
    conditions = found.get("status", {}).get("conditions") or []
    return next((c["status"] for c in conditions if c["type"] == kind), "")


def test_a_name_is_accepted_when_it_becomes_free(http: Http) -> None:
    """In parallel, each in its own group: a real server takes two seconds for each."""
    http.in_parallel(*(partial(take_and_free, what=what) for what in TAKEN))


def take_and_free(http: Http, what: str) -> None:
    first, second = deepcopy(FIRST), widget_definition("cogs", {"type": "object"})
    second["spec"]["names"] |= TAKEN[what]
    for definition in (first, second):
        group = definition["spec"]["group"] = f"{what}.{GROUP}"
        definition["metadata"]["name"] = f"{definition['spec']['names']['plural']}.{group}"
    name, path = second["metadata"]["name"], f"/apis/{what}.{GROUP}/v1/cogs"
    try:
        with defined(http, first):
            with http.unrecorded():
                http.create(DEFINITIONS, second)
            wait_for("a verdict", lambda: condition(http, name, "NamesAccepted") == "False")
            assert condition(http, name, "Established") == "False"
            http("GET", f"{DEFINITIONS}/{name}")
            assert http("GET", path).code == 404
        wait_for("the names", lambda: condition(http, name, "Established") == "True")
        with http.unrecorded():
            wait_for("the kind", lambda: http("GET", path).code == 200)
        http("GET", f"{DEFINITIONS}/{name}")
    finally:
        with http.unrecorded():
            http("DELETE", f"{DEFINITIONS}/{name}")
            wait_for("the end", lambda: http("GET", f"{DEFINITIONS}/{name}").code == 404)


def test_a_definition_keeps_its_names_if_the_new_ones_are_in_use(http: Http) -> None:
    second = widget_definition("cogs", {"type": "object"})
    second["spec"]["names"]["shortNames"] = ["cg"]
    name = f"{DEFINITIONS}/{second['metadata']['name']}"
    with defined(http, FIRST), defined(http, second) as path:
        with http.unrecorded():
            http.merge(name, {"spec": {"names": {"shortNames": ["gr"], "singular": "kog"}}})
        of = second["metadata"]["name"]
        wait_for("a verdict", lambda: condition(http, of, "NamesAccepted") == "False")
        found = http("GET", name).body["status"]["acceptedNames"]
        assert (found["shortNames"], found["singular"]) == (["cg"], "kog")
        with http.unrecorded():
            assert http("GET", path).code == 200
