"""Users of the in-process server, beyond the contract suite."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from navarchos.client import Client, Forbidden, Resource, TransportError, Unauthorized
from navarchos.errors import ConfigError
from navarchos.testing.apiserver import ApiServer
from navarchos.testing.apiserver.access.tokens import AUDIENCE, InvalidToken, Tokens
from navarchos.testing.apiserver.objects import JsonObject
from navarchos.testing.apiserver.store import BucketId, ObjectStore

RBAC = "rbac.authorization.k8s.io"
MAPS: Resource[JsonObject] = Resource("", "v1", "configmaps", "ConfigMap", True, dict)


def cluster_role(name: str, *verbs: str, **labels: str) -> JsonObject:
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": list(verbs)}
    metadata = {"name": name, "labels": labels}
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": metadata,
        "rules": [rule],
    }


def test_an_aggregated_role_has_its_rules_immediately() -> None:
    server = ApiServer()
    selector = {"matchLabels": {"part": "yes"}}
    whole = {**cluster_role("whole"), "rules": []}
    whole["aggregationRule"] = {"clusterRoleSelectors": [selector]}
    server.install(whole, cluster_role("b", "get", part="yes"), cluster_role("c", "list"))
    found = server.get("clusterroles", "whole", group=RBAC)
    assert [rule["verbs"] for rule in found["rules"]] == [["get"]]
    server.install(cluster_role("a", "delete", part="yes"))
    found = server.get("clusterroles", "whole", group=RBAC)
    assert [rule["verbs"] for rule in found["rules"]] == [["delete"], ["get"]]


def test_the_default_roles_are_aggregated() -> None:
    server = ApiServer(rbac=True)
    rules = {
        name: server.get("clusterroles", name, group=RBAC)["rules"]
        for name in ("view", "edit", "admin")
    }
    assert rules["view"]
    assert all(rule in rules["edit"] for rule in rules["view"])
    assert all(rule in rules["admin"] for rule in rules["edit"])


def test_a_user_has_the_permissions_of_a_binding_while_it_exists() -> None:
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "ann"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "ann", "apiGroup": RBAC}],
    }
    with (
        ApiServer(rbac=True) as server,
        Client(server.client_config(user="ann", user_agent="ann")) as client,
        Client(server.client_config()) as admin,
    ):
        maps = client.resource(MAPS)
        with pytest.raises(Forbidden, match='User "ann" cannot list'):
            maps.list("default")
        server.install(binding)
        assert maps.list("default").items == []
        admin.raw("DELETE", f"/apis/{RBAC}/v1/namespaces/default/rolebindings/ann")
        with pytest.raises(Forbidden):
            maps.list("default")
        assert [record.code for record in server.audit if record.user_agent == "ann"] == [
            403,
            200,
            403,
        ]


def test_a_token_can_be_requested_in_protobuf() -> None:
    """`kubectl create token` sends it."""
    kind = b"\x0a\x18authentication.k8s.io/v1\x12\x0cTokenRequest"
    body = b"k8s\x00\x0a" + bytes([len(kind)]) + kind + b"\x12\x07\x0a\x00\x12\x03\x20\xd8\x04"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "r"}}
    with ApiServer() as server, Client(server.client_config()) as client:
        server.install(account)
        path = "/api/v1/namespaces/default/serviceaccounts/r/token"
        headers = {"Content-Type": "application/vnd.kubernetes.protobuf"}
        answer = client.raw("POST", path, body=body, headers=headers)
        assert answer.status == 201, answer.body
        assert b'"expirationSeconds":600' in answer.body


def test_users_are_known_with_rbac_only() -> None:
    with ApiServer() as server:
        with pytest.raises(ConfigError):
            server.client_config(user="ann")
        with pytest.raises(ConfigError):
            server.service_account_kubeconfig("default", "robot")


def test_a_restart_keeps_users_and_a_stop_leaves_no_file(tmp_path: Path) -> None:
    server = ApiServer(rbac=True)
    with server:
        server.install({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "r"}})
        config = server.client_config(user="ann")
        (tmp_path / "kubeconfig").write_text(str(server.service_account_kubeconfig("default", "r")))
        assert config.ca_file is not None
        directory = Path(config.ca_file).parent
        assert directory.stat().st_mode & 0o077 == 0
    assert not directory.exists()
    with (
        server,
        Client(config) as client,
        pytest.raises(Forbidden, match='"ann"'),
    ):
        client.resource(MAPS).list("default")
    with (
        server,
        Client.from_config(kubeconfig=tmp_path / "kubeconfig") as client,
        pytest.raises(Forbidden, match="system:serviceaccount:default:r"),
    ):
        client.resource(MAPS).list("default")
    assert not directory.exists()


def test_a_client_with_another_authority_or_token_is_refused() -> None:
    with ApiServer(rbac=True) as server, ApiServer(rbac=True) as other:
        ours, theirs = server.client_config(), other.client_config()
        with (
            Client(type(ours)(ours.host, ca_file=theirs.ca_file)) as client,
            pytest.raises(TransportError),
        ):
            client.resource(MAPS).list("default")
        stolen = type(ours)(ours.host, ca_file=ours.ca_file, authorization=theirs.authorization)
        with Client(stolen) as client, pytest.raises(Unauthorized):
            client.resource(MAPS).list("default")


@pytest.mark.parametrize("late", [0, 3000])
def test_a_token_is_valid_until_it_expires(late: int) -> None:
    store = ObjectStore()
    metadata = {"name": "r", "namespace": "default", "uid": "u"}
    account = store.put(BucketId("serviceaccounts", ""), {"metadata": metadata})
    tokens = Tokens(store)
    made = datetime.now(UTC) - timedelta(seconds=late)
    token = tokens.for_account(account, [AUDIENCE], 600, made)
    if not late:
        assert tokens.authenticate(token)[0].name == "system:serviceaccount:default:r"
        return
    with pytest.raises(InvalidToken, match="has expired"):
        tokens.authenticate(token)
