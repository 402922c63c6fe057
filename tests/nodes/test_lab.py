"""A lab of real nodes leaves nothing on the machine, and reaches nothing outside."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from tests.nodes.conftest import WAITS, Kubectl, answers, is_ready, pod, until

from navarchos.errors import AlreadyStarted, ConfigError, NotStarted
from navarchos.testing.controlplane import ControlPlane
from navarchos.testing.nodes import Lab, Nodes, WatchersMissing, lab_process
from navarchos.testing.nodes.lab import REGISTRY

pytestmark = pytest.mark.timeout(300)

ROUNDS = int(os.environ.get("NAVARCHOS_LAB_ROUNDS", "2"))
"""How often a lab and its nodes are started and stopped; `make nightly` does it 100 times."""

VOLATILE = (
    *("dentry-state", "file-nr", "inode-nr", "inode-state", "aio-nr", "ns_last_pid", "pty/nr"),
    *("entropy_avail", "uuid", "urandom", "boot_id", "nf_conntrack_count", "quota/syncs"),
)
"""Names in /proc/sys that change all the time, or of counters."""

# A test process that is killed: it starts a lab, reports, and waits.
VICTIM = """
import json, sys, time
from navarchos.testing.controlplane import ControlPlane
from navarchos.testing.nodes import Lab, Nodes
with Lab() as lab, ControlPlane(network=lab) as server, Nodes(server, 1) as nodes:
    print(json.dumps({"identity": lab.identity, "directory": str(lab.directory),
                      "keeper": lab._keeper.pid}), flush=True)
    time.sleep(600)
"""


def settings() -> dict[str, str]:
    """Return the settings of the kernel, outside any lab."""
    found = {}
    for folder in ("vm", "kernel", "net", "fs"):
        for path in Path("/proc/sys", folder).rglob("*"):
            if path.is_file() and not str(path).endswith(tuple(VOLATILE)):
                with suppress(OSError):  # some can only be written
                    found[str(path)] = path.read_text(errors="replace")
    return found


def network() -> dict[str, str]:
    """Return links, addresses, routes and rules, outside any lab."""
    commands = ("-o link", "-o address", "route show table all", "rule")
    found = {each: subprocess.check_output(["ip", *each.split()], text=True) for each in commands}
    found["-o address"] = ""  # has lifetimes that count down
    found["iptables"] = subprocess.check_output(["iptables-save"], text=True)
    lines = found["iptables"].splitlines()
    found["iptables"] = "\n".join(line for line in lines if not line.startswith("#"))
    return found


def groups(identity: str) -> list[Path]:
    """Return the control groups of a lab."""
    name = f"{lab_process.GROUP_PREFIX}{identity}"
    # Not by a recursive glob, which fails if a group is removed meanwhile.
    return [folder / name for folder in lab_process.hierarchies() if (folder / name).is_dir()]


def files(identity: str) -> list[Path]:
    """Return the files of a lab, wherever they could be."""
    places = (REGISTRY, Path.home() / ".cache/navarchos/labs", Path("/tmp"), Path("/var/tmp"))
    return [path for place in places for path in place.glob(f"*{identity}*")]


def namespaces_inside(lab: Lab) -> set[str]:
    """Return the process namespaces of a lab and its nodes."""
    script = "for p in /proc/[0-9]*; do readlink $p/ns/pid; done; true"
    return set(lab.run(["sh", "-c", script]).stdout.split())


def processes_in(namespaces: set[str]) -> list[str]:
    """Return the command lines of the machine's processes in some process namespaces."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # the process has just ended
            if str((path / "ns/pid").readlink()) in namespaces:
                found.append((path / "cmdline").read_text().replace("\0", " "))
    return found


@dataclass
class Before:
    """The machine before a lab."""

    settings: dict[str, str]
    network: dict[str, str]
    mounts: str

    @classmethod
    def read(cls) -> "Before":
        return cls(settings(), network(), Path("/proc/self/mountinfo").read_text())

    def assert_unchanged(self) -> None:
        after = Before.read()
        changed = {
            name: (value, after.settings.get(name))
            for name, value in self.settings.items()
            if after.settings.get(name) != value
        }
        assert changed == {}
        assert after.network == self.network
        assert after.mounts == self.mounts


def assert_gone(identity: str) -> None:
    """Check that nothing of a lab is left."""
    assert groups(identity) == []
    assert files(identity) == []


@pytest.mark.timeout(7200)
def test_labs_leave_nothing_on_the_machine() -> None:
    before = Before.read()
    for _ in range(ROUNDS):
        with Lab() as lab, ControlPlane(network=lab) as server, Nodes(server, 2) as nodes:
            server.install(pod("first", WAITS, nodeName="real-1"))
            until(partial(is_ready, server, "first"))
            nodes["real-2"].reboot()
            identity, inside = lab.identity, namespaces_inside(lab)
            assert len(inside) >= 3  # the lab, each node, and the pod's containers
            assert any("kubelet" in each for each in processes_in(inside))
            assert len(groups(identity)) == len(lab_process.hierarchies())
            assert files(identity) != []
        assert processes_in(inside) == []
        assert_gone(identity)
    before.assert_unchanged()


def test_nodes_leave_nothing_in_their_lab(lab: Lab, server: ControlPlane) -> None:
    def inside() -> list[object]:
        links = lab.run(["ip", "-o", "link"]).stdout.splitlines()
        folders = [path for path in lab.directory.rglob("*") if "nodes" in path.parts]
        below = [path for top in groups(lab.identity) for path in top.iterdir() if path.is_dir()]
        return [len(links), folders, below, len(processes_in(namespaces_inside(lab)))]

    with Nodes(server, 1):
        pass
    before = inside()
    for _ in range(ROUNDS):
        with Nodes(server, 2) as nodes:
            nodes.add()
    assert inside() == before


def start_victim() -> tuple["subprocess.Popen[str]", dict[str, str]]:
    victim = subprocess.Popen(
        [sys.executable, "-c", VICTIM], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert victim.stdout is not None
    for line in victim.stdout:
        if line.startswith("{"):
            return victim, json.loads(line)
    raise AssertionError("the process ended")


def end(victim: "subprocess.Popen[str]") -> None:
    victim.kill()
    victim.wait()
    assert victim.stdout is not None
    victim.stdout.close()


def test_a_lab_ends_when_the_test_is_killed() -> None:
    before = Before.read()
    victim, facts = start_victim()
    assert groups(facts["identity"]) != []
    end(victim)
    until(lambda: not groups(facts["identity"]) and not files(facts["identity"]), 30.0)
    before.assert_unchanged()


def test_the_next_lab_sweeps_what_a_killed_keeper_left() -> None:
    before = Before.read()
    victim, facts = start_victim()
    os.kill(int(facts["keeper"]), signal.SIGKILL)
    end(victim)
    assert Path(facts["directory"]).exists()
    assert groups(facts["identity"]) != []

    def swept() -> bool:
        with Lab():
            return not files(facts["identity"]) and not groups(facts["identity"])

    until(swept, 30.0)  # its processes end some time after the keeper
    before.assert_unchanged()


def test_a_sweep_spares_labs_that_run(lab: Lab) -> None:
    lab_process.Registry(REGISTRY).sweep()
    assert lab.directory.exists()
    assert (REGISTRY / lab.identity).read_text() == str(lab.directory)


def test_two_labs_do_not_meet(lab: Lab, server: ControlPlane) -> None:
    with (
        Nodes(server, 1) as nodes,
        Lab() as other,
        ControlPlane(network=other) as other_server,
        Nodes(other_server, 1) as other_nodes,
    ):
        ours, theirs = nodes["real-1"], other_nodes["real-1"]
        assert (ours.address, ours.machine) == (theirs.address, theirs.machine)
        other_server.install(pod("only-there", WAITS))
        until(lambda: is_ready(other_server, "only-there"))
        uids = {each.get("nodes", "real-1")["metadata"]["uid"] for each in (server, other_server)}
        assert len(uids) == 2
        assert "only-there" not in {each["metadata"]["name"] for each in server.list("pods")}
        ours.run(["touch", "/var/ours"])
        assert theirs.run(["test", "-e", "/var/ours"], check=False).returncode == 1
        theirs.power_off()
        assert answers(lab, ours)
        assert not answers(other, theirs)


def addresses_of_the_machine() -> Iterator[str]:
    output = subprocess.check_output(["ip", "-o", "-4", "address"], text=True)
    for line in output.splitlines():
        address = line.split()[3].partition("/")[0]
        if not address.startswith("127."):
            yield address


def test_nothing_inside_reaches_the_network_outside(
    server: ControlPlane, lab: Lab, kubectl: Kubectl
) -> None:
    with closing(socket.create_server(("", 0))) as outside, Nodes(server, 1) as nodes:
        port = outside.getsockname()[1]
        outside.settimeout(0.5)
        targets = [*addresses_of_the_machine(), "127.0.0.1"]
        server.install(pod("inside", WAITS))
        until(lambda: is_ready(server, "inside"))
        for address in targets:
            attempt = ["bash", "-c", f"timeout 2 bash -c 'echo > /dev/tcp/{address}/{port}'"]
            assert lab.run(attempt, check=False).returncode != 0
            assert nodes["real-1"].run(attempt, check=False).returncode != 0
            asks = f"nc -w 2 {address} {port} < /dev/null && echo reached"
            assert "reached" not in kubectl("exec", "inside", "--", "sh", "-c", asks, check=False)
        with pytest.raises(TimeoutError):
            outside.accept()
        # The same attempt succeeds where it may.
        apiserver = server.internal_url.rpartition("/")[2].replace(":", "/")
        reaches = ["bash", "-c", f"timeout 10 bash -c 'echo > /dev/tcp/{apiserver}'"]
        nodes["real-1"].run(reaches)
        route = lab.run(["ip", "route", "get", "192.0.2.1"], check=False)
        assert "unreachable" in route.stderr


def test_ports_of_two_control_planes_are_reserved(lab: Lab, server: ControlPlane) -> None:
    def reserved() -> list[str]:
        path = "/proc/sys/net/ipv4/ip_local_reserved_ports"
        return lab.run(["cat", path]).stdout.strip().split(",")

    before = reserved()
    assert server.url.rpartition(":")[2] in before
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    end = lab.forward([port])
    assert sorted(reserved()) == sorted([*before, str(port)])
    end()


def test_a_lab_starts_once_at_a_time(lab: Lab) -> None:
    with pytest.raises(AlreadyStarted):
        lab.start()
    stopped = Lab()
    stopped.stop()
    with pytest.raises(NotStarted):
        stopped.run(["true"])


def test_a_lab_can_start_again() -> None:
    lab = Lab()
    identities = set()
    for _ in range(2):
        with lab:
            identities.add(lab.identity)
            assert lab.run(["hostname"]).returncode == 0
    assert len(identities) == 2


def test_nodes_need_a_lab() -> None:
    with pytest.raises(ConfigError, match="its network must be a Lab"):
        Nodes(ControlPlane(), 1)


@pytest.mark.parametrize(("count", "limit"), [(3, 8.0), (10, 20.0)])
def test_how_fast_nodes_are_ready(
    server: ControlPlane, count: int, limit: float, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    try:
        with Nodes(server, count):
            seconds = time.monotonic() - began
    except WatchersMissing as error:  # other labs run at the same time
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    # Measured, not asserted: the machine may be busy.
    with capsys.disabled():
        sys.stdout.write(f"{count} nodes Ready after {seconds:.1f} s; at rest below {limit:g} s\n")
