"""Flags of `navarchos manager`."""

from collections.abc import Callable

import pytest
from tests.integration.conftest import CommandLine

from navarchos.cli.manager import manager

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
"""


@pytest.mark.rule("MG-16")
@pytest.mark.parametrize(
    ("flags", "what"),
    [
        (["--metrics-secure"], "no self-signed certificate is generated"),
        (["--metrics-secure=true", "--metrics-cert-path=/nowhere"], "/nowhere/tls.crt"),
        (
            ["--metrics-secure", "--metrics-cert-path=/nowhere", "--metrics-cert-name=a.pem"],
            "/nowhere/a.pem",
        ),
    ],
)
def test_secure_metrics_require_a_certificate(
    navarchos: CommandLine, manifest: Callable[[str], str], flags: list[str], what: str
) -> None:
    finished = navarchos.run("manager", f"--kubeconfig={manifest(KUBECONFIG)}", *flags)
    (line,) = finished.stderr.splitlines()
    assert what in line
    assert finished.status == 2


def test_metrics_are_served_without_tls_and_profiles_are_off_by_default() -> None:
    defaults = manager.make_context("manager", []).params
    assert defaults["metrics_secure"] is False
    assert defaults["profiling_addr"] == "0"
