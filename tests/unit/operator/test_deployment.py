"""The manifests of `config/deploy`: compatible with those of 2019, with minimal permissions."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from navarchos._version import __version__
from navarchos.cli.manager import manager
from navarchos.cli.manifests import manifests as command
from navarchos.operator.api.v1alpha1.definitions import manifests as definitions
from navarchos.operator.deployment import FILE_NAMES, manifests, metrics_access, to_files
from navarchos.runtime import ManagerOptions
from navarchos.testing.apiserver import ApiServer

ROOT = Path(__file__).parents[3]
CHECKED_IN = ROOT / "config" / "deploy"

MANIFESTS: list[Any] = list(manifests())
ROLES = [m for m in MANIFESTS if m["kind"] in {"Role", "ClusterRole"}]
BINDINGS = [m for m in MANIFESTS if m["kind"] in {"RoleBinding", "ClusterRoleBinding"}]
DEPLOYMENT = next(m for m in MANIFESTS if m["kind"] == "Deployment")
POD = DEPLOYMENT["spec"]["template"]
CONTAINER = POD["spec"]["containers"][0]


def name_of(manifest: Any) -> str:
    return f"{manifest['kind']} {manifest['metadata'].get('namespace', '')}".strip()


def grants(manifest: Any) -> list[tuple[str, ...]]:
    return [
        (group, resource, verb)
        for rule in manifest["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


@pytest.mark.rule("OP-62")
def test_checked_in_files_are_what_the_declarations_say() -> None:
    result = CliRunner().invoke(command, ["--check", str(CHECKED_IN)])
    assert result.output == ""
    assert result.exit_code == 0


@pytest.mark.rule("OP-62")
@pytest.mark.rule("MG-16")
def test_permissions_for_secure_metrics_are_in_separate_manifests() -> None:
    found = CHECKED_IN.parent / "secure-metrics"
    result = CliRunner().invoke(command, ["--metrics-secure", "--check", str(found)])
    assert (result.output, result.exit_code) == ("", 0)
    asks, reads, binding = manifest_list = list[Any](metrics_access())
    wanted = {
        ("authentication.k8s.io", "tokenreviews", "create"),
        ("authorization.k8s.io", "subjectaccessreviews", "create"),
    }
    assert set(grants(asks)) == wanted
    assert not wanted & {grant for manifest in ROLES for grant in grants(manifest)}
    assert binding["roleRef"]["name"] == asks["metadata"]["name"] != reads["metadata"]["name"]
    assert reads["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    ApiServer().install(*manifest_list)


@pytest.mark.rule("OP-62")
@pytest.mark.parametrize("manifest", ROLES, ids=name_of)
def test_no_role_has_a_wildcard(manifest: Any) -> None:
    words = [word for rule in manifest["rules"] for field in rule.values() for word in field]
    assert not [word for word in words if "*" in word]


@pytest.mark.rule("OP-62")
@pytest.mark.parametrize("manifest", ROLES, ids=name_of)
def test_no_permission_is_granted_twice(manifest: Any) -> None:
    everywhere = grants(next(m for m in ROLES if m["kind"] == "ClusterRole"))
    found = grants(manifest)
    assert len(found) == len(set(found))
    if manifest["kind"] == "Role":
        assert not set(found) & set(everywhere)


@pytest.mark.rule("N-16")
def test_permissions_that_the_published_role_lacked_are_granted() -> None:
    found = {grant for manifest in ROLES for grant in grants(manifest)}
    assert ("events.k8s.io", "events", "create") in found
    assert ("", "pods", "delete") in found
    assert ("navarchos.pusher.com", "noderollouts/finalizers", "update") in found
    assert ("navarchos.pusher.com", "nodereplacements/finalizers", "update") in found


def test_the_manager_may_change_its_own_lease_only() -> None:
    found = [
        (manifest["metadata"].get("namespace"), rule["verbs"], rule.get("resourceNames"))
        for manifest in ROLES
        for rule in manifest["rules"]
        if "leases" in rule["resources"]
    ]
    assert found == [
        ("kube-system", ["create"], None),
        ("kube-system", ["get", "list", "watch", "update"], ["navarchos-leader-election"]),
    ]


@pytest.mark.rule("N-25")
def test_the_lock_is_a_lease_and_the_crds_are_of_version_v1() -> None:
    """The release of 2019 used a ConfigMap as its lock, and CustomResourceDefinitions v1beta1."""
    resources = {resource for _, resource, _ in (g for m in ROLES for g in grants(m))}
    assert "leases" in resources
    assert not resources & {"configmaps", "endpoints"}
    assert {manifest["apiVersion"] for manifest in definitions()} == {"apiextensions.k8s.io/v1"}


@pytest.mark.rule("N-25")
def test_the_image_is_not_bound_to_an_architecture() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    bases = [line for line in lines if line.startswith("FROM")]
    assert bases
    assert not [line for line in lines if any(a in line for a in ("amd64", "arm64", "x86_64"))]
    assert all("--platform" not in base for base in bases)


def test_every_role_is_bound_to_the_account_of_the_pods() -> None:
    bound = {(b["roleRef"]["kind"], b["metadata"].get("namespace")) for b in BINDINGS}
    assert bound == {(m["kind"], m["metadata"].get("namespace")) for m in ROLES}
    for binding in BINDINGS:
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": "navarchos", "namespace": "kube-system"}
        ]
    assert POD["spec"]["serviceAccountName"] == "navarchos"


def test_published_names_are_kept() -> None:
    assert DEPLOYMENT["metadata"]["name"] == "navarchos"
    assert DEPLOYMENT["metadata"]["namespace"] == "kube-system"
    assert DEPLOYMENT["spec"]["replicas"] == 2
    assert DEPLOYMENT["spec"]["selector"] == {"matchLabels": {"app": "navarchos"}}
    assert POD["metadata"]["labels"]["app"] == "navarchos"
    assert CONTAINER["image"] == f"quay.io/pusher/navarchos:{__version__}"
    assert CONTAINER["resources"]["requests"] == {"cpu": "50m", "memory": "100Mi"}
    published = {"deployment.yaml", "clusterrole.yaml", "crb.yaml", "role.yaml", "rb.yaml"}
    assert published | {"serviceaccount.yaml"} <= set(FILE_NAMES.values())


@pytest.mark.rule("OP-60")
def test_the_manager_understands_its_arguments() -> None:
    context = manager.make_context("manager", list(CONTAINER["args"]))
    assert context.params["leader_election"] is True
    assert context.params["leader_election_id"] == "navarchos-leader-election"
    assert context.params["leader_election_namespace"] == "kube-system"
    assert context.params["sync_period"] == 300.0


def test_probes_and_scrapes_use_the_ports_of_the_manager() -> None:
    ports = {port["name"]: port["containerPort"] for port in CONTAINER["ports"]}
    context = manager.make_context("manager", list(CONTAINER["args"]))
    assert context.params["metrics_addr"] == f":{ports['metrics']}"
    assert context.params["health_addr"] == f":{ports['health']}"
    assert POD["metadata"]["annotations"]["prometheus.io/port"] == str(ports["metrics"])
    for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert CONTAINER[probe]["httpGet"] == {"path": path, "port": "health"}


def test_the_grace_period_is_longer_than_the_shutdown_of_the_manager() -> None:
    assert POD["spec"]["terminationGracePeriodSeconds"] > ManagerOptions().graceful_shutdown_timeout


def test_pods_meet_the_restricted_security_standard() -> None:
    pod, container = POD["spec"]["securityContext"], CONTAINER["securityContext"]
    assert pod["runAsNonRoot"] is True
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["allowPrivilegeEscalation"] is False
    assert container["readOnlyRootFilesystem"] is True
    assert container["capabilities"] == {"drop": ["ALL"]}


def test_the_image_runs_as_the_user_that_the_pod_names() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    user = POD["spec"]["securityContext"]["runAsUser"]
    assert f"\nUSER {user}:{user}\n" in dockerfile
    # The Deployment has only flags, as in 2019; the image adds the command.
    assert '\nENTRYPOINT ["navarchos", "manager"]\n' in dockerfile


def test_the_budget_allows_one_disruption_of_the_manager() -> None:
    budget = next(m for m in MANIFESTS if m["kind"] == "PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 1
    assert budget["spec"]["selector"] == DEPLOYMENT["spec"]["selector"]


def test_an_api_server_accepts_every_manifest_in_the_order_of_the_files() -> None:
    documents = [
        document
        for _, text in sorted(to_files(manifests()).items())
        for document in yaml.safe_load_all(text)
    ]
    assert len(documents) == len(MANIFESTS)
    ApiServer().install(*documents)


def test_all_manifests_are_printed_as_one_stream() -> None:
    result = CliRunner().invoke(command)
    assert result.exit_code == 0
    assert list(yaml.safe_load_all(result.output)) == MANIFESTS


def test_a_check_fails_on_different_missing_and_unexpected_files(tmp_path: Path) -> None:
    """`kubectl create -f DIR` would create the objects of an unexpected file too."""
    assert CliRunner().invoke(command, ["--output", str(tmp_path)]).exit_code == 0
    (tmp_path / "role.yaml").write_text("rules: []\n")
    (tmp_path / "rb.yaml").unlink()
    (tmp_path / "old.yml").write_text("kind: ClusterRole\n")
    (tmp_path / "README.md").write_text("kubectl does not read this\n")
    result = CliRunner().invoke(command, ["--check", str(tmp_path)])
    assert result.exit_code == 1
    assert result.output.splitlines() == [
        f"{tmp_path}/rb.yaml is missing",
        f"{tmp_path}/role.yaml differs from the generated text",
        f"{tmp_path}/old.yml is not a generated file; remove it",
        f"to update the directory, run: navarchos manifests --output {tmp_path}",
    ]
