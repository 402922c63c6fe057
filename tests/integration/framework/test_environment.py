"""The server of a test run; an existing cluster is the one of `--server`."""

from pathlib import Path

import pytest
from tests.integration.framework.test_installing import definition, served_as, stored
from tests.servers import Served

from navarchos.client import Client, NotFound, TransportError, load_config
from navarchos.crd import to_yaml
from navarchos.testing.definitions import install_definitions, uninstall_definitions
from navarchos.testing.environment import ServerKind, environment

DEFAULT = "/api/v1/namespaces/default"


@pytest.fixture
def kubeconfig(served: Served) -> Path:
    """That of the server under test."""
    if served.kubeconfig is None:
        pytest.skip("the server is named by its address")
    return served.kubeconfig


@pytest.mark.rule("TE-01")
def test_a_server_of_our_own_is_there_with_its_definitions_and_gone_afterwards(
    served: Served, tmp_path: Path
) -> None:
    (tmp_path / "apples.yaml").write_text(to_yaml([definition("apples", "v1")]))
    with environment(served.kind, crds=[tmp_path]) as found, found.client() as client:
        assert found.kind == served.kind
        assert found.server is not None
        assert found.config.host == found.server.url != served.config.host
        assert (found.config.qps, found.config.burst) == (1000, 2000)
        assert client.raw("GET", DEFAULT).status == 200
        assert served_as(client, "apples") == {"v1"}
        assert load_config(kubeconfig=found.kubeconfig).host == found.config.host
        with Client.from_config(kubeconfig=found.kubeconfig) as other:
            assert other.raw("GET", DEFAULT).status == 200
    assert not found.kubeconfig.exists()
    with Client(found.config) as late, pytest.raises(TransportError):
        late.raw("GET", DEFAULT)


@pytest.mark.rule("TE-01")
def test_an_existing_cluster_is_used_and_left_as_it_was(
    client: Client, kubeconfig: Path, served: Served
) -> None:
    install_definitions(client, definition("pears", "v1"))
    wanted = [definition("apples", "v1"), definition("pears", "v1", "v2")]
    try:
        with environment(kubeconfig, crds=wanted, clean_up=True) as found:
            assert (found.kind, found.server) == (ServerKind.EXISTING, None)
            assert found.config.host == served.config.host
            assert (found.config.qps, found.config.burst) == (1000, 2000)
            assert found.kubeconfig == kubeconfig
            assert served_as(client, "apples") == {"v1"}
            assert served_as(client, "pears") == {"v1", "v2"}
        with pytest.raises(NotFound):  # it was made for this
            stored(client, "apples")
        assert served_as(client, "pears") == {"v1", "v2"}  # it was not
        assert kubeconfig.exists()
        assert client.raw("GET", DEFAULT).status == 200

        with environment(kubeconfig, crds=wanted):
            pass
        assert served_as(client, "apples") == {"v1"}  # the test did not ask for its removal
    finally:
        uninstall_definitions(client, *wanted)


@pytest.mark.rule("TE-01")
def test_objects_of_a_failing_test_are_cleaned_up(client: Client, kubeconfig: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        fail_in(kubeconfig)
    with pytest.raises(NotFound):
        stored(client, "apples")


def fail_in(kubeconfig: Path) -> None:
    with environment(kubeconfig, crds=[definition("apples", "v1")], clean_up=True):
        raise ZeroDivisionError
