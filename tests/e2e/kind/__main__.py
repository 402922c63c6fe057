"""Runs the end-to-end suite on a kind cluster: `python -m tests.e2e.kind [PYTEST ARGUMENT]...`."""

import os
import signal
import sys
from collections.abc import Sequence

import click
from tests.e2e.kind.engines import find_engine
from tests.e2e.kind.steps import Interrupted, Steps
from tests.e2e.kind.suite import run_suite

from navarchos.errors import NavarchosError
from navarchos.testing.controlplane.binaries import Binary, Cache, Lookup, cache_directory
from navarchos.testing.controlplane.installer import ToolInstaller
from navarchos.testing.controlplane.tools import CONTROL_PLANE, KIND, KUBECTL, Tool


def main(arguments: list[str]) -> int:
    """Return the exit status: the suite's, 128 and the signal's number, or 1."""
    try:
        engine = find_engine(os.environ)
        _report(f"{engine.name} answers: {engine.path}")
        kind = _obtain(KIND, [KIND.project])
        _obtain(KUBECTL, CONTROL_PLANE)  # the suite looks for it
        steps = Steps(os.environ, _report)
        with steps.interruptible():
            return run_suite(steps, engine, kind.path, arguments)
    except KeyboardInterrupt:  # while programs were got
        return 128 + signal.SIGINT
    except Interrupted as error:
        _report(str(error))
        return 128 + error.signum
    except NavarchosError as error:
        # If the clean-up failed too, report the first error.
        for each in (error.__context__, error):
            if isinstance(each, NavarchosError):
                _report(f"Error: {each}")
        return 1


def _obtain(tool: Tool, cached_with: Sequence[str]) -> Binary:
    lookup = Lookup(cache=Cache(cache_directory(projects=cached_with)))
    obtainer = ToolInstaller(lookup, report=_report)
    (binary,) = obtainer.obtain([tool])
    return binary


def _report(line: str) -> None:
    click.echo(f"e2e-kind: {line}", err=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
