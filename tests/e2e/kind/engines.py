"""Container engines: find one that answers."""

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from navarchos.errors import NavarchosError

__all__ = ["ENGINES", "PROVIDER", "Engine", "NoEngine", "find_engine"]

ENGINES: Final = ("docker", "podman", "nerdctl")
"""The engines that kind can use, in the order in which they are tried."""

PROVIDER: Final = "KIND_EXPERIMENTAL_PROVIDER"
"""The variable that selects the engine of kind, and of this suite."""

_ANSWER_TIMEOUT: Final = 30.0


@dataclass(frozen=True, slots=True)
class Engine:
    """A container engine that answers.

    Attributes:
        name: One of `ENGINES`.
        path: The program.
    """

    name: str
    path: str


class NoEngine(NavarchosError):
    """No container engine answers.

    Attributes:
        reasons: The reason of each engine.
    """

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__(dict(reasons))
        self.reasons = dict(reasons)

    def __str__(self) -> str:
        tried = "; ".join(f"{name}: {why}" for name, why in self.reasons.items())
        return (
            f"kind requires a container engine, but none answers: {tried}. "
            "Start one, or run `make e2e`, which does not need one"
        )


def find_engine(environ: Mapping[str, str]) -> Engine:
    """Return the first engine that answers.

    A client is not enough: it must reach a daemon that runs containers.

    Raises:
        NoEngine: No engine answers.
    """
    asked = environ.get(PROVIDER)
    reasons: dict[str, str] = {}
    for name in [asked] if asked else ENGINES:
        path = shutil.which(name, path=environ.get("PATH"))
        if path is None:
            reasons[name] = "not on the PATH"
        elif why := _why_it_does_not_answer(path):
            reasons[name] = f"{path} info: {why}"
        else:
            return Engine(name, path)
    raise NoEngine(reasons)


def _why_it_does_not_answer(path: str) -> str:
    try:
        done = subprocess.run(
            [path, "info"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=_ANSWER_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {_ANSWER_TIMEOUT:.0f} s"
    except OSError as error:
        return str(error)
    if done.returncode == 0:
        return ""
    lines = done.stderr.split("\n")
    said = [line.strip() for line in lines if line.strip()]
    return said[-1] if said else f"exit status {done.returncode}"
