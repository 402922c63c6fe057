"""`--controllers`: which systems a process runs."""

import pytest

from navarchos.cli import controllers
from navarchos.errors import ConfigError
from navarchos.operator.systems import ROLLOUTS

TIDES = ("tests.cases.tides", "TIDES")
"""A second system, for tests."""


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version with two systems."""
    rollouts = controllers.MODULES["rollouts"]
    monkeypatch.setattr(controllers, "MODULES", {"rollouts": rollouts, "tides": TIDES})


@pytest.mark.rule("NP-50")
@pytest.mark.usefixtures("two")
@pytest.mark.parametrize(
    ("entries", "selected"),
    [
        (["rollouts"], ["rollouts"]),
        (["tides"], ["tides"]),
        (["rollouts,tides"], ["rollouts", "tides"]),
        (["tides,rollouts"], ["rollouts", "tides"]),
        (["tides", "rollouts"], ["rollouts", "tides"]),
        (["tides, rollouts,"], ["rollouts", "tides"]),
        (["*"], ["rollouts", "tides"]),
        (["*,-tides"], ["rollouts"]),
        (["-tides,*"], ["rollouts"]),
        (["*", "-rollouts"], ["tides"]),
        # Of two entries for one name the first one counts, as in kube-controller-manager.
        (["tides,-tides"], ["tides"]),
        (["-tides,tides,*"], ["rollouts"]),
        # Only * includes names that are not listed.
        (["rollouts,-tides"], ["rollouts"]),
    ],
)
def test_entries_select_as_in_kube_controller_manager(
    entries: list[str], selected: list[str]
) -> None:
    assert list(controllers.select(entries)) == selected


@pytest.mark.rule("NP-50")
@pytest.mark.parametrize("name", ["upgrades", "reboots", "machines", "ingress", "rollout", "-x"])
@pytest.mark.parametrize("before", ["", "rollouts,", "*,"])
def test_a_name_that_this_version_does_not_have_is_refused(name: str, before: str) -> None:
    with pytest.raises(ConfigError) as refused:
        controllers.select([f"{before}{name}"])
    assert str(refused.value) == (
        f"--controllers={name!r}: this version has no such controllers; "
        "it has rollouts, readiness-gates"
    )


@pytest.mark.parametrize(
    "entries", [[""], ["-rollouts"], ["*,-readiness-gates", "-rollouts"], [","]]
)
def test_a_process_without_any_controllers_is_refused(entries: list[str]) -> None:
    with pytest.raises(ConfigError, match="at least one name must be switched on"):
        controllers.select(entries)


def test_rollouts_are_the_default() -> None:
    assert controllers.load(controllers.DEFAULT) == (ROLLOUTS,)


@pytest.mark.parametrize("name", controllers.MODULES)
def test_a_declaration_has_the_name_of_its_entry(name: str) -> None:
    (system,) = controllers.load([name])
    assert system.name == name
    assert system.about
