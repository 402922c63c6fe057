"""The end-to-end suite on a temporary kind cluster."""

import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import yaml
from tests.e2e.kind.engines import PROVIDER, Engine
from tests.e2e.kind.steps import Steps
from tests.foreign import FOREIGN, IMAGE

__all__ = ["run_suite", "shipped_image"]

_ROOT: Final = Path(__file__).parents[3]
_CONFIG: Final = Path(__file__).with_name("cluster.yaml")
_READY_WITHIN: Final = "180s"


def shipped_image() -> str:
    """Return the image that `config/deploy` names."""
    text = (_ROOT / "config" / "deploy" / "deployment.yaml").read_text(encoding="utf-8")
    (container,) = yaml.safe_load(text)["spec"]["template"]["spec"]["containers"]
    image = container["image"]
    assert isinstance(image, str)
    return image


def run_suite(steps: Steps, engine: Engine, kind: Path, arguments: Sequence[str]) -> int:
    """Build the image, create a cluster that has it, and run the suite there.

    Promises: the cluster is deleted again, however this ends; only a kill that cannot
    be handled leaves it. No kubeconfig but one in a temporary directory is written.

    Args:
        steps: Runs the commands.
        engine: Builds the image, and runs the nodes.
        kind: The program.
        arguments: For pytest.

    Returns:
        The exit status of the suite.

    Raises:
        Interrupted: A signal has come.
        StepFailed: Something else than the suite failed.
    """
    name = f"navarchos-e2e-{secrets.token_hex(3)}"
    image = shipped_image()
    with TemporaryDirectory(prefix=f"{name}-") as directory:
        kubeconfig, archive = Path(directory, "kubeconfig"), Path(directory, "image.tar")
        cluster = ("--name", name, "--kubeconfig", str(kubeconfig))
        provider = {PROVIDER: engine.name}
        steps.run(engine.path, "build", "--tag", image, str(_ROOT))
        # kind accepts an archive from every engine.
        steps.run(engine.path, "save", "--output", str(archive), image)
        try:
            steps.run(
                str(kind), "create", "cluster", *cluster, "--config", str(_CONFIG),
                "--wait", _READY_WITHIN, **provider,
            )  # fmt: skip
            steps.run(str(kind), "load", "image-archive", str(archive), "--name", name, **provider)
            return steps.status_of(
                sys.executable, "-m", "pytest", *arguments,
                **{FOREIGN: str(kubeconfig), IMAGE: image},
            )  # fmt: skip
        finally:
            steps.clear_up(str(kind), "delete", "cluster", *cluster, **provider)
