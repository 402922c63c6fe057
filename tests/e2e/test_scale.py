"""Two hundred nodes at once: in time, within limits, within memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROLLOUT = """
apiVersion: navarchos.pusher.com/v1alpha1
kind: NodeRollout
metadata: {generateName: rollout-}
spec:
  strategy: {maxConcurrent: 20}
  nodeSelectors: [{matchAll: true}]
"""


@pytest.mark.timeout(200)
def test_two_hundred_nodes_are_replaced_twenty_at_a_time(tmp_path: Path) -> None:
    """Within 120 s at a hundredfold pace, with a manager that stays under 120 MiB."""
    manifest = tmp_path / "rollout.yml"
    manifest.write_text(ROLLOUT, encoding="utf-8")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "navarchos.cli", "sandbox", "-f", str(manifest)),
            *("--nodes", "200", "--pods-per-node", "10", "--speed", "100"),
            *("--timeout", "120", "-o", "json"),
        ],
        capture_output=True,
        text=True,
        timeout=190,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["rollouts"][0]["completed"] == 200
    assert result["maxInFlight"] == 20
    assert result["managerPeakMemoryMiB"] < 120
