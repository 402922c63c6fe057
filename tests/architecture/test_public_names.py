"""A change of a public name is visible in review: the list of public names is checked in."""

import subprocess
import sys

from tests.architecture.publicnames import LIST, public_names

import navarchos.testing


def test_the_checked_in_list_has_exactly_the_public_names() -> None:
    listed = LIST.read_text(encoding="utf-8").splitlines()
    found = public_names().splitlines()
    message = "run `make api` and review the change of docs/api/public-names.txt"
    assert sorted(set(found) ^ set(listed)) == [], message
    assert found == listed, message


def test_every_name_of_the_test_kit_can_be_imported() -> None:
    names = set(navarchos.testing.__all__)
    assert [name for name in names if not hasattr(navarchos.testing, name)] == []
    front_door = {"ApiServer", "Cluster", "ControlPlane", "FaultProxy", "Fault", "FakeClock"}
    assert front_door <= names


def test_the_test_kit_imports_a_part_when_it_is_first_used() -> None:
    code = (
        "import sys, navarchos.testing as kit\n"
        "kit.FakeClock\n"
        "heavy = ['aiohttp', 'pytest', 'navarchos.testing.apiserver', 'navarchos.runtime']\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
