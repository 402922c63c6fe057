"""Pods for benchmarks are as large as real ones, and the same in every run."""

import json

from benchmarks import population


def test_a_pod_is_as_large_as_real_ones() -> None:
    found = population.pod(0, population.node_name(0))
    assert 10_000 < len(json.dumps(found, separators=(",", ":"))) < 12_000
    assert {entry["manager"] for entry in found["metadata"]["managedFields"]} == {
        "kube-controller-manager",
        "kubelet",
    }


def test_pods_have_unique_names_and_uids_that_are_the_same_in_every_run() -> None:
    made = [population.pod(number, "node") for number in range(2_000)]
    assert len({(p["metadata"]["namespace"], p["metadata"]["name"]) for p in made}) == 2_000
    assert len({p["metadata"]["uid"] for p in made}) == 2_000
    assert made[5] == population.pod(5, "node")
