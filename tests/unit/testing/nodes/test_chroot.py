import os
import subprocess
import sys
from pathlib import Path

import pytest

from navarchos.testing.nodes import chroot
from navarchos.testing.nodes.chroot import (
    CannotBuild,
    Chroot,
    ChrootFailed,
    MachineSettings,
    OverlayMount,
    check_machine,
)
from navarchos.testing.nodes.debian import DebianBase

ENV = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
def overlay(tmp_path: Path, base: DebianBase) -> OverlayMount:
    for name in ("upper", "scratch", "root"):
        (tmp_path / name).mkdir(mode=0o755)
    return OverlayMount((base.root,), tmp_path / "upper", tmp_path / "scratch")


@pytest.fixture
def root(tmp_path: Path, overlay: OverlayMount, settings: MachineSettings) -> Chroot:
    binds = {str(path): path for path in settings.files}
    return Chroot(tmp_path / "root", overlay, ENV, binds=binds)


def changes(overlay: OverlayMount) -> list[str]:
    return sorted(str(path.relative_to(overlay.upper)) for path in overlay.upper.rglob("*"))


def test_a_command_sees_only_the_root_and_its_environment(
    root: Chroot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "1")
    output = root.run("sh", "-c", "/usr/bin/env; cat /etc/release; id -u; ls -A / /etc")
    variables, _, rest = output.partition("base\n")
    assert sorted(variables.split()) == ["PATH=/usr/bin:/bin", "PWD=/"]
    assert rest.startswith("0\n")
    assert "home" not in rest.split()
    assert rest.split()[-1] == "release"


def test_changes_are_in_the_upper_folder_alone(
    root: Chroot, overlay: OverlayMount, base: DebianBase
) -> None:
    root.run("sh", "-c", "echo new > /etc/new; rm /opt/old/file; echo $$ > /dev/null")
    assert changes(overlay) == ["etc", "etc/new", "opt", "opt/old", "opt/old/file"]
    assert chroot_whiteout(overlay.upper / "opt/old/file")
    assert (base.root / "opt/old/file").exists()


def chroot_whiteout(path: Path) -> bool:
    status = path.lstat()
    return status.st_rdev == 0 and path.is_char_device()


def test_no_mount_and_no_process_is_left(root: Chroot, tmp_path: Path) -> None:
    name = f"left-by-{tmp_path.name}"
    root.run("sh", "-c", f"sh -c 'sleep 1000; :' {name} & echo started")
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
    commands = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert name not in commands.stdout
    assert list((tmp_path / "root").iterdir()) == []


def test_a_command_ends_with_a_killed_process(root: Chroot, tmp_path: Path) -> None:
    assert root.overlay is not None
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    binds = {**root.binds, "/pipe": pipe}
    program = (
        "from pathlib import Path\n"
        "from navarchos.testing.nodes.chroot import Chroot, OverlayMount\n"
        f"mount = OverlayMount({root.overlay.lower!r}, {root.overlay.upper!r}, "
        f"{root.overlay.scratch!r})\n"
        f"Chroot({root.root!r}, mount, {dict(root.env)!r}, binds={binds!r}).run(\n"
        "    'sh', '-c', 'exec 3>/pipe; echo ready >&3; sleep 1000; :')\n"
    ).replace("PosixPath", "Path")
    process = subprocess.Popen([sys.executable, "-c", program])
    try:
        with pipe.open() as output:
            assert output.readline() == "ready\n"
            process.kill()
            # The end of the pipe is the end of the last process that had it open.
            assert output.read() == ""
    finally:
        process.kill()
        process.wait()


def test_bound_files_are_read_only_and_no_part_of_the_changes(
    tmp_path: Path, root: Chroot, overlay: OverlayMount
) -> None:
    settings = tmp_path / "pip.conf"
    settings.write_text("[global]\n")
    bound = Chroot(root.root, overlay, ENV, binds={**root.binds, "/etc/pip/pip.conf": settings})
    assert bound.run("cat", "/etc/pip/pip.conf") == "[global]\n"
    with pytest.raises(ChrootFailed, match="Read-only file system"):
        bound.run("sh", "-c", "echo x > /etc/pip/pip.conf")
    assert changes(overlay) == []


def test_a_command_runs_as_another_user_in_a_folder(root: Chroot, overlay: OverlayMount) -> None:
    other = Chroot(root.root, overlay, ENV, directory="/srv", user=(65532, 7), binds=root.binds)
    assert other.run("sh", "-c", "id -u; id -g; pwd; umask") == "65532\n7\n/srv\n0022\n"


def test_a_failed_command_shows_the_end_of_its_output(root: Chroot) -> None:
    with pytest.raises(ChrootFailed) as caught:
        root.run("sh", "-c", "for i in 1 2 3; do echo line $i; done; exit 3")
    assert caught.value.why == "failed with status 3"
    assert caught.value.tail == "line 1\nline 2\nline 3"
    assert str(caught.value).startswith("`sh -c for i in 1 2 3;")


def test_a_command_that_takes_too_long_is_killed(root: Chroot) -> None:
    with pytest.raises(ChrootFailed, match="took longer than") as caught:
        root.run("sh", "-c", "echo begun; exec sleep 1000", timeout=0.5)
    assert caught.value.tail == "begun"


def test_names_that_overlayfs_would_misread_are_refused(tmp_path: Path) -> None:
    overlay = OverlayMount((tmp_path / "a:b",), tmp_path, tmp_path)
    with pytest.raises(CannotBuild, match="no colon"):
        overlay.options(tmp_path)


def test_a_machine_without_root_or_programs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(chroot, "_SYSTEM_PATH", "/nowhere")
    with pytest.raises(
        CannotBuild, match="no setpriv, unshare, mount, env, sh on the PATH"
    ) as caught:
        check_machine({"PATH": "/nowhere"})
    assert str(caught.value).startswith("this machine cannot build images: no setpriv")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(CannotBuild, match="only root may mount"):
        check_machine()
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(CannotBuild, match="this is darwin"):
        check_machine()


def test_settings_of_pip_are_passed_as_variables(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    authority = tmp_path / "ca.crt"
    authority.touch()
    system, user = tmp_path / "system.conf", tmp_path / "user.conf"
    system.write_text(
        f"[global]\nindex-url = https://one.example\ncert = {authority}\ntimeout=5\n"
        "require-virtualenv = true\n[install]\nretries = 9\n"
    )
    user.write_text(
        f"[global]\nindex_url = https://two.example\nfind-links = file://{wheels} ./here\n"
    )
    environ = {"PIP_TIMEOUT": "7", "PIP_CONSTRAINT": "/x", "https_proxy": "http://p", "HOME": "/h"}
    found = MachineSettings.read(environ, [system, user, tmp_path / "missing.conf"])
    assert found.env == {
        "https_proxy": "http://p",
        "PIP_INDEX_URL": "https://two.example",
        "PIP_CERT": str(authority),
        "PIP_FIND_LINKS": f"file://{wheels} ./here",
        "PIP_TIMEOUT": "7",
    }
    named = {path for path in found.files if path.is_relative_to(tmp_path)}
    assert named == {wheels, authority}


def test_files_of_pip_are_read_in_its_order(tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": "/config", "PIP_CONFIG_FILE": "/last.conf"}
    files = chroot._pip_files(environ)
    assert [str(path) for path in files[-2:]] == ["/config/pip/pip.conf", "/last.conf"]
    assert files[0] == Path("/etc/xdg/pip/pip.conf")
