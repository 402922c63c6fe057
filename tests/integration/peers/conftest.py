"""Clients of other projects, for tests against either server."""

from collections.abc import Iterator

import pytest
from kubernetes import client as official
from tests.namespaces import namespace_of_its_own
from tests.servers import Served

from navarchos.client import Client


@pytest.fixture
def namespace(served: Served) -> Iterator[str]:
    """A namespace for the test."""
    with Client(served.config) as client, namespace_of_its_own(client, "peers-") as name:
        yield name


@pytest.fixture
def configuration(served: Served) -> official.Configuration:
    """The configuration of the official client, as the administrator."""
    found = official.Configuration()
    config = served.config
    found.host, found.verify_ssl = config.host, config.verify
    found.ssl_ca_cert, found.cert_file, found.key_file = (
        config.ca_file,
        config.cert_file,
        config.key_file,
    )
    if config.authorization is not None:
        found.api_key["authorization"] = config.authorization()
    return found


@pytest.fixture
def api(configuration: official.Configuration) -> Iterator[official.ApiClient]:
    with official.ApiClient(configuration) as client:
        yield client


@pytest.fixture
def core(api: official.ApiClient) -> official.CoreV1Api:
    return official.CoreV1Api(api)
