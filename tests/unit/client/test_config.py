"""The configuration of the client: kubeconfig files, pods, and environment variables."""

import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from navarchos.client import Client, ClientConfig, ClientSettings, load_config
from navarchos.errors import ConfigError


def kubeconfig(path: Path, *, user: object = None, **cluster: object) -> Path:
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "main",
                "contexts": [
                    {
                        "name": "main",
                        "context": {"cluster": "c", "user": "u", "namespace": "team"},
                    },
                    {"name": "other", "context": {"cluster": "d", "user": "u"}},
                ],
                "clusters": [
                    {"name": "c", "cluster": {"server": "https://c.test:6443/", **cluster}},
                    {"name": "d", "cluster": {"server": "http://d.test"}},
                ],
                "users": [{"name": "u", "user": user or {}}],
            }
        )
    )
    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def service_account(tmp_path: Path) -> Path:
    directory = tmp_path / "serviceaccount"
    directory.mkdir()
    (directory / "token").write_text("pod-token\n")
    (directory / "ca.crt").write_text("certificate")
    (directory / "namespace").write_text("system\n")
    return directory


IN_CLUSTER = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def header(config: ClientConfig) -> str:
    assert config.authorization is not None
    return config.authorization()


def test_a_kubeconfig_gives_server_namespace_and_token(home: Path) -> None:
    config = load_config(kubeconfig=kubeconfig(home / "k", user={"token": "t0"}), environ={})
    assert (config.host, config.namespace) == ("https://c.test:6443", "team")
    assert header(config) == "Bearer t0"
    assert config.verify


def test_another_context_can_be_named(home: Path) -> None:
    config = load_config(kubeconfig=kubeconfig(home / "k"), context="other", environ={})
    assert (config.host, config.namespace) == ("http://d.test", "default")
    assert config.authorization is None


@pytest.mark.rule("MG-19")
def test_an_explicit_file_wins_over_the_variable_and_that_over_the_pod(
    home: Path, service_account: Path
) -> None:
    explicit = kubeconfig(home / "a", user={"token": "explicit"})
    variable = kubeconfig(home / "b", user={"token": "variable"})
    env = {**IN_CLUSTER, "KUBECONFIG": str(variable)}
    found = load_config(kubeconfig=explicit, environ=env, service_account=service_account)
    assert header(found) == "Bearer explicit"
    found = load_config(environ=env, service_account=service_account)
    assert header(found) == "Bearer variable"
    found = load_config(environ=IN_CLUSTER, service_account=service_account)
    assert header(found) == "Bearer pod-token"


@pytest.mark.rule("MG-19")
def test_a_pod_uses_its_service_account_before_the_default_file(
    home: Path, service_account: Path
) -> None:
    (home / ".kube").mkdir()
    kubeconfig(home / ".kube" / "config", user={"token": "default"})
    found = load_config(environ=IN_CLUSTER, service_account=service_account)
    assert (found.host, found.namespace) == ("https://10.0.0.1:443", "system")
    assert found.ca_file == str(service_account / "ca.crt")
    assert header(load_config(environ={})) == "Bearer default"
    assert load_config(environ=IN_CLUSTER, context="other").host == "http://d.test"


def test_a_rotated_service_account_token_is_used_after_renewal(service_account: Path) -> None:
    found = load_config(environ=IN_CLUSTER, service_account=service_account)
    assert header(found) == "Bearer pod-token"
    (service_account / "token").write_text("rotated")
    assert found.renew is not None
    found.renew()
    assert header(found) == "Bearer rotated"


def test_several_files_in_the_variable_are_one_configuration(home: Path) -> None:
    first, second = home / "first", home / "second"
    first.write_text(yaml.safe_dump({"current-context": "main"}))
    kubeconfig(second, user={"token": "t"})
    env = {"KUBECONFIG": f"{first}:{home / 'missing'}:{second}"}
    assert load_config(environ=env).host == "https://c.test:6443"


def test_an_exec_plugin_gives_the_token_and_renewal_runs_it_again(home: Path) -> None:
    tokens = home / "token"
    tokens.write_text("from-plugin-1")
    program = (
        "import json, pathlib; print(json.dumps({'apiVersion':"
        " 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential', 'status':"
        f" {{'token': pathlib.Path({str(tokens)!r}).read_text()}}}}))"
    )
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": ["-c", program],
        "interactiveMode": "Never",
    }
    config = load_config(kubeconfig=kubeconfig(home / "k", user={"exec": plugin}), environ={})
    assert header(config) == "Bearer from-plugin-1"
    tokens.write_text("from-plugin-2")
    assert header(config) == "Bearer from-plugin-1"
    assert config.renew is not None
    config.renew()
    assert header(config) == "Bearer from-plugin-2"


def test_an_exec_plugin_without_output_is_an_error_that_names_it(home: Path) -> None:
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "/nonexistent/plugin",
        "interactiveMode": "Never",
    }
    with pytest.raises(ConfigError, match="/nonexistent/plugin"):
        load_config(kubeconfig=kubeconfig(home / "k", user={"exec": plugin}), environ={})


def test_embedded_certificates_become_files_and_flags_are_kept(home: Path) -> None:
    authority = base64.b64encode(b"authority").decode()
    path = kubeconfig(
        home / "k",
        **{
            "certificate-authority-data": authority,
            "insecure-skip-tls-verify": True,
            "tls-server-name": "real.test",
            "proxy-url": "http://proxy.test:3128",
        },
    )
    config = load_config(kubeconfig=path, environ={})
    assert config.ca_file is not None
    assert Path(config.ca_file).read_bytes() == b"authority"
    assert (config.verify, config.tls_server_name) == (False, "real.test")
    assert config.proxy == "http://proxy.test:3128"


def test_the_environments_proxy_is_used_unless_the_host_is_exempt(home: Path) -> None:
    path = kubeconfig(home / "k")
    env = {"HTTPS_PROXY": "http://proxy.test:3128"}
    assert load_config(kubeconfig=path, environ=env).proxy == "http://proxy.test:3128"
    exempt = {**env, "NO_PROXY": "localhost,.test"}
    assert load_config(kubeconfig=path, environ=exempt).proxy is None
    path.write_text(path.read_text().replace("c.test:6443", "10.1.2.3:6443"))
    inside = {**env, "NO_PROXY": "localhost, 10.0.0.0/8"}
    assert load_config(kubeconfig=path, environ=inside).proxy is None
    outside = {**env, "NO_PROXY": "localhost,192.168.0.0/16"}
    assert load_config(kubeconfig=path, environ=outside).proxy == "http://proxy.test:3128"


def test_a_missing_configuration_is_one_line_that_says_what_to_do(home: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(environ={})
    assert "\n" not in str(caught.value)
    assert "KUBECONFIG" in str(caught.value)
    assert home.exists()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "a: b",
        "current-context: nowhere",
        json.dumps({"current-context": "x", "contexts": [], "clusters": [], "users": []}),
    ],
)
def test_a_file_that_cannot_be_used_is_named_in_one_line(home: Path, text: str) -> None:
    path = home / "broken"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(kubeconfig=path, environ={})
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_missing_is_named(home: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        load_config(kubeconfig=home / "missing", environ={})


@pytest.mark.parametrize("environ", [{}, {"KUBERNETES_SERVICE_PORT": ""}], ids=["none", "empty"])
def test_a_pod_without_the_servers_port_gets_an_error(
    service_account: Path, environ: dict[str, str]
) -> None:
    environ = environ | {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    with pytest.raises(ConfigError, match="KUBERNETES_SERVICE_PORT"):
        load_config(environ=environ, service_account=service_account)


def test_an_ipv6_address_of_the_server_is_written_in_brackets(
    service_account: Path,
) -> None:
    environ = IN_CLUSTER | {"KUBERNETES_SERVICE_HOST": "fd00::1"}
    found = load_config(environ=environ, service_account=service_account)
    assert found.host == "https://[fd00::1]:443"


@pytest.mark.parametrize("name", ["token", "ca.crt"])
@pytest.mark.parametrize("content", [None, ""])
def test_a_service_account_without_one_of_its_files_is_refused(
    service_account: Path, name: str, content: str | None
) -> None:
    (service_account / name).unlink()
    if content is not None:
        (service_account / name).write_text(content)
    with pytest.raises(ConfigError, match=name):
        load_config(environ=IN_CLUSTER, service_account=service_account)


def test_an_unusable_service_account_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="service account"):
        load_config(environ=IN_CLUSTER, service_account=tmp_path / "none")


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"host": "api.test:6443"}, "host"),
        ({"host": "ftp://api.test"}, "host"),
        ({"host": "https://user:secret@api.test"}, "host"),
        ({"host": "http://a", "timeout": 0}, "timeout"),
        ({"host": "http://a", "qps": 0}, "qps"),
        ({"host": "http://a", "qps": 1.0, "burst": 0}, "burst"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, object], name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ClientConfig(**settings)  # type: ignore[arg-type]  # wrong on purpose
    assert caught.value.name == name
    assert "secret" not in str(caught.value)


def test_secrets_never_appear(home: Path) -> None:
    path = kubeconfig(home / "k", user={"token": "s3cret"}, **{"proxy-url": "http://u:s3cret@p"})
    config = load_config(kubeconfig=path, environ={})
    assert header(config) == "Bearer s3cret"
    assert "s3cret" not in repr(config)
    assert "s3cret" not in str(vars(Client(config).config)["host"])


def test_a_client_from_a_file_takes_the_settings_given(home: Path) -> None:
    path = kubeconfig(home / "k")
    with Client.from_config(
        kubeconfig=path, settings=ClientSettings(qps=5.0, burst=9, user_agent="me", timeout=3.0)
    ) as c:
        found = c.config
    assert (found.qps, found.burst, found.user_agent, found.timeout) == (5.0, 9, "me", 3.0)
    assert found.namespace == "team"


def test_importing_the_client_does_not_import_the_official_package() -> None:
    """Start-up time and memory are documented."""
    program = "import sys, navarchos.client; print([m for m in sys.modules if 'kubernetes' in m])"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert out.stdout.strip() == b"[]"


def test_loading_a_configuration_imports_no_models(home: Path) -> None:
    path = kubeconfig(home / "k", user={"token": "t"})
    program = (
        "import sys; from navarchos.client import load_config;"
        f"load_config(kubeconfig={str(path)!r}, environ={{}});"
        "print([m for m in sys.modules if m.startswith('kubernetes.client.models.')"
        " or m.startswith('kubernetes.client.api.')])"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert out.stdout.strip() == b"[]"
