"""Specs and approvals that are wrong: refused by the server, or one clear condition."""

from typing import Any, Final

import pytest
from tests.cases import manifests
from tests.cases.case import Case
from tests.cases.waiting import wait_for

from navarchos.client import Invalid
from navarchos.operator.names import APPROVE_ANNOTATION

pytestmark = pytest.mark.timeout(240)

JOB: Final = {"namespace": "shop", "template": {}}
REFUSED: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "two-actions": ({"action": {"job": JOB, "reboot": {}}}, "at most one of job, plan, reboot"),
    "replaced-in-service": (
        {"action": {"replace": {}, "node": "InService"}},
        "replace and remove always drain the node",
    ),
    "kept-in-service": (
        {"action": {"job": JOB, "node": "InService", "afterwards": "Keep"}},
        "a node that stays in service has no cordon to keep",
    ),
    "gate-of-another-program": (
        {"drain": {"prepare": {"readinessGate": "target-health.example.com/web"}}},
        "readinessGate",
    ),
    "blackout-of-no-time": (
        {
            "strategy": {
                "blackouts": [{"from": "2026-12-20T00:00:00Z", "to": "2026-12-20T01:00:00+01:00"}]
            }
        },
        "from must be before to",
    ),
    "reversed-blackout": (
        {
            "strategy": {
                "blackouts": [{"from": "2026-12-24T00:00:00Z", "to": "2026-12-20T00:00:00Z"}]
            }
        },
        "from must be before to",
    ),
    "window-of-no-time": (
        {"strategy": {"windows": [{"start": "22:00", "end": "22:00"}]}},
        "start and end must differ",
    ),
    "falling-waves": (
        {"strategy": {"waves": [{"upTo": 3}, {"upTo": "50%"}, {"upTo": 2}]}},
        "upTo must not fall from wave to wave",
    ),
    "empty-wave": (
        {"strategy": {"waves": [{"upTo": "0%"}, {"upTo": 1}]}},
        "upTo must be at least 1, or 1%",
    ),
}


@pytest.mark.rule("NP-41")
@pytest.mark.rule("NP-43")
@pytest.mark.rule("UP-70")
def test_the_server_refuses_and_says_why(case: Case) -> None:
    for name, (spec, message) in REFUSED.items():
        with pytest.raises(Invalid) as refused:
            case.create(manifests.rollout(case.name, nodeSelectors=[], **spec))
        assert message in str(refused.value), name
    assert case.target.find("NodeRollout", case.name) is None


ACCEPTED: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "window": (
        {"windows": [{"start": "9am", "end": "09:00"}]},
        "strategy.windows[0].end='09:00': it must differ from start",
    ),
    "blackout": (
        {
            "windows": [{"days": ["sat"], "timeZone": "Pacific/Auckland"}],
            "blackouts": [{"from": "2020-01-01T00:00:00Z", "to": "9999-12-31T23:59:59-11:00"}],
        },
        "strategy.blackouts leave no time in which a node may start",
    ),
    "waves": (
        {"waves": [{"upTo": 2}, {"upTo": "10%"}]},
        "strategy.waves[1].upTo='10%': it is 1 of 2 nodes, but it must not be less",
    ),
}
"""Strategies that the server cannot refuse: only their meaning is wrong."""


@pytest.mark.rule("NP-41")
@pytest.mark.rule("NP-43")
def test_a_strategy_without_a_meaning_is_one_condition_and_starts_nothing(case: Case) -> None:
    """Another rollout, which comes after them, is not disturbed by any of them."""
    case.manager()
    names = case.add_nodes(3)
    for name, (strategy, _) in ACCEPTED.items():
        nodes = [{"name": each} for each in names[:2]]
        rollout = manifests.rollout(case.name, f"{case.name}-{name}", nodeSelectors=[])
        rollout["spec"] |= {"nodeNames": nodes, "strategy": strategy}
        case.create(rollout)
    for name, (_, message) in ACCEPTED.items():
        rollout_name = f"{case.name}-{name}"
        found = wait_for(
            f"the condition of {name}",
            lambda: case.condition("StrategyInvalid", name=rollout_name),  # noqa: B023 - called at once
        )
        assert (found["status"], found["reason"]) == ("True", "InvalidStrategy")
        assert message in found["message"]
    case.roll(nodeSelectors=[], nodeNames=[{"name": names[2]}])
    case.wait_for_phase("Completed")
    assert not any(map(case.is_cordoned, names[:2]))
    assert {r["status"]["phase"] for r in case.target.list("NodeReplacement")} == {
        "New",
        "Completed",
    }
    corrected = f"{case.name}-waves"
    case.target.patch("NodeRollout", corrected, {"spec": {"strategy": {"waves": [{"upTo": 1}]}}})
    case.wait_for_phase("Completed", name=corrected)
    assert case.condition("StrategyInvalid", name=corrected)["status"] == "False"


@pytest.mark.rule("NP-43")
def test_an_approval_of_a_wave_that_does_not_wait_starts_nothing(case: Case) -> None:
    case.manager()
    names = case.add_nodes(2)
    rollout = manifests.rollout(case.name, nodeSelectors=[])
    rollout["metadata"]["annotations"] = {APPROVE_ANNOTATION: "2"}
    rollout["spec"]["nodeNames"] = [{"name": name} for name in names]
    rollout["spec"]["strategy"] = {"waves": [{"upTo": 1, "approval": True}, {"upTo": 2}]}
    case.create(rollout)

    def wave() -> tuple[int, str]:
        found = case.status().get("wave") or {}
        return found.get("number", 0), found.get("state", "")

    wait_for("the first wave", lambda: wave() == (1, "AwaitingApproval"))
    for wrong in ("1st", '{"wave":7}'):
        annotations = {"annotations": {APPROVE_ANNOTATION: wrong}}
        case.target.patch("NodeRollout", case.name, {"metadata": annotations})
        wait_for("the refusal", lambda: case.status()["wave"].get("judged") == wrong)  # noqa: B023 - called at once
        refused = case.condition("ApprovalRefused")
        assert (refused["status"], refused["reason"]) == ("True", "WrongApproval")
        assert wave() == (1, "AwaitingApproval")
    assert [case.is_cordoned(name) for name in names].count(True) == 1
    wait_for("the events", lambda: "ApprovalRefused" in case.events(case.name))
