"""Token files and exec plugins, whose credentials change while the process runs."""

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from structlog.testing import capture_logs
from tests.unit.client.wire import Connect, Peer, Serve

from navarchos.client import ClientConfig, HttpRequest, load_config
from navarchos.client.credentials import CredentialsFailed, ExecPlugin, PluginSettings, TokenFile
from navarchos.errors import ConfigError
from navarchos.meta import format_time
from navarchos.testing import FakeClock

V1, V1BETA1 = "client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"

# Prints the content of a file; appends its arguments and environment to another file.
PROGRAM = """
import json, os, pathlib, sys
answer, seen = map(pathlib.Path, sys.argv[1:3])
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
entry = {"info": info, "extra": os.environ.get("EXTRA"), "input": sys.stdin.read()}
with seen.open("a") as file:
    file.write(json.dumps(entry) + "\\n")
print(answer.read_text())
"""


class Plugin:
    """A plugin whose next output a test sets."""

    def __init__(self, folder: Path, version: str = V1) -> None:
        self.version = version
        self._answer, self._seen = folder / "answer", folder / "seen"

    def gives(self, **status: str) -> None:
        body = {"apiVersion": self.version, "kind": "ExecCredential", "status": status}
        self.prints(json.dumps(body))

    def prints(self, text: str) -> None:
        self._answer.write_text(text)

    @property
    def runs(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._seen.read_text().splitlines()]

    @property
    def args(self) -> list[str]:
        return ["-c", PROGRAM, str(self._answer), str(self._seen)]

    def settings(self, **more: Any) -> PluginSettings:
        return PluginSettings(sys.executable, self.version, args=self.args, **more)


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    return Plugin(tmp_path)


def test_a_token_file_is_read_again_every_minute(tmp_path: Path, fake_clock: FakeClock) -> None:
    path = tmp_path / "token"
    path.write_text("one\n")
    token = TokenFile(path, clock=fake_clock)
    path.write_text("two\n")
    fake_clock.advance(59.0)
    assert token.header() == "Bearer one"
    fake_clock.advance(1.0)
    assert token.header() == "Bearer two"
    path.write_text("three\n")
    token.renew()
    assert token.header() == "Bearer three"


@pytest.mark.parametrize("broken", ["missing", "empty"])
def test_a_token_file_that_cannot_be_read_leaves_the_last_token(
    tmp_path: Path, fake_clock: FakeClock, broken: str
) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    token = TokenFile(path, clock=fake_clock)
    path.unlink() if broken == "missing" else path.write_text("")
    with capture_logs() as logs:
        fake_clock.advance(60.0)
        assert token.header() == "Bearer one"
    assert [log["event"] for log in logs] == ["token_file_unreadable"]
    with pytest.raises(CredentialsFailed) as caught:
        TokenFile(path, clock=fake_clock)
    assert caught.value.source == str(path)


@pytest.mark.parametrize("version", [V1, V1BETA1])
def test_a_plugin_gets_its_version_and_has_no_terminal(tmp_path: Path, version: str) -> None:
    plugin = Plugin(tmp_path, version)
    plugin.gives(token="t")
    found = ExecPlugin(plugin.settings(env={"EXTRA": "more"}, cluster={"server": "https://c"}))
    assert (found.header(), found.cert_file, found.key_file) == ("Bearer t", None, None)
    spec = {"interactive": False, "cluster": {"server": "https://c"}}
    info = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    assert plugin.runs == [{"info": info, "extra": "more", "input": ""}]


def test_a_plugin_cannot_read_the_input_of_the_process(plugin: Plugin) -> None:
    plugin.gives(token="t")
    program = """
import sys
from navarchos.client.credentials import ExecPlugin, PluginSettings
ExecPlugin(PluginSettings(sys.executable, sys.argv[1], args=sys.argv[2:]))
print(sys.stdin.read())
"""
    command = [sys.executable, "-c", program, V1, *plugin.args]
    done = subprocess.run(command, input="typed", capture_output=True, text=True, check=True)
    assert (plugin.runs[0]["input"], done.stdout) == ("", "typed\n")


def test_a_plugin_runs_again_when_its_credentials_expire(
    plugin: Plugin, fake_clock: FakeClock
) -> None:
    expires = format_time(fake_clock.now() + timedelta(seconds=100))
    plugin.gives(token="one", expirationTimestamp=expires)
    found = ExecPlugin(plugin.settings(), clock=fake_clock)
    plugin.gives(token="two")
    fake_clock.advance(98.0)
    assert found.header() == "Bearer one"
    fake_clock.advance(2.0)
    assert [found.header(), found.header()] == ["Bearer two", "Bearer two"]
    assert len(plugin.runs) == 2


def test_a_plugin_may_give_a_certificate_and_another_one_later(plugin: Plugin) -> None:
    plugin.gives(clientCertificateData="cert 1", clientKeyData="key 1")
    found = ExecPlugin(plugin.settings())
    assert found.header() == ""
    assert found.cert_file is not None
    assert found.key_file is not None
    files = Path(found.cert_file), Path(found.key_file)
    assert [file.read_text() for file in files] == ["cert 1", "key 1"]
    assert files[0].parent.stat().st_mode & 0o077 == 0
    plugin.gives(clientCertificateData="cert 2", clientKeyData="key 2")
    found.renew()
    assert [file.read_text() for file in files] == ["cert 2", "key 2"]
    del found
    assert not files[0].exists()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not an ExecCredential"),
        ("secret-in-a-page", "not an ExecCredential"),
        (json.dumps({"apiVersion": V1BETA1, "kind": "ExecCredential"}), "v1beta1, not"),
        (json.dumps({"apiVersion": V1, "kind": "ExecCredential"}), "no status"),
        (json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": {}}), "neither"),
        (
            json.dumps(
                {"apiVersion": V1, "kind": "ExecCredential", "status": {"clientKeyData": "secret"}}
            ),
            "without its key",
        ),
        (
            json.dumps(
                {
                    "apiVersion": V1,
                    "kind": "ExecCredential",
                    "status": {"token": "secret", "expirationTimestamp": "soon"},
                }
            ),
            "not an ExecCredential",
        ),
    ],
)
def test_invalid_plugin_output_is_one_line_without_secrets(
    plugin: Plugin, text: str, why: str
) -> None:
    plugin.prints(text)
    with pytest.raises(CredentialsFailed, match=why) as caught:
        ExecPlugin(plugin.settings(hint="get it from the shop"))
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "get it from the shop" in str(caught.value)
    assert (caught.value.hint, caught.value.sent) == ("get it from the shop", False)


def test_the_error_of_a_failed_plugin_is_quoted() -> None:
    program = "import sys; sys.exit('log in\\nfirst')"
    with pytest.raises(CredentialsFailed, match="failed with exit status 1: log in first"):
        ExecPlugin(PluginSettings(sys.executable, V1, args=["-c", program]))


def test_a_plugin_of_another_version_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        PluginSettings("p", "client.authentication.k8s.io/v1alpha1")
    assert caught.value.name == "exec.apiVersion"


def test_a_request_without_credentials_is_not_sent(connect: Connect) -> None:
    def none() -> str:
        raise CredentialsFailed("plugin", "logged out")

    requests: list[HttpRequest] = []
    client = connect(requests.append, authorization=none)
    with pytest.raises(CredentialsFailed) as caught:
        client.raw("GET", "/x")
    assert (caught.value.verb, caught.value.resource) == ("GET", "raw")
    assert requests == []


def test_a_401_makes_new_connections_for_a_certificate_that_was_rotated(
    serve: Serve, connect: Connect
) -> None:
    """A server authenticates each connection by the certificate of its handshake."""

    def script(peer: Peer) -> None:
        answers = 0
        while peer.receive() is not None:
            answers += 1
            peer.answer(b"", status=200 if answers == 1 else 401)

    server = serve(script)
    client = connect(server.url, renew=lambda: None)
    assert [client.raw("GET", "/x").status for _ in range(3)] == [200, 200, 200]
    assert server.connections == 3


# Through a kubeconfig


def write(path: Path, user: dict[str, Any], **more: Any) -> Path:
    contexts = [{"name": "main", "context": {"cluster": "c", "user": "u"}}]
    cluster = {"server": "https://c.test:6443"}
    parts = {
        "current-context": "main",
        "contexts": contexts,
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        **more,
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump({key: value for key, value in parts.items() if value}))
    return path


def header(config: ClientConfig) -> str:
    assert config.authorization is not None
    return config.authorization()


def test_a_kubeconfigs_token_file_wins_over_its_token_and_is_beside_it(tmp_path: Path) -> None:
    path = write(tmp_path / "k", {"tokenFile": "my-token", "token": "old"})
    (tmp_path / "my-token").write_text("one")
    config = load_config(kubeconfig=path, environ={})
    assert header(config) == "Bearer one"
    (tmp_path / "my-token").write_text("two")
    assert config.renew is not None
    config.renew()
    assert header(config) == "Bearer two"


def test_a_plugin_with_a_folder_is_beside_its_kubeconfig(tmp_path: Path, plugin: Plugin) -> None:
    plugin.gives(token="t")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "plugin").symlink_to(sys.executable)
    spec = {"apiVersion": V1, "command": "./bin/plugin", "args": plugin.args}
    given = {**spec, "env": [{"name": "EXTRA", "value": "x"}], "provideClusterInfo": True}
    config = load_config(kubeconfig=write(tmp_path / "k", {"exec": given}), environ={})
    assert header(config) == "Bearer t"
    (run,) = plugin.runs
    assert run["extra"] == "x"
    assert run["info"]["spec"]["cluster"] == {"server": "https://c.test:6443"}


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"interactiveMode": "Always"}, "exec.interactiveMode"),
        ({"command": ""}, "exec.command"),
        ({"apiVersion": "v7"}, "exec.apiVersion"),
    ],
)
def test_a_plugin_with_invalid_settings_is_refused(
    tmp_path: Path, change: dict[str, str], name: str
) -> None:
    given = {"apiVersion": V1, "command": "p", **change}
    with pytest.raises(ConfigError) as caught:
        load_config(kubeconfig=write(tmp_path / "k", {"exec": given}), environ={})
    assert caught.value.name == name


def test_a_missing_plugin_is_named_with_the_hint(tmp_path: Path) -> None:
    given = {"apiVersion": V1, "command": "no-such-plugin", "installHint": "install it\n"}
    with pytest.raises(ConfigError, match=r"no-such-plugin .*No such file.*; install it"):
        load_config(kubeconfig=write(tmp_path / "k", {"exec": given}), environ={})


def test_the_first_current_context_counts_and_paths_belong_to_their_file(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    (tmp_path / "b" / "cert").write_text("certificate")
    (tmp_path / "b" / "key").write_text("key")
    user = {"client-certificate": "cert", "client-key": "key"}
    clusters = [{"name": "c", "cluster": {"server": "https://first.test"}}]
    first = write(tmp_path / "a" / "k", {}, users=None, clusters=clusters)
    second = write(tmp_path / "b" / "k", user, **{"current-context": "elsewhere"})
    (tmp_path / "a" / "cert").write_text("another")
    (tmp_path / "a" / "key").write_text("another")
    config = load_config(environ={"KUBECONFIG": os.pathsep.join([str(first), str(second)])})
    assert config.host == "https://first.test"
    assert config.cert_file == str(tmp_path / "b" / "cert")
    assert config.key_file == str(tmp_path / "b" / "key")
    assert config.renew is not None
