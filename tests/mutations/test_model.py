"""That the model notices what its invariants are there for: the operator is broken in a copy.

Each change is a mistake that somebody could make, and few runs have to be enough to find it.
Where they are no longer, an invariant is missing or the model does not come to such a scene.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def seeds(count: int) -> tuple[str, ...]:
    """Return the arguments that play so many runs."""
    return "--from", "0", "--count", str(count)


@dataclass(frozen=True)
class Mutant:
    """A mistake, and what is said about it.

    Attributes:
        module: Where, below `src/navarchos`.
        whole: What stands there.
        broken: What stands there by mistake.
        noticed: A part of the verdict.
        runs: Arguments of the model's command.
    """

    module: str
    whole: str
    broken: str
    noticed: str
    runs: tuple[str, ...] = seeds(16)


ADMISSION = "operator/replacements/admission.py"
MUTANTS = {
    "one-node-too-many": Mutant(
        ADMISSION,
        "if len(self._busy) >= limit:",
        "if len(self._busy) > limit:",
        "nodes in flight",
    ),
    "priorities-ignored": Mutant(
        ADMISSION,
        "if replacement.spec.replacement.priority == top:",
        "if replacement.spec.replacement.priority <= top:",
        "started before",
    ),
    "topology-ignored": Mutant(
        ADMISSION,
        "if not self._shares_topology(candidate):",
        "if False:",
        "which has another zone",
        seeds(24),
    ),
    "control-plane-not-guarded": Mutant(
        ADMISSION,
        "if self._weakens_control_plane(candidate):",
        "if False:",
        "both are of the control plane",
        seeds(24),
    ),
    "settling-ignored": Mutant(
        ADMISSION,
        "if self._now < self._settled_at:",
        "if False:",
        "which settles for",
        seeds(24),
    ),
    "any-number-of-nodes-stalled": Mutant(
        "operator/replacements/stalled.py",
        "room = _room(rollout, children) if rollout is not None else 0",
        "room = len(found)",
        "gave its slot away",
    ),
    "retries-without-end": Mutant(
        "operator/replacements/status.py",
        "if status.counted_attempts <= replacement.spec.strategy.retries:",
        "if status.counted_attempts <= replacement.spec.strategy.retries + 99:",
        "is tried again after",
    ),
    "eviction-without-uid": Mutant(
        "drain/eviction.py",
        "uid=meta.uid,\n"
        "                grace_period_seconds=grace,\n"
        "                policy_version",
        "grace_period_seconds=grace,\n                policy_version",
        "without the uid that is meant",
    ),
    "eviction-while-paused": Mutant(
        "operator/drains/decide.py",
        "seen.cordon.in_force and not seen.is_suspended:",
        "seen.cordon.in_force:",
        "while its drain is paused",
    ),
    "foreign-cordon-undone": Mutant(
        "operator/drains/cordon.py",
        "if node is None or not _is_marked(node, drain):\n            return False\n"
        "        if node.spec.unschedulable and not is_cordoned_by_others(node):",
        "if node is None:\n            return False\n        if node.spec.unschedulable:",
        "was uncordoned",
        seeds(32),
    ),
    "cordon-left-behind": Mutant(
        "operator/drains/cordon.py",
        "if node is None or not _is_marked(node, drain):",
        "if node is None or True:",
        "is cordoned by",
    ),
    "node-of-the-same-name": Mutant(
        "operator/drains/cordon.py",
        'return drain.spec.node_uid in {"", node.metadata.uid}',
        "return bool(node.metadata.uid)",
        "another",
    ),
    "cordon-of-a-drained-node-undone": Mutant(
        "operator/replacements/pipeline.py",
        "        self._keep_cordon(drain)\n        at =",
        "        at =",
        "takes pods again",
    ),
    "writes-without-a-fence": Mutant(
        "runtime/manager.py",
        "client if self._election is None else client.fenced(self._election.fence)",
        "client",
        "holds the lease",
        seeds(24),
    ),
}

# All of them take minutes: make nightly does that.
PLAYED = (
    (*MUTANTS,) if "NAVARCHOS_SEEDS" in os.environ else ("one-node-too-many", "retries-without-end")
)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PLAYED)
def test_a_mistake_of_the_operator_makes_a_run_of_the_model_fail(tmp_path: Path, name: str) -> None:
    mutant = MUTANTS[name]
    shutil.copytree(ROOT / "src", tmp_path / "src")
    module = tmp_path / "src" / "navarchos" / mutant.module
    text = module.read_text(encoding="utf-8")
    assert text.count(mutant.whole) == 1, (
        f"{mutant.module} has changed: what is to be broken is not there"
    )
    module.write_text(text.replace(mutant.whole, mutant.broken), encoding="utf-8")
    path = os.pathsep.join([str(tmp_path / "src"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "tests.model", *mutant.runs],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout[-2000:] + done.stderr
    assert mutant.noticed in done.stdout + done.stderr
