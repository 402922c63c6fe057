"""Programs built with the Go toolchain from published modules."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from navarchos.testing.controlplane.errors import ControlPlaneError
from navarchos.testing.controlplane.tools import PINS, Tool, parse_version

__all__ = ["BuildFailed", "build", "build_command", "find_module"]

_MODULE: Final = Path("tests", "e2e", "controlplane")
_STAMPED: Final = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
_LINES_SHOWN: Final = 12


class BuildFailed(ControlPlaneError):
    """A program that could not be built.

    Attributes:
        why: What went wrong; the end of what the toolchain said.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return self.why


def find_module(working_directory: Path | None = None) -> Path | None:
    """Return the Go module that names the sources, or `None` outside a checkout.

    Looked for from the working directory, then in the checkout that this package was
    installed from.
    """
    for root in (working_directory or Path.cwd(), Path(__file__).parents[4]):
        if (root / _MODULE / "go.mod").is_file():
            return root / _MODULE
    return None


def build_command(tool: Tool, output: Path, go: str = "go") -> Sequence[str]:
    """Return the command that builds a program into a file.

    Kubernetes binaries learn their version from the linker. A server without one calls
    itself v0.0.0 and serves no feature that has a minimum version.
    """
    return [
        go,
        "build",
        "-trimpath",
        "-ldflags",
        " ".join(["-s", "-w", *_stamps()]),
        "-o",
        str(output),
        tool.package,
    ]


def build(
    tool: Tool, output: Path, module: Path | None, environ: Mapping[str, str] | None = None
) -> None:
    """Build a program into a file. Takes minutes where nothing is cached.

    Raises:
        BuildFailed: There is no toolchain, no module, or it did not build.
    """
    env = os.environ if environ is None else environ
    go = shutil.which("go", path=env.get("PATH", os.defpath))
    if go is None:
        raise BuildFailed("there is no go toolchain on the PATH")
    if module is None:
        raise BuildFailed(f"there is no {_MODULE / 'go.mod'}: run in a checkout, or use --module")
    try:
        done = subprocess.run(  # noqa: S603 - our own command
            build_command(tool, output, go),
            cwd=module,
            # Neither a workspace around the checkout nor a habit of its owner has a say.
            env={**env, "CGO_ENABLED": "0", "GO111MODULE": "on", "GOFLAGS": "", "GOWORK": "off"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise BuildFailed(f"{go} cannot be run: {error}") from error
    if done.returncode != 0:
        said = done.stdout.strip().splitlines()[-_LINES_SHOWN:]
        raise BuildFailed("\n    ".join(["go build failed:", *said]))


def _stamps() -> list[str]:
    version = parse_version(PINS["kubernetes"])
    assert version is not None
    values = {
        "gitVersion": str(version),
        "gitMajor": str(version.major),
        "gitMinor": str(version.minor),
    }
    return [
        f"-X {package}.{name}={value}" for package in _STAMPED for name, value in values.items()
    ]
