"""The operator, installed as the README says."""

from dataclasses import dataclass

from tests.e2e.target import CONFIG, GROUP, Target

__all__ = ["Installed", "install"]


@dataclass(frozen=True)
class Installed:
    """What kubectl said.

    Attributes:
        definitions: To `kubectl create -f config/crds`.
        deployment: To `kubectl create -f config/deploy`.
    """

    definitions: str
    deployment: str


def install(target: Target) -> Installed:
    """Create `config/crds` and `config/deploy`, as they are; then scale the manager down.

    kubectl must not warn: that is how the server says what it dislikes about a schema.
    """
    kubectl = target.kubectl
    if kubectl("api-resources", f"--api-group={GROUP}", "--no-headers"):
        _clear(target)
    definitions = kubectl("create", "-f", str(CONFIG / "crds"))
    kubectl("wait", "--for=condition=Established", "-f", str(CONFIG / "crds"), "--timeout=30s")
    deployment = kubectl("create", "-f", str(CONFIG / "deploy"))
    # Cases count pods and lease holders: only their own managers may run.
    kubectl("scale", "deployment/navarchos", "--namespace=kube-system", "--replicas=0")
    return Installed(definitions, deployment)


def _clear(target: Target) -> None:
    """Remove an installation that nobody uses."""
    kinds = f"noderollouts.{GROUP},nodereplacements.{GROUP},nodedrains.{GROUP}"
    used = target.kubectl.run("get", kinds, "-o", "name").stdout
    assert not used, f"the cluster has rollouts of its own, use another one: {used}"
    for folder in ("deploy", "crds"):
        target.kubectl("delete", "-f", str(CONFIG / folder), "--ignore-not-found", "--wait=true")
