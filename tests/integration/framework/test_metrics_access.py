"""Who may look at the metrics of a manager: the server says."""

import http.client
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from tests.integration.framework.accounts import Account
from tests.servers import Served

from navarchos.client import ClientConfig
from navarchos.runtime import Manager, ManagerOptions, MetricsSecurity
from navarchos.runtime.token_reviewer import RBAC
from navarchos.testing.controlplane.credentials import Authority
from navarchos.testing.managers import running_manager

HOST = "127.0.0.1"

Scrape = Callable[..., tuple[int, str]]
Serve = Callable[[ClientConfig], Scrape]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Run a manager with secure metrics as an account; return a function that requests a page."""
    authority = Authority(tmp_path)
    pair = authority.issue_server("metrics", [HOST])
    options = ManagerOptions(
        metrics_address=f"{HOST}:0", metrics_security=MetricsSecurity(pair.certificate, pair.key)
    )
    context = ssl.create_default_context(cafile=str(authority.files.certificate))

    def scrape(manager: Manager, token: str = "", path: str = "/metrics") -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        asking = http.client.HTTPSConnection(
            HOST, manager.metrics_port, context=context, timeout=30
        )
        with closing(asking):
            asking.request("GET", path, headers=headers)
            answer = asking.getresponse()
            return answer.status, answer.read().decode()

    with ExitStack() as running:

        def run(config: ClientConfig) -> Scrape:
            manager = running.enter_context(
                running_manager(lambda _: None, config, options=options)
            )
            return lambda *args: scrape(manager, *args)

        yield run


@pytest.mark.rule("MG-16")
def test_a_stranger_gets_no_metrics(serve: Serve, served: Served) -> None:
    scrape = serve(served.config)
    assert scrape() == (401, "Unauthorized\n")
    assert scrape("made-up") == (401, "Unauthorized\n")


@pytest.mark.rule("MG-16")
def test_an_account_gets_the_paths_that_it_may_get_and_the_manager_needs_the_declared_rights(
    serve: Serve, account: Account
) -> None:
    token = account.token()
    before = serve(account.config())
    assert before(token) == (500, "Authentication failed\n"), (
        "a server that cannot ask refuses every client"
    )
    for rule in RBAC:
        account.may(rule.resource.group, rule.target, *rule.verbs)
    assert before(token) == (403, f"Authorization denied for user {account.user}\n")
    account.may_get("/metrics")
    after = serve(account.config())
    status, text = after(token)
    assert status == 200
    assert "process_cpu_seconds_total" in text
    assert after(token, "/state")[0] == 403
