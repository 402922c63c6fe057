"""What real nodes need of a machine: each lack has a separate error, with one line."""

import os
import sys
from pathlib import Path

import pytest

from navarchos.testing.nodes import lab_process, requirements
from navarchos.testing.nodes.requirements import (
    ControllersMissing,
    FileSystemMissing,
    LinkMissing,
    NamespacesRefused,
    NodeFailed,
    NodesNotReady,
    NotLinux,
    NotRoot,
    ProgramsMissing,
    WatchersMissing,
    check_requirements,
    check_watchers,
)

VERSION_1 = """\
tmpfs /sys/fs/cgroup tmpfs rw,relatime,mode=755 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,nosuid,nodev,noexec,relatime,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/cpuset cgroup rw,relatime,cpuset,clone_children 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0
cgroup /sys/fs/cgroup/pids cgroup rw,relatime,pids 0 0
cgroup /sys/fs/cgroup/systemd cgroup rw,relatime,xattr,name=systemd 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0
"""
VERSION_2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nodev,noexec,relatime,nsdelegate 0 0\n"


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A root user with all programs, as the check sees the machine."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(requirements, "PATH", str(tmp_path))
    names = ("runc", "iptables", "ip", "unshare", "nsenter", "pivot_root", "mount", "cp")
    for name in names:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    return tmp_path


def test_hierarchies_of_version_1_are_used_where_memory_is() -> None:
    found = lab_process.hierarchies(VERSION_1)
    assert {path.name: options for path, options in found.items()} == {
        "cpu,cpuacct": "cpu,cpuacct",
        "cpuset": "cpuset",
        "memory": "memory",
        "pids": "pids",
        "systemd": "none,name=systemd",
    }


def test_the_hierarchy_of_version_2_is_used_otherwise() -> None:
    assert lab_process.hierarchies(VERSION_2) == {Path("/sys/fs/cgroup"): ""}


def test_no_hierarchy_is_found_without_one() -> None:
    assert lab_process.hierarchies("proc /proc proc rw 0 0\n") == {}


def test_a_machine_with_everything_can_run_nodes(root: Path) -> None:
    check_requirements(VERSION_1, "nodev\toverlay\n")


def test_another_system_cannot_run_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(NotLinux, match="on Linux only, this is darwin") as caught:
        check_requirements()
    assert caught.value.system == "darwin"


def test_another_user_cannot_run_nodes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NotRoot, match="only root can run real nodes, this is user 1000") as caught:
        check_requirements(VERSION_1, "overlay")
    assert caught.value.user == 1000


def test_missing_programs_are_named_with_their_packages(root: Path) -> None:
    for name in ("runc", "ip", "nsenter", "unshare"):
        (root / name).unlink()
    with pytest.raises(ProgramsMissing) as caught:
        check_requirements(VERSION_1, "overlay")
    assert caught.value.names == ("runc", "ip", "unshare", "nsenter")
    assert caught.value.packages == ("runc", "iproute2", "util-linux")
    assert str(caught.value) == (
        "real nodes need runc, ip, unshare, nsenter; "
        "run `apt-get install --no-install-recommends runc iproute2 util-linux`"
    )


def test_missing_controllers_are_named(root: Path) -> None:
    without = "".join(line for line in VERSION_1.splitlines(True) if "/pids" not in line)
    with pytest.raises(ControllersMissing, match="the control group controllers pids") as caught:
        check_requirements(without, "overlay")
    assert caught.value.names == ("pids",)


def test_a_missing_file_system_is_named(root: Path) -> None:
    with pytest.raises(FileSystemMissing, match="run `modprobe overlay`") as caught:
        check_requirements(VERSION_1, "nodev\ttmpfs\n")
    assert caught.value.name == "overlay"


def test_refused_namespaces_are_named(root: Path) -> None:
    (root / "unshare").write_text("#!/bin/sh\necho unshare failed: not permitted >&2; exit 1\n")
    with pytest.raises(NamespacesRefused, match="--privileged") as caught:
        check_requirements(VERSION_1, "overlay")
    assert caught.value.why == "unshare failed: not permitted"


def test_a_program_that_hangs_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "unshare").write_text("#!/bin/sh\nexec sleep 60\n")
    (root / "sleep").symlink_to("/bin/sleep")
    monkeypatch.setattr(requirements, "_TIMEOUT", 0.1)
    with pytest.raises(NamespacesRefused, match=r"`unshare` does not end within 0\.1 s"):
        check_requirements(VERSION_1, "overlay")


@pytest.mark.parametrize("kind", ["veth", "bridge"])
def test_a_missing_kind_of_link_is_named(root: Path, kind: str) -> None:
    refuses = (
        f'#!/bin/sh\nfor each; do :; done; [ "$each" != {kind} ] || {{ echo no >&2; exit 2; }}\n'
    )
    (root / "unshare").write_text(refuses)
    with pytest.raises(LinkMissing, match=f"of the kind {kind}, but: no") as caught:
        check_requirements(VERSION_1, "overlay")
    assert (caught.value.kind, caught.value.why) == (kind, "no")


def test_free_inotify_instances_limit_the_number_of_nodes(tmp_path: Path) -> None:
    limit = tmp_path / "sys/fs/inotify/max_user_instances"
    limit.parent.mkdir(parents=True)
    limit.write_text("30\n")
    files = tmp_path / "42" / "fd"
    files.mkdir(parents=True)
    for number, target in enumerate(["anon_inode:inotify"] * 3 + ["/dev/null", "socket:[7]"]):
        (files / str(number)).symlink_to(target)
    check_watchers(3, tmp_path)
    with pytest.raises(WatchersMissing) as caught:
        check_watchers(4, tmp_path)
    assert (caught.value.nodes, caught.value.free, caught.value.limit) == (4, 27, 30)
    assert str(caught.value) == (
        "4 real nodes need 36 inotify instances, and 27 of 30 are free; stop other nodes, or run "
        "`sysctl fs.inotify.max_user_instances=1024`"
    )


def test_errors_of_nodes_say_what_happened() -> None:
    assert str(NodeFailed("real-1", "it has no power")) == "node real-1: it has no power"
    assert str(NodeFailed("real-1", "it ended", "a\nb")) == (
        "node real-1: it ended; its log ends:\na\nb"
    )
    error = NodesNotReady({"real-1": "not registered", "real-2": "no network"}, 60, "the log")
    assert str(error) == (
        "nodes are not Ready after 60 s: real-1 (not registered), real-2 (no network); "
        "the kubelet's log of the first one ends:\nthe log"
    )
