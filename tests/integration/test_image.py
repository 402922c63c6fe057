"""The manager with the packages of the image: its dependencies without extras."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from navarchos.operator.api.v1alpha1.definitions import manifests
from navarchos.operator.deployment import manifests as deployment_manifests
from navarchos.testing.apiserver import ApiServer

LIMIT = 60.0
EXTRAS = ["aiohttp", "rich", "celpy"]
"""What the sandbox and the test kit need. The image may or may not have them."""

LAUNCH = f"""
import sys
sys.modules.update(dict.fromkeys({EXTRAS!r}))
from navarchos.cli.main import main
main()
"""


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(crds=manifests()) as server:
        yield server


def arguments() -> list[str]:
    """Return the Deployment's arguments with free ports."""
    manifests: list[Any] = list(deployment_manifests())
    deployment = next(each for each in manifests if each["kind"] == "Deployment")
    given = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    return [*given, "--metrics-addr=127.0.0.1:0", "--health-addr=127.0.0.1:0"]


def test_the_manager_leads_and_stops_without_the_packages_of_the_sandbox(
    server: ApiServer, tmp_path: Path
) -> None:
    kubeconfig, log = tmp_path / "kubeconfig", tmp_path / "log"
    server.write_kubeconfig(kubeconfig)
    elected = threading.Event()
    server.subscribe(lambda change: elected.set() if change.object["kind"] == "Lease" else None)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, "manager", f"--kubeconfig={kubeconfig}", *arguments()],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        assert elected.wait(LIMIT), log.read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line for line in lines if line["level"] in {"warning", "error"}] == []
