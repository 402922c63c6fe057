"""`navarchos sandbox`, with the production manager, over HTTP."""

import os
import re
import select
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.conftest import CommandLine

HEAD = """
apiVersion: navarchos.pusher.com/v1alpha1
kind: NodeRollout
metadata: {generateName: rollout-}
spec:
"""
ALL_NODES = HEAD + "  nodeSelectors: [{matchAll: true}]\n"
EXAMPLES = Path(__file__).parents[2] / "src/navarchos/cli/examples"
SMALL = ("--nodes", "6", "--pods-per-node", "3", "--speed", "100", "-o", "json")

Manifest = Callable[[str], str]


def test_the_bundled_example_completes_in_the_order_of_priorities(
    navarchos: CommandLine,
) -> None:
    """One at a time by default: important-node, support, worker, spot-worker."""
    done = navarchos.run("sandbox", "-o", "json", "--speed", "100", "--nodes", "6")
    assert done.status == 0, done.stderr
    result = done.result
    (rollout,) = result["rollouts"]
    assert rollout["phase"] == "Completed"
    assert rollout["name"].startswith("rollout-")
    assert rollout["created"] == rollout["completed"] == len(result["order"]) >= 4
    assert rollout["failed"] == 0
    assert result["nodes"] == 6
    assert result["order"][0] == "important-node"
    assert result["maxInFlight"] == 1
    assert result["evictions"] > 0
    assert result["managerPeakMemoryMiB"] < 120


@pytest.mark.rule("OP-05")
def test_lower_priorities_wait_for_higher_ones_across_rollouts(
    navarchos: CommandLine, manifest: Manifest
) -> None:
    first = HEAD + "  nodeNames: [{name: node-1, replacement: {priority: 1}}]\n"
    second = HEAD + (
        "  strategy: {maxConcurrent: 3}\n"
        "  nodeNames:\n"
        "  - {name: node-2, replacement: {priority: 3}}\n"
        "  - {name: node-3, replacement: {priority: 2}}\n"
    )
    done = navarchos.run("sandbox", "-f", manifest(first + "---" + second), *SMALL)
    assert done.status == 0, done.stderr
    order = done.result["order"]
    # node-1 may start before the second rollout exists.
    assert order.index("node-2") < order.index("node-3")
    assert sorted(order) == ["node-1", "node-2", "node-3"]


def test_max_concurrent_nodes_are_in_flight(navarchos: CommandLine, manifest: Manifest) -> None:
    text = HEAD + "  strategy: {maxConcurrent: 3}\n  nodeSelectors: [{matchAll: true}]\n"
    done = navarchos.run("sandbox", "-f", manifest(text), *SMALL)
    assert done.status == 0, done.stderr
    assert done.result["maxInFlight"] == 3


def test_two_files_create_two_rollouts(navarchos: CommandLine, manifest: Manifest) -> None:
    one = manifest(HEAD + "  nodeNames: [{name: node-1}]\n")
    two = manifest(HEAD + "  nodeNames: [{name: node-2}]\n")
    done = navarchos.run("sandbox", "-f", one, "-f", two, *SMALL)
    assert done.status == 0, done.stderr
    assert [r["phase"] for r in done.result["rollouts"]] == ["Completed", "Completed"]


def test_a_rollout_that_matches_nothing_is_completed(
    navarchos: CommandLine, manifest: Manifest
) -> None:
    text = HEAD + "  nodeSelectors: [{matchLabels: {none: such}}]\n"
    done = navarchos.run("sandbox", "-f", manifest(text), *SMALL)
    assert done.status == 0, done.stderr
    assert done.result["order"] == []


def test_a_halted_rollout_exits_with_1_and_shows_the_blocked_pods(
    navarchos: CommandLine, manifest: Manifest
) -> None:
    """A drain that does not ignore DaemonSet pods fails."""
    text = ALL_NODES + "  strategy: {retries: 0}\n  drain: {ignoreDaemonSets: false}\n"
    done = navarchos.run("sandbox", "-f", manifest(text), *SMALL)
    assert done.status == 1
    (line,) = done.stderr.strip().splitlines()
    assert "Halted" in line
    assert "blocked by" in line
    assert done.result["rollouts"][0]["phase"] == "Halted"


def test_a_timeout_exits_with_1_and_shows_the_progress(
    navarchos: CommandLine, manifest: Manifest
) -> None:
    done = navarchos.run("sandbox", "-f", manifest(ALL_NODES), "--timeout", "0.5", *SMALL)
    assert done.status == 1
    (line,) = done.stderr.strip().splitlines()
    assert re.search(
        r"not completed within 0\.5 s: rollout-\w{5} is \w+ \(0 of \d nodes replaced\)", line
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: [", "not YAML"),
        (HEAD + "  nodeSelectors: [{matchLabels: {no: way}}]", "quote the key written as no"),
        (HEAD + "  nodeSelectors: [{replacement: {priority: 1}}]", "selects every node"),
        (HEAD + "  pawsed: true", 'unknown field "spec.pawsed"'),
        (HEAD + "  strategy: {onNodeFailure: Explode}", "spec.strategy.onNodeFailure"),
        (HEAD + "  strategy: {maxConcurrent: 1000%}", "spec.strategy.maxConcurrent"),
        (HEAD + "  nodeNames: [{replacement: {priority: 1}}]", "spec.nodeNames[0].name"),
    ],
)
def test_an_invalid_manifest_is_refused_in_one_line_and_nothing_is_created(
    navarchos: CommandLine, manifest: Manifest, text: str, reason: str
) -> None:
    good, bad = manifest(ALL_NODES), manifest(text)
    done = navarchos.run("sandbox", "-f", good, "-f", bad, *SMALL)
    assert done.status == 2
    (line,) = done.stderr.strip().splitlines()
    assert bad in line
    assert reason in line
    assert done.stdout == ""


def test_a_missing_file_is_refused(navarchos: CommandLine, tmp_path: Path) -> None:
    done = navarchos.run("sandbox", "-f", str(tmp_path / "none.yml"))
    assert (done.status, done.stdout) == (2, "")
    (line,) = done.stderr.strip().splitlines()
    assert "none.yml: cannot be read" in line


def test_bundled_examples_are_listed_with_their_first_line(navarchos: CommandLine) -> None:
    done = navarchos.run("sandbox", "--list")
    assert done.status == 0
    listed = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert set(listed) == {path.name for path in EXAMPLES.glob("*.yml")}
    assert listed["rollout.yml"].startswith("Four groups of nodes in order of priority")


@pytest.mark.rule("NP-53")
@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.yml")))
def test_a_bundled_example_completes_by_its_name(navarchos: CommandLine, name: str) -> None:
    """Any directory will do: it has no such file."""
    done = navarchos.run("sandbox", "-f", name, "-o", "json", "--speed", "100")
    assert done.status == 0, done.stderr
    assert [rollout["phase"] for rollout in done.result["rollouts"]] == ["Completed"]


def test_a_file_counts_more_than_an_example_with_its_name(
    navarchos: CommandLine, tmp_path: Path
) -> None:
    own = tmp_path / "work" / "rollout.yml"
    own.write_text(HEAD + "  nodeNames: [{name: node-2}]\n", encoding="utf-8")
    try:
        done = navarchos.run("sandbox", "-f", "rollout.yml", *SMALL)
    finally:
        own.unlink()
    assert done.result["order"] == ["node-2"]


@pytest.mark.parametrize(
    "arguments",
    [("--nodes", "0"), ("--speed", "fast"), ("--port", "70000"), ("--no-such",), ("x",)],
)
def test_bad_usage_is_reported_in_one_line(
    navarchos: CommandLine, arguments: tuple[str, ...]
) -> None:
    done = navarchos.run("sandbox", *arguments)
    assert (done.status, done.stdout) == (2, "")
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("navarchos: ")


def wait_for_line(process: "subprocess.Popen[str]", pattern: str) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if re.search(pattern, line):
            return line
    raise AssertionError(
        f"the process ended without a line like {pattern}: {process.communicate()[1]}"
    )


@pytest.mark.parametrize("moment", ["Reserved|Draining", "drained"])
def test_ctrl_c_ends_the_sandbox_within_two_seconds_without_a_traceback(
    navarchos: CommandLine, manifest: Manifest, moment: str
) -> None:
    arguments = [argument for argument in SMALL if argument not in {"-o", "json"}]
    process = navarchos.start("sandbox", "-f", manifest(ALL_NODES), *arguments)
    wait_for_line(process, moment)
    manager = children(process.pid)
    os.kill(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=2)
    assert process.returncode == 130
    assert "Traceback" not in stderr
    assert manager
    assert not any(Path(f"/proc/{pid}").exists() for pid in manager)


def test_the_manager_ends_with_a_sandbox_that_is_killed(
    navarchos: CommandLine, manifest: Manifest, tmp_path: Path
) -> None:
    arguments = [argument for argument in SMALL if argument not in {"-o", "json"}]
    process = navarchos.start("sandbox", "-f", manifest(ALL_NODES), *arguments)
    wait_for_line(process, "Reserved|Draining")
    (manager,) = children(process.pid)
    watched = os.pidfd_open(manager)
    try:
        process.kill()
        ended, _, _ = select.select([watched], [], [], 60)
        assert ended
    finally:
        os.close(watched)
    for left in (tmp_path / "work").iterdir():  # the killed sandbox could not remove it
        shutil.rmtree(left)


def children(pid: int) -> list[int]:
    listing = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [int(child) for child in listing.split()]
