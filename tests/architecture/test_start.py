"""Programs import only the packages that they need, because imports cost memory and time."""

import subprocess
import sys
from pathlib import Path

REPORT = "print(*sorted({name.partition('.')[0] for name in sys.modules} - before))"

MANAGER = """
import sys
before = set()
from pathlib import Path
from navarchos.cli.manager import manager
from navarchos.client import Client, load_config
from navarchos.operator import setup
from navarchos.runtime import Manager, ManagerOptions
environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
config = load_config(environ=environ, service_account=Path(sys.argv[1]))
with Client(config) as client:
    setup.add_operator(Manager(client, options=ManagerOptions(kinds=setup.KINDS)))
print(*sorted(name for name in sys.modules if name.startswith("navarchos.")))
"""

NOT_FOR_A_MANAGER = {
    *("aiohttp", "celpy", "cryptography", "kopf", "kubernetes", "oauthlib", "pydantic"),
    *("pytest", "requests", "requests_oauthlib", "websocket"),
}


def modules_after(code: str, *arguments: str) -> tuple[set[str], ...]:
    """Run code in a new interpreter and return each printed line as a set of words."""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return tuple(set(line.split()) for line in done.stdout.splitlines())


def test_importing_the_package_imports_no_submodule_and_no_other_package() -> None:
    begin = "import sys\nbefore = {name.partition('.')[0] for name in sys.modules}\n"
    (found,) = modules_after(f"{begin}import navarchos\n{REPORT}")
    assert "navarchos" in found
    assert found - {"navarchos"} <= sys.stdlib_module_names
    assert not found & {"asyncio", "email", "http", "logging", "socket", "ssl", "urllib"}


def test_a_manager_in_a_pod_starts_without_the_official_client_and_its_dependencies(
    tmp_path: Path,
) -> None:
    for name in ("token", "ca.crt", "namespace"):
        (tmp_path / name).write_text(name)
    *_, ours, found = modules_after(MANAGER + REPORT, str(tmp_path))
    assert "navarchos.operator.setup" in ours
    assert not found & NOT_FOR_A_MANAGER
    for part in ("navarchos.testing", "navarchos.cli.sandbox", "navarchos.operator.preflight"):
        assert not {name for name in ours if f"{name}.".startswith(f"{part}.")}


def test_only_the_sandbox_loads_the_terminal_library() -> None:
    code = (
        "before = set()\nimport sys\nfrom navarchos.cli.commands import run\n"
        f"run(['manager', '--help'])\n{REPORT}\nrun(['sandbox', '--help'])\n{REPORT}"
    )
    said = modules_after(code)
    manager, sandbox = (line for line in said if "structlog" in line)
    assert not manager & {"rich", "pygments"}
    assert "rich" in sandbox
