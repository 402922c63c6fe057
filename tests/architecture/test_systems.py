"""Systems stand beside the operator: their imports, their files, and what the operator names."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.cases.tides import TIDES

from navarchos.cli import controllers, manifests

ROOT = Path(__file__).parents[2]
SYSTEMS = ("upgrades", "reboots", "machines", "ingress")
LINT = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from importlinter.cli import lint_imports_command
lint_imports_command()
"""


def contracts_are_kept(folder: Path, modules: dict[str, str]) -> bool:
    """Check the contracts of a copy of the sources with more modules."""
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "setup.cfg", folder)
    for name, text in modules.items():
        path = folder / "src" / "navarchos" / name
        path.parent.mkdir(exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(f"\n{text}\n")
    done = subprocess.run(
        [sys.executable, "-c", LINT, str(folder / "src"), "--no-cache"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Contracts:" in done.stdout, done.stdout + done.stderr
    return done.returncode == 0


@pytest.mark.rule("NP-52")
def test_systems_may_import_the_operator_and_what_is_below_it(tmp_path: Path) -> None:
    text = "from navarchos import drain, runtime\nfrom navarchos.operator import setup"
    assert contracts_are_kept(tmp_path, {f"{name}/__init__.py": text for name in SYSTEMS})


@pytest.mark.rule("NP-52")
@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        *((one, other) for one in SYSTEMS for other in SYSTEMS if one != other),
        *((one, "cli") for one in SYSTEMS),
        *(("operator", one) for one in SYSTEMS),
        ("runtime", "machines"),
    ],
)
def test_systems_do_not_import_each_other(tmp_path: Path, importer: str, imported: str) -> None:
    modules = {f"{imported}/__init__.py": ""} if imported in SYSTEMS else {}
    modules[f"{importer}/__init__.py"] = f"import navarchos.{imported}.manager"
    modules |= {f"{imported}/manager.py": ""} if imported in SYSTEMS else {}
    assert not contracts_are_kept(tmp_path, modules)


FOREIGN = re.compile(
    r"\b(aws|amazon|ec2|gcp|gce|google|azure|openstack|vsphere|hetzner|digitalocean|cattle|rancher"
    r"|kured|flatcar|metallb|haproxy|nginx|traefik|cilium|keepalived"
    r"|scaling ?groups?|terraform)\b",
    re.IGNORECASE,
)


KEY = re.compile(r'"[\w.-]+\.[a-z]+/[\w.-]+"')
"""A label or annotation. Pods and nodes carry those of many products."""


@pytest.mark.rule("NP-52")
def test_the_operator_names_no_provider_and_no_product() -> None:
    """Systems know these; the operator offers them a protocol."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted((ROOT / "src/navarchos/operator").rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if FOREIGN.search(KEY.sub("", line))
    ]
    assert found == []


OFFICIAL = re.compile(r"^\s*(?:from|import) (?:kubernetes|urllib3)\b", re.MULTILINE)


@pytest.mark.rule("NP-52")
def test_no_system_uses_the_official_client() -> None:
    """As `setup.cfg` says of the other packages; it can name only packages that exist."""
    for name in SYSTEMS:
        for path in (ROOT / "src/navarchos" / name).rglob("*.py"):
            assert not OFFICIAL.search(path.read_text(encoding="utf-8")), path


def folder_of(kind: str, system: str) -> Path:
    """Return the folder of generated files; those of rollouts were published in 2019."""
    root = ROOT / "config" / kind
    return root if system == "rollouts" else root / system


def has_kinds(system: str) -> bool:
    """Return whether a system brings kinds of its own."""
    return bool(controllers.load([system])[0].kinds)


def selection(system: str) -> str:
    return f"--controllers={system if system == 'rollouts' else f'rollouts,{system}'}"


def check(command: object, flag: str, folder: Path) -> tuple[int, str]:
    result = CliRunner().invoke(command, [flag, "--check", str(folder)])  # type: ignore[arg-type]
    return result.exit_code, result.output


@pytest.mark.rule("NP-50")
@pytest.mark.parametrize("system", controllers.MODULES)
def test_each_system_has_its_files(system: str) -> None:
    if has_kinds(system):
        folder = folder_of("crds", system)
        assert check(manifests.crds, f"--controllers={system}", folder) == (0, "")
    folder = folder_of("deploy", system)
    assert check(manifests.manifests, selection(system), folder) == (0, "")


def test_missing_files_of_a_system_are_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(controllers.MODULES, TIDES.name, ("tests.cases.tides", "TIDES"))
    status, output = check(manifests.crds, "--controllers=tides", tmp_path)
    assert status == 1
    assert f"run: navarchos crds --controllers=tides --output {tmp_path}" in output
    status, output = check(manifests.manifests, selection("tides"), tmp_path)
    assert status == 1
    remedy = f"run: navarchos manifests --controllers=rollouts,tides --output {tmp_path}"
    assert remedy in output


def test_make_writes_and_checks_the_files_of_each_system() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for system in controllers.MODULES:
        selections = [("deploy", selection(system))]
        selections += [("crds", f"--controllers={system}")] if has_kinds(system) else []
        for option in ("--output", "--check"):
            for kind, flag in selections:
                command = {"crds": "crds", "deploy": "manifests"}[kind]
                selected = "" if system == "rollouts" else f"{flag} "
                folder = folder_of(kind, system).relative_to(ROOT)
                assert f"navarchos {command} {selected}{option} {folder}\n" in makefile
