"""The argument selects the server; an invalid argument is an error."""

import socket
from pathlib import Path

import pytest
import yaml
from tests.clocks import JumpingClock

from navarchos.errors import ConfigError
from navarchos.testing.apiserver import ApiServer, Fault
from navarchos.testing.environment import EnvironmentNotReady, ServerKind, environment


def kubeconfig_of(url: str, path: Path) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
        "current-context": "c",
    }
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.mark.rule("TE-01")
def test_no_variable_and_no_default_file_chooses_the_cluster(
    api_server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".kube").mkdir()
    other = kubeconfig_of(api_server.url, tmp_path / ".kube" / "config")
    for name, value in {
        "HOME": tmp_path,
        "KUBECONFIG": other,
        "USE_EXISTING_CLUSTER": "true",
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, str(value))
    with environment() as found, found.client() as client:
        assert found.kind is ServerKind.IN_PROCESS
        assert client.raw("GET", "/version").status == 200
    assert list(api_server.audit) == []


def test_an_unknown_server_is_refused_by_name(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigError, match="in-process, real, or the path of an existing kubeconfig"),
        environment(tmp_path / "reel"),
    ):
        pass


@pytest.mark.rule("TE-01")
def test_a_cluster_that_does_not_answer_is_given_up_after_five_seconds(tmp_path: Path) -> None:
    with socket.socket() as taken:  # bound, but no process listens
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        clock = JumpingClock()
        with (
            pytest.raises(EnvironmentNotReady, match=r"no namespace default after 5 s") as caught,
            environment(kubeconfig_of(url, tmp_path / "config"), clock=clock),
        ):
            pass
    assert caught.value.host == url
    assert 5 <= clock.passed < 10


@pytest.mark.rule("TE-01")
def test_the_namespace_that_comes_a_moment_later_is_waited_for(
    api_server: ApiServer, tmp_path: Path
) -> None:
    clock = JumpingClock()
    api_server.faults.add(Fault(verb="get", resource="namespaces", status=404, times=7))
    with environment(kubeconfig_of(api_server.url, tmp_path / "config"), clock=clock):
        assert api_server.requests["get"] == 8
    assert clock.passed == pytest.approx(7 * 0.05)
