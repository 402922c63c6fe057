"""The language of `kubectl wait --for`, on one object."""

import pytest

from navarchos.errors import ConfigError
from navarchos.operator.gates.expressions import evaluate, parse

DEPLOYMENT = {
    "metadata": {
        "generation": 3,
        "labels": {"app.kubernetes.io/name": "web", "tier": "front"},
    },
    "spec": {"replicas": 3, "paused": False, "ratio": 0.5, "empty": None},
    "status": {
        "observedGeneration": 3,
        "readyReplicas": 3,
        "phase": " Running ",
        "equation": "a=b",
        "conditions": [
            {"type": "Available", "status": "True"},
            {"type": "Progressing", "status": "False", "reason": "Deadline=1"},
        ],
        "containers": [
            {"name": "a", "ready": True, "restarts": 0},
            {"name": "b", "ready": False, "restarts": 7},
        ],
    },
}


@pytest.mark.rule("MA-60")
@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("condition=Available", True),
        ("condition=available", True),
        ("condition=Available=true", True),
        ("condition=Available=False", False),
        ("condition=Progressing", False),
        ("condition=Progressing=False", True),
        ("condition=Missing", False),
        ("condition=Missing=False", False),
        ("jsonpath={.status.readyReplicas}=3", True),
        ("jsonpath={.status.readyReplicas}=4", False),
        ("jsonpath='{.status.readyReplicas}'=3", True),
        ("jsonpath=.status.readyReplicas=3", True),
        ("jsonpath=status.readyReplicas=3", True),
        ("jsonpath={status.readyReplicas}=3", True),
        ("jsonpath={.status.readyReplicas}", True),
        ("jsonpath={.status.absent}", False),
        ("jsonpath={.status.absent}=3", False),
        ("jsonpath={.spec.empty}", False),
        ("jsonpath={.status.phase}=Running", True),
        ('jsonpath={.status.phase}="Running"', True),
        ("jsonpath={.status.equation}=a=b", True),
        ("jsonpath={.spec.paused}=false", True),
        ("jsonpath={.spec.ratio}=0.5", True),
        ("jsonpath={.metadata.labels}", True),
        ("jsonpath={.metadata.labels}=web", False),
        (r"jsonpath={.metadata.labels.app\.kubernetes\.io/name}=web", True),
        ("jsonpath={.metadata.labels['app.kubernetes.io/name']}=web", True),
        ("jsonpath={.metadata.labels['tier']}=front", True),
        ("jsonpath={.status.containers[0].name}=a", True),
        ("jsonpath={.status.containers[-1].name}=b", True),
        ("jsonpath={.status.containers[1:2].name}=b", True),
        ("jsonpath={.status.containers[*].name}=a", False),
        ("jsonpath={.status.containers[9].name}=a", False),
        ('jsonpath={.status.conditions[?(@.type=="Available")].status}=True', True),
        ("jsonpath={.status.conditions[?(@.type=='Progressing')].status}=False", True),
        ("jsonpath={.status.conditions[?(@.reason)].type}=Progressing", True),
        ("jsonpath={.status.containers[?(@.restarts>5)].name}=b", True),
        ("jsonpath={.status.containers[?(@.restarts<=0)].name}=a", True),
        ("jsonpath={.status.containers[?(@.ready==true)].name}=a", True),
        ("jsonpath={.status.containers[?(@.ready!=true)].name}=b", True),
        ("jsonpath={.status.containers[?(@.restarts==false)].name}=a", False),
        ("jsonpath={..readyReplicas}=3", True),
        ("jsonpath={.spec.*}=3", False),
    ],
)
def test_an_expression_is_met_as_in_kubectl(text: str, met: bool) -> None:
    assert evaluate(parse(text), DEPLOYMENT).met is met


@pytest.mark.parametrize(
    "text",
    [
        "",
        "delete",
        "create",
        "condition=",
        "condition",
        "condition==True",
        "condition=Ready=",
        "jsonpath=",
        "jsonpath={}",
        "jsonpath={.}",
        "jsonpath={.a}=",
        "jsonpath={.a[}=1",
        "jsonpath={.a[x]}=1",
        "jsonpath={.a b}=1",
        "jsonpath={.a[?(@.x ~ 1)]}=1",
        "phase=Running",
    ],
)
def test_what_is_no_expression_is_refused_with_a_rule(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^for="):
        parse(text)


def test_a_condition_of_a_former_generation_does_not_count() -> None:
    wait = parse("condition=Available")
    outdated = {**DEPLOYMENT, "metadata": {"generation": 4}}
    assert not evaluate(wait, outdated).met
    condition = {"type": "Available", "status": "True", "observedGeneration": 4}
    renewed = {"metadata": {"generation": 4}, "status": {"conditions": [condition]}}
    assert evaluate(wait, renewed).met
    stale = {"metadata": {"generation": 5}, "status": {"conditions": [condition]}}
    assert evaluate(wait, stale).value == "Available=True of a former generation"


@pytest.mark.parametrize("obj", [{}, {"status": None}, {"status": {"conditions": [1, None, {}]}}])
def test_an_object_of_another_shape_is_not_met(obj: dict[str, object]) -> None:
    assert not evaluate(parse("condition=Available"), obj).met
    assert not evaluate(parse("jsonpath={.status.conditions[?(@.a==1)].b[0]}=1"), obj).met


def test_the_value_names_what_was_found() -> None:
    assert evaluate(parse("condition=Progressing"), DEPLOYMENT).value == "Progressing=False"
    path = parse("jsonpath={.status.readyReplicas}=4")
    assert evaluate(path, DEPLOYMENT).value == "{.status.readyReplicas}=3"
