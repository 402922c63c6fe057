from datetime import UTC, datetime, timedelta

from navarchos.runtime import Condition, find_condition, is_true, set_condition

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)


def ready(status: str, **fields: object) -> Condition:
    return Condition(type="Ready", status=status, **fields)  # type: ignore[arg-type]  # as given


def test_a_new_condition_is_appended_with_its_times() -> None:
    (other, added) = set_condition([Condition(type="Other", status="True")], ready("True"), now=NOW)
    assert other.type == "Other"
    assert (added.last_transition_time, added.last_update_time) == (NOW, NOW)


def test_the_transition_time_moves_with_the_status_only() -> None:
    before = set_condition([], ready("False"), now=NOW)
    (same,) = set_condition(before, ready("False", reason="Waiting"), now=LATER)
    assert (same.last_transition_time, same.last_update_time) == (NOW, LATER)
    (turned,) = set_condition(before, ready("True"), now=LATER)
    assert (turned.last_transition_time, turned.last_update_time) == (LATER, LATER)


def test_an_equal_condition_changes_nothing() -> None:
    before = set_condition([], ready("True", reason="Done"), now=NOW)
    assert set_condition(before, ready("True", reason="Done"), now=LATER) == before


def test_conditions_keep_their_places() -> None:
    before = (
        Condition(type="A", status="True"),
        ready("False"),
        Condition(type="B", status="True"),
    )
    after = set_condition(before, ready("True"), now=NOW)
    assert [condition.type for condition in after] == ["A", "Ready", "B"]


def test_conditions_are_found_by_type() -> None:
    conditions = [ready("Unknown")]
    assert find_condition(conditions, "Ready") == ready("Unknown")
    assert find_condition(conditions, "Other") is None
    assert not is_true(conditions, "Ready")
    assert is_true([ready("True")], "Ready")
    assert not is_true([], "Ready")
