"""`kubectl navarchos`: the real kubectl finds the plugin and passes its flags to it."""

import configparser
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.cases.kubectl import Kubectl

from navarchos.operator.api.v1alpha1.definitions import manifests
from navarchos.testing.apiserver import ApiServer

ROOT = Path(__file__).parents[2]
NAME = "kubectl-navarchos"


@dataclass(frozen=True)
class Setting:
    kubectl: Kubectl
    server: ApiServer


def install_script(directory: Path) -> None:
    """Write the console script like pip, from the entry points in setup.cfg."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    scripts = setup["options.entry_points"]["console_scripts"].strip().splitlines()
    (target,) = [line.partition("=")[2] for line in scripts if line.split("=")[0].strip() == NAME]
    module, _, function = target.strip().partition(":")
    text = f"#!{sys.executable}\nfrom {module} import {function}\n{function}()\n"
    (directory / NAME).write_text(text, encoding="utf-8")
    (directory / NAME).chmod(0o755)


@pytest.fixture
def setting(
    kubectl_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Setting]:
    scripts = tmp_path / "bin"
    scripts.mkdir()
    install_script(scripts)
    monkeypatch.setenv("PATH", f"{scripts}:{os.environ['PATH']}")
    with ApiServer(crds=manifests()) as server:
        server.write_kubeconfig(tmp_path / "kubeconfig")
        server.install({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
        rollout = {
            "apiVersion": "navarchos.pusher.com/v1alpha1",
            "kind": "NodeRollout",
            "metadata": {"name": "roll"},
            "spec": {"nodeSelectors": [{"matchAll": True}]},
        }
        server.install(rollout)
        yield Setting(Kubectl(kubectl_path, tmp_path / "kubeconfig", tmp_path), server)


def test_kubectl_finds_the_plugin_and_names_itself_in_its_help(setting: Setting) -> None:
    # Not the whole output: kubectl also warns about missing folders in the PATH.
    assert NAME in setting.kubectl.run("plugin", "list", "--name-only").stdout.splitlines()
    assert "Usage: kubectl navarchos status" in setting.kubectl("navarchos", "status", "--help")


def test_the_plugin_uses_the_environment_and_flags_of_kubectl(
    setting: Setting, tmp_path: Path
) -> None:
    by_variable = json.loads(setting.kubectl("navarchos", "status", "roll", "-o", "json"))
    assert [rollout["name"] for rollout in by_variable["rollouts"]] == ["roll"]

    context = setting.kubectl("config", "current-context").strip()
    elsewhere = Kubectl(setting.kubectl.path, tmp_path / "missing", tmp_path)
    at = ("--kubeconfig", str(setting.kubectl.kubeconfig), "--context", context, "-n", "shop")
    by_flags = json.loads(elsewhere("navarchos", "plan", "roll", "-o", "json", *at))
    assert [node["name"] for node in by_flags["rollouts"][0]["nodes"]] == ["n1"]
    wrong = ("--context", "nowhere")
    assert "nowhere" in setting.kubectl.refused("navarchos", "status", *wrong)


def test_the_plugin_pauses_and_resumes(setting: Setting) -> None:
    setting.kubectl("navarchos", "pause", "roll")
    rollout = setting.server.get("noderollouts", "roll", group="navarchos.pusher.com")
    assert rollout["spec"]["paused"] is True
    setting.kubectl("navarchos", "resume", "roll")
    setting.kubectl("navarchos", "abort", "roll")
    assert setting.server.list("noderollouts", group="navarchos.pusher.com") == []
    refused = setting.kubectl.run("navarchos", "pause", "roll")
    assert refused.returncode == 4
