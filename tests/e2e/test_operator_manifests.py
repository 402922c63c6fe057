"""The operator through kubectl: installation, columns, validation and explanations."""

import json
from importlib.resources import files
from typing import Any

import pytest
from tests.cases import manifests
from tests.cases.case import Case
from tests.cases.installing import Installed
from tests.cases.kubectl import Kubectl
from tests.cases.target import CONFIG, GROUP, Target
from tests.cases.waiting import wait_for

from navarchos.operator.names import CORDONED_BY_ANNOTATION

pytestmark = pytest.mark.timeout(240)

KINDS = ("nodedrains", "nodereplacements", "noderollouts")
EXAMPLE = files("navarchos.cli") / "examples" / "rollout.yml"


def test_the_definitions_are_established_with_structural_schemas(
    kubectl: Kubectl, installed: Installed
) -> None:
    assert installed.definitions.splitlines() == [
        f"customresourcedefinition.apiextensions.k8s.io/{kind}.{GROUP} created" for kind in KINDS
    ]
    for kind in KINDS:
        found = json.loads(kubectl("get", "crd", f"{kind}.{GROUP}", "-o", "json"))
        conditions = {each["type"]: each["status"] for each in found["status"]["conditions"]}
        assert conditions == {"Established": "True", "NamesAccepted": "True"}


def test_the_deployment_is_accepted_unchanged(kubectl: Kubectl, installed: Installed) -> None:
    assert sorted(installed.deployment.splitlines()) == [
        "clusterrole.rbac.authorization.k8s.io/navarchos created",
        "clusterrole.rbac.authorization.k8s.io/navarchos-gates created",
        "clusterrolebinding.rbac.authorization.k8s.io/navarchos created",
        "clusterrolebinding.rbac.authorization.k8s.io/navarchos-gates created",
        "deployment.apps/navarchos created",
        "poddisruptionbudget.policy/navarchos created",
        "role.rbac.authorization.k8s.io/navarchos created",
        "role.rbac.authorization.k8s.io/navarchos created",
        "rolebinding.rbac.authorization.k8s.io/navarchos created",
        "rolebinding.rbac.authorization.k8s.io/navarchos created",
        "serviceaccount/navarchos created",
    ]
    shown = kubectl(
        "apply",
        "--dry-run=server",
        "-f",
        str(CONFIG / "crds"),
        "--server-side",
        "--force-conflicts",
    )
    assert len(shown.splitlines()) == 3


def test_the_pods_of_the_deployment_pass_the_strictest_pod_security(
    target: Target, installed: Installed
) -> None:
    found = target.get("Deployment", "navarchos", "kube-system")
    name = "navarchos-e2e-restricted"
    restricted = manifests.namespace(name)
    restricted["metadata"]["labels"] = {"pod-security.kubernetes.io/enforce": "restricted"}
    target.create(restricted)
    try:
        template = found["spec"]["template"]
        # Only the account and the priority depend on the namespace.
        spec = template["spec"] | {"serviceAccountName": "default", "priorityClassName": ""}
        spec.pop("serviceAccount", None)
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "manager", "labels": template["metadata"]["labels"]},
            "spec": spec,
        }
        target.of("Pod").create(pod, name, dry_run=True)
    finally:
        target.of("Namespace").delete(name)


def test_the_shipped_deployment_has_two_pods(case: Case, kubectl: Kubectl) -> None:
    """Its pods are created on different nodes, and run on kubelets that need no image."""
    case.checker.bypasses_budgets = True  # scaling down does not count as a disruption
    case.add_nodes(2)
    scale = ("scale", "deployment/navarchos", "--namespace=kube-system")
    if not case.target.runs_kwok:
        pytest.skip("a real kubelet would need the image")
    kubectl(*scale, "--replicas=2")
    try:
        kubectl(
            "wait", "--for=condition=Available", "deployment/navarchos",
            "--namespace=kube-system", "--timeout=60s",
        )  # fmt: skip
        pods = case.target.list("Pod", "kube-system", label_selector="app=navarchos")
        assert len({pod["spec"]["nodeName"] for pod in pods}) == 2
    finally:
        kubectl(*scale, "--replicas=0")
        wait_for(
            "the pods to go",
            lambda: not case.target.list("Pod", "kube-system", label_selector="app=navarchos"),
        )


def table(text: str) -> tuple[list[str], list[list[str]]]:
    header, *rows = text.splitlines()
    return [word for word in header.split("  ") if word.strip()], [row.split() for row in rows]


def test_the_published_columns_are_shown(case: Case, kubectl: Kubectl) -> None:
    (name,) = case.add_nodes(1)
    case.add(manifests.deployment(case.name, "web", 2), manifests.daemon_set(case.name, "agent"))
    case.add_nodes(1, first=2)
    case.manager()
    case.roll(nodeSelectors=[], nodeNames=[{"name": name, "replacement": {"priority": 7}}])
    said = kubectl(
        "wait", "--for=jsonpath={.status.phase}=Completed", f"nr/{case.name}", "--timeout=60s"
    )
    assert said == f"noderollout.{GROUP}/{case.name} condition met\n"
    header, (row,) = table(kubectl("get", "nr"))
    assert [word.strip() for word in header] == [
        "NAME", "REPLACEMENTS CREATED", "REPLACEMENTS COMPLETED", "PHASE", "COMPLETED", "AGE",
    ]  # fmt: skip
    assert row[:4] == [case.name, "1", "1", "Completed"]
    header, (row,) = table(kubectl("get", "nrep"))
    assert [word.strip() for word in header] == [
        "NAME", "NODE PODS", "IGNORED PODS", "EVICTED PODS", "FAILED PODS", "PHASE",
        "COMPLETED", "AGE",
    ]  # fmt: skip
    status = case.status("NodeReplacement", case.replacement(name))
    counts = [status[f"{which}PodsCount"] for which in ("node", "ignored", "evicted", "failed")]
    assert row[:6] == [case.replacement(name), *map(str, counts), "Completed"]
    assert counts[2:] == [2, 0]
    wide, (row,) = table(kubectl("get", "nrep", "-o", "wide"))
    assert {"PRIORITY", "OWNERS", "STEP", "REASON"} <= {word.strip() for word in wide}
    assert row[6] == "7"
    assert row[8] == case.name
    assert row[-2:] == ["Done", "Drained"]
    wide, _ = table(kubectl("get", "nr", "-o", "wide"))
    assert {"CANCELLED", "WAVE", "WAVE STATE"} <= {word.strip() for word in wide}
    assert kubectl("get", "nrep", f"--field-selector=spec.nodeName={name}", "-o", "name") == (
        f"nodereplacement.{GROUP}/{case.replacement(name)}\n"
    )
    for short in ("nroll", "nrolls", "nr", "nrs"):
        assert kubectl("get", short, "-o", "name") == f"noderollout.{GROUP}/{case.name}\n"
    wait_for("the last event", lambda: "RolloutCompleted" in kubectl("describe", "nr"))
    assert "1 of 1 nodes replaced, 0 failed" in kubectl("describe", "nr")
    assert "ReplacementCompleted" in kubectl("describe", "nrep", case.replacement(name))


def test_the_published_example_completes_and_is_deleted(case: Case, kubectl: Kubectl) -> None:
    labels: dict[str, Any] = {"kubernetes.io/role": "worker"}
    (node,) = case.add_nodes(1, **labels)
    case.manager()
    said = kubectl("create", "-f", str(EXAMPLE))
    name = said.partition("/")[2].partition(" ")[0]
    assert said == f"noderollout.{GROUP}/{name} created\n"
    assert name.startswith("rollout-")
    kubectl("wait", "--for=jsonpath={.status.phase}=Completed", f"nr/{name}", "--timeout=60s")
    assert case.checker.drained == (node,)
    said = kubectl("delete", "nr", name, "--timeout=30s")
    assert said == f'noderollout.{GROUP} "{name}" deleted\n'
    wait_for("the deletion of its children", lambda: not case.target.list("NodeDrain"))
    assert case.is_cordoned(node)


def test_the_deletion_of_a_drain_waits_for_its_node(case: Case, kubectl: Kubectl) -> None:
    (name,) = case.add_nodes(1)
    case.manager()
    case.create(manifests.drain(case.name, name))
    kubectl("wait", "--for=jsonpath={.status.phase}=Completed", f"ndrain/{case.name}")
    assert case.is_cordoned(name)
    kubectl("delete", "ndrain", case.name, "--timeout=30s")
    assert not case.is_cordoned(name)
    assert CORDONED_BY_ANNOTATION not in case.node(name)["metadata"].get("annotations", {})


def test_a_node_that_was_cordoned_before_stays_cordoned(case: Case, kubectl: Kubectl) -> None:
    (name,) = case.add_nodes(1)
    kubectl("cordon", name)
    case.manager()
    case.create(manifests.drain(case.name, name))
    case.wait_for_phase("Completed", "NodeDrain")
    kubectl("delete", "ndrain", case.name, "--timeout=30s")
    assert case.is_cordoned(name)
    kubectl("uncordon", name)
    assert not case.is_cordoned(name)


def test_fields_are_explained(kubectl: Kubectl, installed: Installed) -> None:
    shown = kubectl("explain", "noderollout.spec.strategy.maxConcurrent")
    assert "A node starts only while fewer than this many are in flight" in shown
    assert "evictionRetrySeconds" in kubectl("explain", "ndrain.spec")
    for field, text in (
        ("strategy.windows.timeZone", "An IANA time zone such as Europe/Berlin."),
        ("strategy.waves.soakSeconds", "Seconds to wait after the last node of the wave"),
        ("action.verify", "a node is not verified after a Job"),
        ("gates.for", "What the objects must meet, as in kubectl wait"),
        ("drain.prepare.waitForTimestamp.key", "The key of the node's annotation."),
    ):
        assert text in " ".join(kubectl("explain", f"noderollout.spec.{field}").split())


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (
        "NodeRollout",
        {"nodeSelectors": [{"matchLabels": {}}]},
        ("spec.nodeSelectors[0]: Invalid value: selects every node; set matchAll: true to confirm"),
    ),
    ("NodeRollout", {"nodeNames": [{"nam": "a"}]}, 'unknown field "spec.nodeNames[0].nam"'),
    ("NodeRollout", {"nodeNames": [{}]}, "spec.nodeNames[0].name: Required value"),
    (
        "NodeRollout",
        {"nodeNames": [{"name": "a", "replacement": {"priority": "high"}}]},
        (
            'spec.nodeNames[0].replacement.priority: Invalid value: "string": '
            "spec.nodeNames[0].replacement.priority in body must be of type integer"
        ),
    ),
    (
        "NodeRollout",
        {"strategy": {"maxConcurrent": "two"}},
        (
            'spec.strategy.maxConcurrent: Invalid value: "two": must be a number from 0, or a '
            "percentage from 0% to 100%"
        ),
    ),
    (
        "NodeRollout",
        {"strategy": {"maxFailures": -1}},
        "spec.strategy.maxFailures: Invalid value: -1: must be a number from 0, or a percentage",
    ),
    (
        "NodeRollout",
        {"strategy": {"onNodeFailure": "Reboot"}},
        (
            'spec.strategy.onNodeFailure: Unsupported value: "Reboot": supported values: '
            '"Uncordon", "Keep"'
        ),
    ),
    (
        "NodeRollout",
        {"drain": {"evictionRetrySeconds": 0}},
        "spec.drain.evictionRetrySeconds in body should be greater than or equal to 1",
    ),
    (
        "NodeRollout",
        {"drain": {"escalation": [{"afterSeconds": 5, "action": "Shoot"}]}},
        (
            'spec.drain.escalation[0].action: Unsupported value: "Shoot": supported values: '
            '"DeleteUnhealthy", "Delete"'
        ),
    ),
    ("NodeReplacement", {}, "spec.nodeName: Required value"),
    ("NodeDrain", {"nodeName": ""}, "spec.nodeName in body should be at least 1 chars long"),
    (
        "NodeDrain",
        {"nodeName": "a", "timeoutSeconds": "5m"},
        (
            'spec.timeoutSeconds: Invalid value: "string": spec.timeoutSeconds in body must be of '
            "type integer"
        ),
    ),
]


@pytest.mark.parametrize(("kind", "spec", "message"), REFUSED)
def test_an_invalid_manifest_is_refused_with_a_helpful_message(
    target: Target,
    kubectl: Kubectl,
    installed: Installed,
    kind: str,
    spec: dict[str, Any],
    message: str,
) -> None:
    manifest = {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": kind,
        "metadata": {"name": "wrong"},
        "spec": spec,
    }
    said = kubectl.refused("create", "-f", "-", text=json.dumps(manifest))
    assert message in said
    assert target.find(kind, "wrong") is None


@pytest.mark.parametrize("kind", ["NodeReplacement", "NodeDrain"])
def test_the_identity_of_a_node_cannot_be_edited(case: Case, kubectl: Kubectl, kind: str) -> None:
    spec: dict[str, Any] = {"nodeName": "a", "nodeUID": "u", "paused": True}
    case.create(
        {
            "apiVersion": f"{GROUP}/v1alpha1",
            "kind": kind,
            "metadata": {"name": case.name},
            "spec": spec,
        }
    )
    for field, value in (("nodeName", "b"), ("nodeUID", "v")):
        patch = json.dumps({"spec": {field: value}})
        said = kubectl.refused("patch", kind.lower(), case.name, "--type=merge", "-p", patch)
        assert f"{field} is immutable" in said
