"""The real kubectl on the in-process API server, with the commands of a new user."""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from navarchos.testing.apiserver import ApiServer

DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: rollouts.e2e.example.com}
spec:
  group: e2e.example.com
  scope: Cluster
  names: {plural: rollouts, kind: Rollout, shortNames: [ro], categories: [e2e]}
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {status: {}}
      additionalPrinterColumns:
        - {name: Phase, type: string, jsonPath: .status.phase}
        - {name: Done, type: integer, jsonPath: .status.done, priority: 1}
        - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
      schema:
        openAPIV3Schema:
          type: object
          description: Replaces nodes.
          required: [spec]
          properties:
            spec:
              type: object
              properties:
                mode: {type: string, enum: [Fast, Slow], default: Slow, description: How fast.}
                weight: {type: integer, minimum: 1, maximum: 10}
                fixed:
                  type: string
                  x-kubernetes-validations:
                    - {rule: self == oldSelf, message: fixed is immutable}
            status:
              type: object
              properties: {phase: {type: string}, done: {type: integer}}
"""

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "node-1", "labels": {"kubernetes.io/role": "worker"}},
    "status": {
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "nodeInfo": {"kubeletVersion": "v1.34.1"},
    },
}

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web-1", "labels": {"app": "web"}},
    "spec": {"nodeName": "node-1", "containers": [{"name": "c", "image": "web:1"}]},
    "status": {"phase": "Running", "podIP": "10.1.0.1"},
}


def rollout(name: str = "", **spec: object) -> dict[str, Any]:
    metadata = {"name": name} if name else {"generateName": "rollout-"}
    return {
        "apiVersion": "e2e.example.com/v1",
        "kind": "Rollout",
        "metadata": metadata,
        "spec": spec,
    }


@dataclass
class Kubectl:
    """Runs kubectl with a separate configuration and cache."""

    program: Path
    server: ApiServer
    folder: Path

    def environment(self) -> dict[str, str]:
        config = self.folder / "config"
        self.server.write_kubeconfig(config)
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "KUBECONFIG": str(config),
            "KUBECACHEDIR": str(self.folder / "cache"),
        }

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.program, *words],
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def __call__(self, *words: str) -> str:
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refused(self, *words: str) -> str:
        done = self.run(*words)
        assert done.returncode != 0, done.stdout
        return done.stderr

    def file(self, manifest: dict[str, Any], name: str = "manifest.yml") -> str:
        path = self.folder / name
        path.write_text(yaml.safe_dump(manifest))
        return str(path)


@pytest.fixture
def kubectl(kubectl_path: Path, tmp_path: Path) -> Iterator[Kubectl]:
    with ApiServer(crds=[yaml.safe_load(DEFINITION)]) as server:
        server.install(NODE, POD)
        yield Kubectl(kubectl_path, server, tmp_path)


def test_version_names_the_server(kubectl: Kubectl) -> None:
    assert "Server Version: v1." in kubectl("version")


def test_api_resources_show_the_custom_kind(kubectl: Kubectl) -> None:
    shown = kubectl("api-resources", "--api-group=e2e.example.com")
    assert shown.splitlines()[1].split() == [
        "rollouts",
        "ro",
        "e2e.example.com/v1",
        "false",
        "Rollout",
    ]


def test_get_nodes_in_all_forms(kubectl: Kubectl) -> None:
    header, row = kubectl("get", "nodes").splitlines()
    assert header.split() == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    assert row.split()[:3] == ["node-1", "Ready", "worker"]
    assert "10.0.0.1" in kubectl("get", "nodes", "-o", "wide")
    assert yaml.safe_load(kubectl("get", "node", "node-1", "-o", "yaml"))["kind"] == "Node"
    path = "jsonpath={.items[*].metadata.name}"
    assert kubectl("get", "nodes", "-o", path) == "node-1"
    assert kubectl("get", "nodes", "-l", "kubernetes.io/role=worker", "-o", "name") == (
        "node/node-1\n"
    )
    selector = "--field-selector=spec.unschedulable=true"
    assert kubectl("get", "nodes", selector, "-o", "name") == ""


def test_get_pods_everywhere_and_wide(kubectl: Kubectl) -> None:
    row = kubectl("get", "pods", "-A", "-o", "wide").splitlines()[1].split()
    assert row[:4] == ["default", "web-1", "0/1", "Running"]
    assert row[6:8] == ["10.1.0.1", "node-1"]


def test_cordon_and_uncordon(kubectl: Kubectl) -> None:
    assert kubectl("cordon", "node-1") == "node/node-1 cordoned\n"
    assert "Ready,SchedulingDisabled" in kubectl("get", "nodes")
    assert kubectl("uncordon", "node-1") == "node/node-1 uncordoned\n"
    assert "SchedulingDisabled" not in kubectl("get", "nodes")


def test_create_with_a_generated_name(kubectl: Kubectl) -> None:
    shown = kubectl("create", "-f", kubectl.file(rollout(mode="Fast")))
    assert shown.startswith("rollout.e2e.example.com/rollout-")
    assert shown.endswith(" created\n")


def test_apply_changes_only_its_fields(kubectl: Kubectl) -> None:
    path = kubectl.file(rollout("a", weight=1))
    assert kubectl("apply", "-f", path) == "rollout.e2e.example.com/a created\n"
    assert kubectl("apply", "-f", path) == "rollout.e2e.example.com/a unchanged\n"
    kubectl.file(rollout("a", weight=2))
    assert kubectl("apply", "-f", path) == "rollout.e2e.example.com/a configured\n"
    found = json.loads(kubectl("get", "ro", "a", "-o", "json"))
    assert found["spec"] == {"mode": "Slow", "weight": 2}


def test_apply_merges_built_in_kinds(kubectl: Kubectl) -> None:
    container = {"name": "c", "image": "web:1", "env": [{"name": "A", "value": "1"}]}
    deployment: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [container]},
            },
        },
    }
    kubectl("apply", "-f", kubectl.file(deployment))
    container["image"] = "web:2"
    done = kubectl.run("apply", "-f", kubectl.file(deployment))
    assert (done.stdout, done.stderr) == ("deployment.apps/web configured\n", "")
    kubectl("scale", "deployment/web", "--replicas=5")
    found = json.loads(kubectl("get", "deploy", "web", "-o", "json"))["spec"]
    assert found["replicas"] == 5
    assert found["template"]["spec"]["containers"][0]["image"] == "web:2"
    assert kubectl("get", "deploy").splitlines()[1].split()[:2] == ["web", "0/5"]


def managers(kubectl: Kubectl, name: str) -> dict[str, Any]:
    """Return the fields of each manager of a Rollout, by name and operation."""
    found = kubectl.server.get("rollouts", name, group="e2e.example.com")
    return {
        f"{entry['manager']} {entry['operation']}": entry["fieldsV1"]
        for entry in found["metadata"]["managedFields"]
    }


def test_server_side_apply_refuses_fields_of_other_managers(kubectl: Kubectl) -> None:
    path = kubectl.file(rollout("a", weight=1))
    command = ("apply", "--server-side", "-f", path)
    assert kubectl(*command) == "rollout.e2e.example.com/a serverside-applied\n"
    version = kubectl("get", "ro", "a", "-o", "jsonpath={.metadata.resourceVersion}")
    assert kubectl(*command) == "rollout.e2e.example.com/a serverside-applied\n"
    again = kubectl("get", "ro", "a", "-o", "jsonpath={.metadata.resourceVersion}")
    assert version == again
    assert managers(kubectl, "a") == {"kubectl Apply": {"f:spec": {"f:weight": {}}}}
    kubectl("patch", "ro", "a", "--type=merge", "-p", '{"spec":{"weight":3}}')
    shown = kubectl.refused(*command)
    assert 'conflict with "kubectl-patch" using e2e.example.com/v1: .spec.weight' in shown
    kubectl(*command, "--force-conflicts")
    kubectl.file(rollout("a", mode="Fast"))
    kubectl(*command)
    shown = kubectl("get", "ro", "a", "-o", "json", "--show-managed-fields")
    assert json.loads(shown)["spec"] == {"mode": "Fast"}
    assert managers(kubectl, "a") == {"kubectl Apply": {"f:spec": {"f:mode": {}}}}


def test_an_object_moves_from_client_side_to_server_side_apply_and_back(kubectl: Kubectl) -> None:
    path = kubectl.file(rollout("a", weight=1, mode="Fast"))
    kubectl("apply", "-f", path)
    assert [*managers(kubectl, "a")] == ["kubectl-client-side-apply Update"]
    kubectl.file(rollout("a", weight=2, mode="Fast"))
    kubectl("apply", "--server-side", "-f", path)
    assert "f:weight" in managers(kubectl, "a")["kubectl Apply"]["f:spec"]
    kubectl.file(rollout("a", weight=2))
    kubectl("apply", "--server-side", "-f", path)
    found = kubectl.server.get("rollouts", "a", group="e2e.example.com")
    assert found["spec"] == {"mode": "Slow", "weight": 2}
    kubectl.file(rollout("a", weight=4))
    assert kubectl("apply", "-f", path) == "rollout.e2e.example.com/a configured\n"
    found = kubectl.server.get("rollouts", "a", group="e2e.example.com")
    assert found["spec"] == {"mode": "Slow", "weight": 4}


def test_server_side_apply_keeps_the_field_of_an_autoscaler(
    kubectl: Kubectl,
) -> None:
    labels = {"app": "web"}
    template: dict[str, Any] = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "c", "image": "web:1"}]},
    }
    spec = {"selector": {"matchLabels": labels}, "template": template}
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": spec,
    }
    path = kubectl.file(manifest)
    kubectl("apply", "--server-side", "-f", path, "--field-manager=team")
    kubectl("scale", "deployment/web", "--replicas=5")
    template["spec"]["containers"].append({"name": "side", "image": "side:1"})
    kubectl.file(manifest)
    kubectl("apply", "--server-side", "-f", path, "--field-manager=team")
    found = kubectl.server.get("deployments", "web", "default", "apps")["spec"]
    assert found["replicas"] == 5
    assert [c["name"] for c in found["template"]["spec"]["containers"]] == ["c", "side"]


def test_patch_label_annotate_and_delete(kubectl: Kubectl) -> None:
    kubectl("create", "-f", kubectl.file(rollout("a")))
    kubectl("patch", "ro", "a", "--type=merge", "-p", '{"spec":{"weight":3}}')
    kubectl("patch", "node", "node-1", "-p", '{"metadata":{"labels":{"x":"y"}}}')
    kubectl("label", "ro", "a", "one=two")
    kubectl("annotate", "ro", "a", "three=four")
    found = json.loads(kubectl("get", "ro", "a", "-o", "json"))
    assert found["metadata"]["labels"] == {"one": "two"}
    assert found["metadata"]["annotations"] == {"three": "four"}
    assert found["spec"]["weight"] == 3
    assert kubectl("delete", "ro", "a").startswith('rollout.e2e.example.com "a" deleted')
    assert "NotFound" in kubectl.refused("get", "ro", "a")


def test_wait_sees_a_status_and_columns_show_it(kubectl: Kubectl) -> None:
    kubectl("create", "-f", kubectl.file(rollout("a")))
    status = '{"status":{"phase":"Completed","done":3}}'
    kubectl("patch", "ro", "a", "--subresource=status", "--type=merge", "-p", status)
    shown = kubectl("wait", "--for=jsonpath={.status.phase}=Completed", "ro/a", "--timeout=20s")
    assert shown == "rollout.e2e.example.com/a condition met\n"
    assert kubectl("get", "ro").splitlines()[0].split() == ["NAME", "PHASE", "AGE"]
    assert kubectl("get", "ro", "-o", "wide").splitlines()[1].split()[:3] == ["a", "Completed", "3"]
    established = "--for=condition=Established"
    assert "condition met" in kubectl("wait", established, "crd/rollouts.e2e.example.com")


def test_describe_shows_events(kubectl: Kubectl) -> None:
    kubectl("create", "-f", kubectl.file(rollout("a")))
    uid = kubectl.server.get("rollouts", "a", group="e2e.example.com")["metadata"]["uid"]
    kubectl.server.install(
        {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": "a.1", "namespace": "default"},
            "eventTime": "2026-01-02T03:04:05.000000Z",
            "reportingController": "e2e.example.com/c",
            "reportingInstance": "i",
            "action": "Start",
            "reason": "Started",
            "type": "Normal",
            "note": "it has begun",
            "regarding": {
                "apiVersion": "e2e.example.com/v1",
                "kind": "Rollout",
                "name": "a",
                "uid": uid,
            },
        }
    )
    shown = kubectl("describe", "ro", "a")
    assert "it has begun" in shown
    assert "Started" in kubectl("get", "events")
    assert "Unschedulable:      false" in kubectl("describe", "node", "node-1")


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"foo": 1}, 'strict decoding error: unknown field "spec.foo"'),
        ({"mode": "Wrong"}, 'Unsupported value: "Wrong": supported values: "Fast", "Slow"'),
        ({"weight": 11}, "spec.weight in body should be less than or equal to 10"),
        ({"weight": "x"}, "spec.weight in body must be of type integer"),
    ],
)
def test_invalid_input_is_refused_with_the_message_of_the_server(
    kubectl: Kubectl, spec: dict[str, Any], text: str
) -> None:
    assert text in kubectl.refused("create", "-f", kubectl.file(rollout("a", **spec)))


def test_a_change_of_an_immutable_field_or_an_old_version_is_refused(kubectl: Kubectl) -> None:
    kubectl("create", "-f", kubectl.file(rollout("a", fixed="x")))
    change = '{"spec":{"fixed":"y"}}'
    shown = kubectl.refused("patch", "ro", "a", "--type=merge", "-p", change)
    assert "fixed is immutable" in shown
    old = rollout("a", fixed="x", weight=5)
    old["metadata"]["resourceVersion"] = "1"
    assert "the object has been modified" in kubectl.refused("replace", "-f", kubectl.file(old))


def test_explain_reads_the_published_schemas(kubectl: Kubectl) -> None:
    shown = kubectl("explain", "ro.spec.mode")
    assert "How fast." in shown
    assert "env" in kubectl("explain", "pod.spec.containers")


def test_get_watch_prints_each_change(kubectl: Kubectl) -> None:
    with subprocess.Popen(
        [kubectl.program, "get", "nodes", "-w"],
        env=kubectl.environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().split()[0] == "NAME"
            assert process.stdout.readline().split()[1] == "Ready"
            kubectl("cordon", "node-1")
            assert process.stdout.readline().split()[1] == "Ready,SchedulingDisabled"
        finally:
            process.terminate()


def test_typed_clients_that_speak_protobuf_are_understood(kubectl: Kubectl) -> None:
    assert kubectl("create", "namespace", "fresh") == "namespace/fresh created\n"
    kubectl("create", "deployment", "web", "--image=web:1", "--replicas=3", "--port=80")
    spec = kubectl.server.get("deployments", "web", "default", "apps")["spec"]
    assert (spec["replicas"], spec["selector"]) == (3, {"matchLabels": {"app": "web"}})
    assert spec["template"]["spec"]["containers"][0]["ports"][0]["containerPort"] == 80
    kubectl("create", "pdb", "web", "--selector=app=other", "--min-available=50%")
    budget = kubectl.server.get("poddisruptionbudgets", "web", "default", "policy")["spec"]
    assert budget["minAvailable"] == "50%"
    kubectl("create", "job", "once", "--image=web:1")
    kubectl("create", "role", "reader", "--verb=get", "--resource=pods")
    kubectl("create", "configmap", "c", "--from-literal=a=b")
    assert kubectl.server.get("configmaps", "c", "default")["data"] == {"a": "b"}
    assert kubectl("auth", "can-i", "get", "pods") == "yes\n"
    kubectl.server.install({**POD, "metadata": {"name": "bare"}})
    shown = kubectl("drain", "node-1", "--force", "--grace-period=0", "--timeout=30s")
    assert "node/node-1 drained" in shown
    assert kubectl.server.list("pods") == []
