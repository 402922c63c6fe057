"""The operator, installed as the README says."""

from dataclasses import dataclass

from tests.cases.kubectl import Kubectl
from tests.cases.target import CONFIG, GROUP
from tests.cases.waiting import wait_for

__all__ = ["Installed", "install"]


@dataclass(frozen=True)
class Installed:
    """The output of kubectl.

    Attributes:
        definitions: The output of `kubectl create -f config/crds`.
        deployment: The output of `kubectl create -f config/deploy`.
    """

    definitions: str
    deployment: str


def install(kubectl: Kubectl) -> Installed:
    """Create `config/crds` and `config/deploy` unchanged, then scale the manager down.

    kubectl must not print warnings, by which the server reports problems of a schema.
    """
    if kubectl("api-resources", f"--api-group={GROUP}", "--no-headers"):
        _clear(kubectl)
    definitions = kubectl("create", "-f", str(CONFIG / "crds"))
    kubectl("wait", "--for=condition=Established", "-f", str(CONFIG / "crds"), "--timeout=30s")
    deployment = kubectl("create", "-f", str(CONFIG / "deploy"))
    # Cases count pods and lease holders: only their own managers may run.
    kubectl("scale", "deployment/navarchos", "--namespace=kube-system", "--replicas=0")
    pods = ("get", "pods", "--namespace=kube-system", "--selector=app=navarchos", "-o", "name")
    wait_for("the end of the installed managers", lambda: not kubectl(*pods))
    return Installed(definitions, deployment)


def _clear(kubectl: Kubectl) -> None:
    """Remove an unused installation."""
    kinds = f"noderollouts.{GROUP},nodereplacements.{GROUP},nodedrains.{GROUP}"
    used = kubectl.run("get", kinds, "-o", "name").stdout
    assert not used, f"the cluster has rollouts, use another one: {used}"
    for folder in ("deploy", "crds"):
        kubectl("delete", "-f", str(CONFIG / folder), "--ignore-not-found", "--wait=true")
