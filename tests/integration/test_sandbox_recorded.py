"""The sandbox's example is carried out as it was before the later fields of rollouts existed."""

import json

import pytest
from tests.integration.sandbox_record import RECORD, differences, play


@pytest.mark.rule("NP-06")
@pytest.mark.usefixtures("no_detector")
def test_the_example_of_the_sandbox_is_carried_out_as_recorded() -> None:
    found = list(differences(json.loads(RECORD.read_text(encoding="utf-8")), play()))
    assert found == [], "\n".join(found)
