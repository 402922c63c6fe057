"""Commands in a root file system that is not the machine's, as builds of images run them.

A command runs in mount and process namespaces that end with it, so no mount and no process is left
on the machine. It shares the machine's network: package indexes are reached as the machine reaches
them, by settings that are passed to the command and do not become part of an image.
"""

import configparser
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from navarchos.testing.nodes.images import ImageError

__all__ = [
    "CannotBuild",
    "Chroot",
    "ChrootFailed",
    "MachineSettings",
    "OverlayMount",
    "check_machine",
    "find_program",
    "in_namespaces",
    "last_lines",
]

_PROGRAMS: Final = ("setpriv", "unshare", "mount", "env", "sh")
_TIMEOUT: Final = 900.0
_LINES_SHOWN: Final = 30
_COMMAND_SHOWN: Final = 200
_SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MOUNT_POINTS: Final = ("proc", "dev")

# Arguments: the options of an overlay or "", the root, pairs (source, mount point), then "--" and
# the command.
_SCRIPT: Final = """
set -e
mount --make-rprivate /
root=$2
if [ -n "$1" ]; then mount -t overlay overlay -o "$1" "$root"; fi
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755 dev "$root/dev"
for name in null zero full random urandom tty; do
  : > "$root/dev/$name"
  mount --bind "/dev/$name" "$root/dev/$name"
done
ln -s /proc/self/fd "$root/dev/fd"
shift 2
while [ "$1" != -- ]; do
  mount --bind "$1" "$root$2"
  mount -o remount,bind,ro "$root$2"
  shift 2
done
shift
exec "$@"
"""


class CannotBuild(ImageError):
    """This machine cannot build images.

    Attributes:
        lacks: What the machine lacks, as a sentence without a period.
    """

    def __init__(self, lacks: str) -> None:
        super().__init__(lacks)
        self.lacks = lacks

    def __str__(self) -> str:
        return f"this machine cannot build images: {self.lacks}"


class ChrootFailed(ImageError):
    """A command in a root file system failed.

    Attributes:
        command: The command.
        why: Its exit status, or that it took too long.
        tail: The end of its output.
    """

    def __init__(self, command: Sequence[str], why: str, tail: str) -> None:
        super().__init__(tuple(command), why, tail)
        self.command = tuple(command)
        self.why = why
        self.tail = tail

    def __str__(self) -> str:
        shown = textwrap.shorten(" ".join(self.command), _COMMAND_SHOWN, placeholder=" ...")
        return f"`{shown}` {self.why}; its output ends:\n{self.tail}"


def check_machine(environ: Mapping[str, str] | None = None) -> None:
    """Verify that this machine can run commands in other root file systems.

    Raises:
        CannotBuild: It is not Linux, the user is not root, or a program is missing.
    """
    if sys.platform != "linux":
        raise CannotBuild(f"images are built on Linux, this is {sys.platform}")
    if os.geteuid() != 0:
        raise CannotBuild("only root may mount file systems and change the root folder")
    env = os.environ if environ is None else environ
    missing = [name for name in _PROGRAMS if shutil.which(name, path=_path(env)) is None]
    if missing:
        raise CannotBuild(f"no {', '.join(missing)} on the PATH; install util-linux and coreutils")


def _path(environ: Mapping[str, str]) -> str:
    # Daemons and some shells of root lack the folders of system programs.
    return f"{environ.get('PATH', os.defpath)}:{_SYSTEM_PATH}"


# -- settings of the machine --------------------------------------------------------------------

_PASSED: Final = (
    *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
)
_PIP_SETTINGS: Final = (
    *("cert", "client-cert", "default-timeout", "extra-index-url", "find-links", "index-url"),
    *("no-index", "proxy", "retries", "timeout", "trusted-host"),
)
_PIP_FILES: Final = ("/etc/xdg/pip/pip.conf", "/etc/pip.conf", "~/.pip/pip.conf")


@dataclass(frozen=True, slots=True)
class MachineSettings:
    """How this machine reaches package indexes; needed while an image is built, not in it.

    Attributes:
        env: Environment variables: proxies, certificates, and the settings of pip.
        files: Files and folders that the variables name, and the files of name resolution.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    files: tuple[Path, ...] = ()

    @classmethod
    def read(
        cls, environ: Mapping[str, str] | None = None, pip_files: Sequence[Path] | None = None
    ) -> "MachineSettings":
        """Return the settings of this machine.

        Settings in the files of pip are passed as variables, so that the home folder of the user
        does not matter.

        Args:
            environ: Environment variables; by default the environment of the process.
            pip_files: Configuration files of pip, the most important last. Default: the files
                of the machine and the user, and the file that `PIP_CONFIG_FILE` names.
        """
        env = os.environ if environ is None else environ
        passed = {name: env[name] for name in _PASSED if env.get(name)}
        for path in _pip_files(env) if pip_files is None else pip_files:
            passed |= _pip_variables(path)
        for setting in _PIP_SETTINGS:
            name = _pip_variable(setting)
            if name in env:
                passed[name] = env[name]
        # The value may be a list, as of a PATH or of pip, and a file may have an address.
        words = (word for value in passed.values() for word in re.split(r"[\s:]+", value))
        named = (Path(f"/{word.lstrip('/')}") for word in words if word.startswith("/"))
        used = {path for path in named if path.exists() and path != Path("/")}
        used |= {path for path in (Path("/etc/resolv.conf"), Path("/etc/hosts")) if path.exists()}
        return cls(passed, tuple(sorted(used)))


def _pip_files(env: Mapping[str, str]) -> list[Path]:
    config = env.get("XDG_CONFIG_HOME") or "~/.config"
    names = (*_PIP_FILES, f"{config}/pip/pip.conf", env.get("PIP_CONFIG_FILE", ""))
    return [Path(name).expanduser() for name in names if name]


def _pip_variables(path: Path) -> dict[str, str]:
    file = configparser.RawConfigParser()
    file.read(path, encoding="utf-8")  # a missing file has no settings
    if not file.has_section("global"):
        return {}
    given = {name.replace("_", "-"): value for name, value in file.items("global")}
    return {_pip_variable(name): given[name] for name in _PIP_SETTINGS if name in given}


def _pip_variable(setting: str) -> str:
    return f"PIP_{setting.upper().replace('-', '_')}"


# -- commands -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OverlayMount:
    """Folders that overlayfs shows as one; changes go to the upper folder.

    Attributes:
        lower: The folders that are not changed, lowest first.
        upper: The folder of changes.
        scratch: An empty folder on the file system of `upper`.
    """

    lower: tuple[Path, ...]
    upper: Path
    scratch: Path

    def options(self, mount_points: Path) -> str:
        """Return the options of mount(8), with a folder of mount points below all others.

        Raises:
            CannotBuild: The path of a folder has characters that overlayfs gives a meaning.
        """
        for path in (*self.lower, self.upper, self.scratch):
            if set(str(path)) & set(":,\\"):
                raise CannotBuild(f"overlayfs cannot mount {path}: no colon, comma or backslash")
        lower = ":".join(str(path) for path in (*self.lower[::-1], mount_points))
        # Without redirects, the upper folder is a complete list of the changes.
        return (
            f"lowerdir={lower},upperdir={self.upper},workdir={self.scratch}/work,"
            "redirect_dir=off,metacopy=off,index=off"
        )


@dataclass(frozen=True, slots=True)
class Chroot:
    """A root file system for commands.

    Attributes:
        root: The root folder: with an overlay an empty folder, otherwise one that has the folders
            `proc` and `dev`.
        overlay: The folders to mount there; `None` if the root is a folder with all files.
        env: The environment of commands. Nothing else of this process's environment is passed.
        directory: The working folder.
        user: The numbers of the user and the group.
        binds: Files and folders of the machine, read-only, by their path in the root. Without an
            overlay, the paths must exist there.
    """

    root: Path
    overlay: OverlayMount | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    directory: str = "/"
    user: tuple[int, int] = (0, 0)
    binds: Mapping[str, Path] = field(default_factory=dict)

    def run(self, *command: str, timeout: float = _TIMEOUT) -> str:
        """Run a command to its end and return its output.

        Processes that the command leaves behind are killed.

        Args:
            command: The program, which is found by the PATH in `env`, and its arguments.
            timeout: Seconds after which the command is killed.

        Raises:
            CannotBuild: This machine cannot run commands in other root file systems.
            ChrootFailed: The command failed, could not be started, or took too long.
        """
        check_machine()
        options = ""
        if self.overlay is not None:
            options = self.overlay.options(self._make_mount_points(self.overlay.scratch))
            (self.overlay.scratch / "work").mkdir(exist_ok=True)
        binds = [text for point, source in self.binds.items() for text in (str(source), point)]
        try:
            done = subprocess.run(  # noqa: S603 - fixed programs, and the given command
                [
                    *in_namespaces(),
                    *(find_program("sh"), "-c", _SCRIPT, "sh", options, str(self.root), *binds),
                    *("--", find_program("env"), "-i", *self._variables()),
                    *(find_program("unshare"), f"--root={self.root}", f"--wd={self.directory}"),
                    *(f"--setgid={self.user[1]}", f"--setuid={self.user[0]}", "--", *command),
                ],
                env={"PATH": _path(os.environ), "LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                umask=0o022,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            shown = (error.stdout or b"").decode("utf-8", "replace")
            why = f"took longer than {timeout:g} s"
            raise ChrootFailed(command, why, last_lines(shown)) from error
        if done.returncode != 0:
            why = f"failed with status {done.returncode}"
            raise ChrootFailed(command, why, last_lines(done.stdout))
        return done.stdout

    def _variables(self) -> list[str]:
        return [f"{name}={value}" for name, value in self.env.items()]

    def _make_mount_points(self, scratch: Path) -> Path:
        """Return a folder that is empty but for mount points, so that no layer contains them."""
        folder = scratch / "points"
        for name in _MOUNT_POINTS:
            (folder / name).mkdir(parents=True, exist_ok=True)
        for name, source in self.binds.items():
            point = folder / name.lstrip("/")
            if source.is_dir():
                point.mkdir(parents=True, exist_ok=True)
            else:
                point.parent.mkdir(parents=True, exist_ok=True)
                point.touch()
        return folder


def in_namespaces() -> list[str]:
    """Return how a command begins that has its own mounts and processes.

    All of them end with the command, and the command ends with the calling thread.
    """
    return [
        *(find_program("setpriv"), "--pdeathsig=KILL"),
        *(find_program("unshare"), "--mount", "--pid", "--fork", "--kill-child=KILL"),
    ]


def find_program(program: str) -> str:
    """Return the path of a program of the system; its name if it is missing."""
    return shutil.which(program, path=_path(os.environ)) or program


def last_lines(output: str) -> str:
    """Return the part of a program's output that errors show."""
    return "\n".join(output.strip().splitlines()[-_LINES_SHOWN:])
