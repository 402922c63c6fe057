"""Impersonation: requests act as another user."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.client.wire import Connect, Peer, Serve

from navarchos.client import Client, ClientConfig, ClientSettings, Impersonation, load_config
from navarchos.errors import ConfigError

BUILDER = Impersonation(
    "Bücherwurm",
    uid="u-1",
    groups=["a,b", "c"],
    extra={"scopes": ["view", "edit"], "example.com/a%b": ["1"]},
)
LINES = [
    ("impersonate-user", "Bücherwurm"),
    ("impersonate-uid", "u-1"),
    ("impersonate-group", "a,b"),
    ("impersonate-group", "c"),
    ("impersonate-extra-scopes", "view"),
    ("impersonate-extra-scopes", "edit"),
    ("impersonate-extra-example.com%2fa%25b", "1"),
]


def sent(serve: Serve, connect: Connect, **headers: str) -> list[tuple[str, str]]:
    """Return the impersonation header fields of a request, in order."""
    found: list[tuple[str, str]] = []

    def script(peer: Peer) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += peer.socket.recv(4096)
        for line in head.decode().lower().splitlines():
            name, _, value = line.partition(": ")
            if name.startswith("impersonate"):
                found.append((name, value))
        peer.answer(b"{}", Connection="close")

    client = connect(serve(script).url, impersonate=BUILDER)
    assert client.raw("GET", "/x", headers=headers).status == 200
    return found


def test_every_group_and_extra_value_is_a_separate_header_field(
    serve: Serve, connect: Connect
) -> None:
    assert sent(serve, connect) == [(name, value.lower()) for name, value in LINES]


def test_a_call_with_a_user_replaces_the_whole_impersonation(
    serve: Serve, connect: Connect
) -> None:
    assert sent(serve, connect, **{"impersonate-USER": "eve"}) == [("impersonate-user", "eve")]


@pytest.mark.parametrize(
    "wrong",
    [
        {"user": ""},
        {"user": " a"},
        {"user": "a\r\nAuthorization: x"},
        {"user": "a", "groups": [""]},
        {"user": "a", "extra": {"k": ["a\n"]}},
    ],
)
def test_values_that_do_not_fit_a_header_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Impersonation(**wrong)


def test_repeated_fields_do_not_go_through_a_proxy_that_would_join_them() -> None:
    with pytest.raises(ConfigError, match="https"):
        ClientConfig("http://api.test", proxy="http://proxy.test", impersonate=BUILDER)
    ClientConfig("https://api.test", proxy="http://proxy.test", impersonate=BUILDER)


# Through a kubeconfig


def kubeconfig(path: Path, **user: object) -> Path:
    content = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://c.test:6443"}}],
        "users": [{"name": "u", "user": {"token": "t", **user}}],
    }
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture
def full(tmp_path: Path) -> Path:
    return kubeconfig(
        tmp_path / "k",
        **{"as": "eve", "as-uid": "7", "as-groups": ["g", "h"], "as-user-extra": {"k": ["1", "2"]}},
    )


def test_a_kubeconfig_says_whom_to_act_for(full: Path) -> None:
    found = load_config(kubeconfig=full, environ={}).impersonate
    assert found == Impersonation("eve", uid="7", groups=["g", "h"], extra={"k": ["1", "2"]})


def test_an_argument_has_precedence_over_the_kubeconfig(full: Path) -> None:
    with Client.from_config(
        kubeconfig=full, settings=ClientSettings(impersonate=BUILDER)
    ) as client:
        assert client.config.impersonate == BUILDER
    with Client.from_config(kubeconfig=full) as client:
        assert client.config.impersonate is not None


@pytest.mark.parametrize(
    "user",
    [
        {"as-groups": ["g"]},
        {"as-uid": "7"},
        {"as-user-extra": {"k": ["v"]}},
        {"as": 7},
        {"as": "eve", "as-groups": "g"},
        {"as": "eve", "as-groups": [1]},
        {"as": "eve", "as-user-extra": ["k"]},
        {"as": "eve", "as-user-extra": {"k": "v"}},
        {"as": "eve", "as-something-new": "x"},
    ],
)
def test_unsupported_impersonation_is_refused_and_not_ignored(
    tmp_path: Path, user: dict[str, object]
) -> None:
    with pytest.raises(ConfigError):
        load_config(kubeconfig=kubeconfig(tmp_path / "k", **user), environ={})
