"""Kubeconfigs, and kwok's configuration."""

from base64 import b64decode
from pathlib import Path

import pytest
import yaml

from navarchos.client import load_config
from navarchos.testing.controlplane.credentials import (
    KeyPair,
    certificate_user,
    make_kubeconfig,
    token_user,
    write_private,
)
from navarchos.testing.controlplane.kwok import (
    RUNS_FOR,
    STARTS_AFTER,
    TERMINATES_AFTER,
    kwok_config,
)


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    path = tmp_path / "ca.crt"
    path.write_text("the authority")
    return path


def test_a_kubeconfig_carries_its_certificates(tmp_path: Path, authority: Path) -> None:
    pair = KeyPair(tmp_path / "me.crt", tmp_path / "me.key")
    pair.certificate.write_text("my certificate")
    pair.key.write_text("my key")
    write_private(
        tmp_path / "config", make_kubeconfig("https://1.2.3.4", authority, certificate_user(pair))
    )
    config = yaml.safe_load((tmp_path / "config").read_text())
    user, cluster = config["users"][0]["user"], config["clusters"][0]["cluster"]
    assert b64decode(user["client-certificate-data"]) == b"my certificate"
    assert b64decode(user["client-key-data"]) == b"my key"
    assert b64decode(cluster["certificate-authority-data"]) == b"the authority"


def test_a_client_reads_the_kubeconfig_of_a_token(tmp_path: Path, authority: Path) -> None:
    content = make_kubeconfig("https://1.2.3.4", authority, token_user("t0ken"), namespace="shop")
    write_private(tmp_path / "config", content)
    config = load_config(kubeconfig=tmp_path / "config")
    assert (config.host, config.namespace) == ("https://1.2.3.4", "shop")
    assert config.authorization is not None
    assert config.authorization() == "Bearer t0ken"


def test_only_the_owner_can_read_what_is_private(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.touch(0o644)
    write_private(path, {})
    assert path.stat().st_mode & 0o777 == 0o600


def test_kwoks_stages_are_yaml_and_cover_nodes_and_pods() -> None:
    options, *stages = yaml.safe_load_all(kwok_config())
    assert options["kind"] == "KwokConfiguration"
    assert {stage["kind"] for stage in stages} == {"Stage"}
    kinds = [stage["spec"]["resourceRef"]["kind"] for stage in stages]
    assert kinds == ["Node", *["Pod"] * 5]
    names = [stage["metadata"]["name"] for stage in stages if stage["spec"]["next"].get("delete")]
    assert names == ["pod-gone"]


@pytest.mark.parametrize("annotation", [STARTS_AFTER, RUNS_FOR, TERMINATES_AFTER])
def test_pods_delay_their_stages_by_annotation(annotation: str) -> None:
    _options, *stages = yaml.safe_load_all(kwok_config())
    wanted = f'.metadata.annotations["{annotation}"]'
    delays = [stage["spec"].get("delay", {}) for stage in stages]
    assert [d for d in delays if d.get("durationFrom", {}).get("expressionFrom") == wanted]
