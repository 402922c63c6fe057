"""Ways to configure server and identity: kubeconfigs, tokens, a pod's files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from tests.integration.framework.accounts import Account
from tests.integration.framework.kinds import CONFIG_MAPS
from tests.servers import Served

from navarchos.client import Client, Forbidden, Resource, Unauthorized, load_config

Write = Callable[..., Path]

WHO_AM_I = Resource(
    "authentication.k8s.io",
    "v1",
    "selfsubjectreviews",
    "SelfSubjectReview",
    namespaced=False,
    type=dict,
)


@pytest.fixture
def kubeconfig(served: Served, namespace: str, tmp_path: Path) -> Write:
    """Write a kubeconfig for a user; files are named as from where it lies."""

    def write(**user: Any) -> Path:
        cluster: dict[str, Any] = {"server": served.config.host}
        if served.config.ca_file:
            authority = tmp_path / "ca.crt"
            authority.write_bytes(Path(served.config.ca_file).read_bytes())
            cluster["certificate-authority"] = authority.name
        path = tmp_path / "kubeconfig"
        context = {"cluster": "c", "user": "u", "namespace": namespace}
        content = {
            "current-context": "x",
            "contexts": [{"name": "x", "context": context}],
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
        }
        path.write_text(yaml.safe_dump(content), encoding="utf-8")
        return path

    return write


@pytest.fixture
def pod_files(served: Served, account: Account, tmp_path: Path) -> Path:
    """What a kubelet puts into a pod of that account."""
    directory = tmp_path / "serviceaccount"
    directory.mkdir()
    assert served.config.ca_file is not None
    (directory / "ca.crt").write_bytes(Path(served.config.ca_file).read_bytes())
    (directory / "namespace").write_text(account.namespace)
    (directory / "token").write_text(account.token())
    return directory


def administrator(served: Served) -> dict[str, str]:
    """What a kubeconfig says of the user that the tests are."""
    user = {}
    if served.config.authorization is not None:
        user["token"] = served.config.authorization().removeprefix("Bearer ")
    if served.config.cert_file and served.config.key_file:
        user["client-certificate"] = served.config.cert_file
        user["client-key"] = served.config.key_file
    return user


def in_cluster(served: Served) -> dict[str, str]:
    found = urlsplit(served.config.host)
    return {
        "KUBERNETES_SERVICE_HOST": found.hostname or "",
        "KUBERNETES_SERVICE_PORT": str(found.port),
    }


def test_the_servers_own_kubeconfig_leads_to_it(
    our_server: Served, namespace: str, tmp_path: Path
) -> None:
    assert our_server.server is not None
    path = tmp_path / "kubeconfig"
    our_server.server.write_kubeconfig(path)
    assert path.stat().st_mode & 0o077 == 0
    with Client.from_config(kubeconfig=path) as client:
        created = client.resource(CONFIG_MAPS).create({"metadata": {"name": "a"}}, namespace)
        assert created.metadata.name == "a"


def test_a_kubeconfig_gives_server_and_user(
    served: Served, namespace: str, kubeconfig: Write
) -> None:
    found = load_config(kubeconfig=kubeconfig(**administrator(served)), environ={})
    assert found.namespace == namespace
    with Client(found) as client:
        made = client.resource(CONFIG_MAPS).create({"metadata": {"name": "a"}}, found.namespace)
    assert made.metadata.namespace == namespace


def test_a_token_in_a_file_is_enough(
    account: Account, namespace: str, kubeconfig: Write, tmp_path: Path
) -> None:
    account.may("", "configmaps", "get", "list", "create")
    (tmp_path / "token").write_text(account.token() + "\n")
    with Client.from_config(kubeconfig=kubeconfig(tokenFile="token")) as client:
        maps = client.resource(CONFIG_MAPS)
        maps.create({"metadata": {"name": "a"}}, namespace)
        assert maps.get("a", namespace).metadata.uid
        with pytest.raises(Forbidden, match=account.user):
            maps.delete("a", namespace)


def test_a_pod_finds_its_server_by_its_files(
    served: Served, account: Account, namespace: str, pod_files: Path
) -> None:
    account.may("", "configmaps", "list")
    config = load_config(environ=in_cluster(served), service_account=pod_files)
    assert config.namespace == namespace
    with Client(config) as client:
        assert client.resource(CONFIG_MAPS).list(config.namespace).items == []
        with pytest.raises(Forbidden, match=account.user):
            client.resource(CONFIG_MAPS).create({"metadata": {"name": "a"}}, namespace)


def test_a_token_that_the_server_does_not_take_is_read_again(
    served: Served, account: Account, namespace: str, pod_files: Path
) -> None:
    """Tokens rotate: after a 401 the file is read again, and the request is sent again."""
    account.may("", "configmaps", "list")
    good = (pod_files / "token").read_text()
    (pod_files / "token").write_text("stale")
    config = load_config(environ=in_cluster(served), service_account=pod_files)
    with Client(config) as client:
        with pytest.raises(Unauthorized):
            client.resource(CONFIG_MAPS).list(namespace)
        (pod_files / "token").write_text(good)
        assert client.resource(CONFIG_MAPS).list(namespace).items == []


def test_a_kubeconfig_says_whom_to_act_for(served: Served, kubeconfig: Write) -> None:
    extra = {"scopes": ["view", "edit"], "example.com/a%b": ["1"]}
    acting = {"as": "Bücherwurm", "as-uid": "u-1", "as-groups": ["a,b", "c"]}
    path = kubeconfig(**administrator(served), **acting, **{"as-user-extra": extra})
    with Client.from_config(kubeconfig=path) as client:
        seen = client.resource(WHO_AM_I).create({})["status"]["userInfo"]
    groups = ["a,b", "c", "system:authenticated"]
    assert seen == {"username": "Bücherwurm", "uid": "u-1", "groups": groups, "extra": extra}
