"""The shipped image and the shipped Deployment, on real kubelets."""

import os
from typing import Any

import pytest
from tests.cases.installing import Installed
from tests.cases.target import Target
from tests.cases.waiting import wait_for
from tests.foreign import IMAGE

NAMESPACE, NAME, LEASE = "kube-system", "navarchos", "navarchos-leader-election"
LIMIT = 180.0

pytestmark = pytest.mark.timeout(2 * LIMIT + 60)


def pods_of(target: Target) -> list[dict[str, Any]]:
    return target.list("Pod", NAMESPACE, label_selector=f"app={NAME}")


def is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def holder(target: Target) -> str:
    lease = target.find("Lease", LEASE, NAMESPACE) or {}
    return str(lease.get("spec", {}).get("holderIdentity") or "")


def scale(target: Target, replicas: int) -> None:
    target.patch("Deployment", NAME, {"spec": {"replicas": replicas}}, NAMESPACE)


@pytest.mark.skipif(
    not os.environ.get(IMAGE),
    reason="needs nodes that are real and have the image: make e2e-nodes, or make e2e-kind",
)
def test_both_replicas_of_the_shipped_image_become_ready_and_one_leads(
    target: Target, installed: Installed
) -> None:
    scale(target, 2)
    try:

        def both() -> list[dict[str, Any]]:
            ready = [pod for pod in pods_of(target) if is_ready(pod)]
            return ready if len(ready) == 2 else []

        pods = wait_for("two ready replicas", both, LIMIT)
        assert len({pod["spec"]["nodeName"] for pod in pods}) == 2
        for pod in pods:
            (container,) = pod["spec"]["containers"]
            assert container["image"] == os.environ["NAVARCHOS_E2E_IMAGE"]
            assert [each["restartCount"] for each in pod["status"]["containerStatuses"]] == [0]
        # The identity of a manager begins with the name of its pod. Until the lease expires
        # it may still have the identity of a previous manager.
        names = tuple(pod["metadata"]["name"] for pod in pods)
        wait_for("one of the two to lead", lambda: holder(target).startswith(names))
    finally:
        scale(target, 0)
        wait_for("the replicas to go", lambda: not pods_of(target), LIMIT)
