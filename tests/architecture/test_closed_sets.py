"""A new member of a closed set is found by the type checker at every place that handles it.

The sources are copied, each set gets one more member, and mypy checks the copy once. Sets that
are keys of a mapping are covered by tests of these mappings.
"""

import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).parents[2]
API = "operator/api/v1alpha1"
HOMES: Final = {
    "EscalationAction": f"{API}/drain_spec.py",
    "EvictionOutcome": "drain/eviction.py",
    "ActionKind": f"{API}/action.py",
    "Step": f"{API}/node_replacement.py",
    "DrainPhase": f"{API}/node_drain.py",
    "RolloutPhase": f"{API}/node_rollout.py",
    "Report": "operator/drains/decide.py",
    "WaitReason": "operator/reasons.py",
}
"""The enums, with their modules."""

PLACES: Final = {
    "EscalationAction": {"operator/drains/batch.py", "operator/preflight/pod_findings.py"},
    "EvictionOutcome": {
        "drain/eviction.py",
        "operator/drains/batch.py",
        "operator/drains/status.py",
        "operator/preflight/collector.py",
    },
    "WaitReason": {"operator/reasons.py"},
    "ActionKind": {f"{API}/action.py"},
    "Step": {
        f"{API}/node_replacement.py",
        "cli/sandbox/view.py",
        "operator/replacements/events.py",
        "operator/replacements/step_reader.py",
        "operator/replacements/steps/__init__.py",
        "operator/replacements/steps/decision.py",
    },
    "DrainPhase": {f"{API}/node_drain.py", "operator/replacements/steps/draining.py"},
    "RolloutPhase": {
        "cli/status.py",
        "cli/summary.py",
        "operator/replacements/admission_order.py",
        "operator/rollouts/events.py",
        "operator/rollouts/status.py",
    },
    "Report": {"operator/drains/status.py"},
}
"""The modules in which a new member needs a decision."""

ERROR = re.compile(
    r'^src/navarchos/(\S+?):\d+: error: Argument 1 to "assert_never" has incompatible type '
    r'"Literal\[(\w+)\.ADDED\]"',
    re.MULTILINE,
)


@pytest.fixture(scope="module")
def named_places(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, set[str]]:
    """Return the modules that mypy names for each enum with one more member."""
    copy = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("*.egg-info"))
    shutil.copy(ROOT / "setup.cfg", copy)
    for enum, home in HOMES.items():
        module = copy / "src" / "navarchos" / home
        text = module.read_text(encoding="utf-8")
        first_member = re.compile(
            rf"(^class {enum}\((\w+)\):\n.*?)(^    [A-Z_]+ = )", re.MULTILINE | re.DOTALL
        )
        kind = first_member.search(text)
        assert kind is not None, f"{enum} is not in {home}"
        value = '"Added"' if kind[2] == "StrEnum" else "auto()"
        text = first_member.sub(rf"\g<1>    ADDED = {value}\n\g<3>", text, count=1)
        module.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "-p", "navarchos.operator", "-p", "navarchos.cli"]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    found: dict[str, set[str]] = defaultdict(set)
    for place, enum in ERROR.findall(done.stdout):
        found[enum].add(place)
    assert found, done.stdout + done.stderr
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("enum", HOMES)
def test_mypy_names_every_place_that_handles_a_new_member(
    enum: str, named_places: Mapping[str, set[str]]
) -> None:
    assert named_places[enum] == PLACES[enum]
