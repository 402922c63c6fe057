"""Runs tests on a cluster of real nodes: `python -m tests.nodes [PYTEST ARGUMENT]...`.

The cluster is an existing one for these tests, as with `make e2e-kind`: tests that start their own
server are not run. Its nodes have the project's image.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click
from tests.e2e.kind.steps import Interrupted, Steps
from tests.foreign import FOREIGN, IMAGE

from navarchos.errors import NavarchosError
from navarchos.testing.controlplane import ControlPlane
from navarchos.testing.nodes import Lab, Nodes
from navarchos.testing.nodes.testimages import TestImages, deployed_image

ROOT: Final = Path(__file__).parents[2]
COUNT: Final = 3


def main(arguments: Sequence[str]) -> int:
    """Return the exit status: the suite's, 128 and the signal's number, or 1."""
    steps = Steps(os.environ, _report)
    try:
        with steps.interruptible():
            return run_suite(steps, arguments)
    except Interrupted as error:
        _report(str(error))
        return 128 + error.signum
    except NavarchosError as error:
        _report(f"Error: {error}")
        return 1


def run_suite(steps: Steps, arguments: Sequence[str]) -> int:
    """Run pytest on a cluster that ends with it."""
    image = deployed_image(ROOT)
    images = TestImages(report=_report)
    archives = [images.busybox(), images.project(ROOT, image)]
    with (
        TemporaryDirectory(prefix="navarchos-nodes-") as folder,
        Lab() as lab,
        ControlPlane(network=lab) as server,
        Nodes(server, COUNT, images=archives),
    ):
        kubeconfig = Path(folder, "kubeconfig")
        server.write_kubeconfig(kubeconfig)
        return steps.status_of(
            sys.executable, "-m", "pytest", *arguments,
            **{FOREIGN: str(kubeconfig), IMAGE: image},
        )  # fmt: skip


def _report(line: str) -> None:
    click.echo(f"e2e-nodes: {line}", err=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
