"""Contenders take turns, and a report states which targets were met."""

from benchmarks.contests import AT_LEAST, Figures, Outcome, Target, contest
from benchmarks.report import as_json, table, targets


def test_contenders_take_turns() -> None:
    turns: list[str] = []

    def contender(name: str, took: float) -> dict[str, float]:
        turns.append(name)
        return {"cpu": took + len(turns)}

    figures = contest(3, {"a": lambda: contender("a", 0), "b": lambda: contender("b", 100)})
    assert turns == ["a", "b", "a", "b", "a", "b"]
    assert figures["a"].medians() == {"cpu": 3}
    assert figures["b"].medians() == {"cpu": 104}


def test_a_target_may_be_an_upper_or_a_lower_limit() -> None:
    assert Target("CPU", 0.5, 0.5).met
    assert not Target("CPU", 0.5, 0.51).met
    assert Target("less CPU", 15, 15.0, sense=AT_LEAST).met
    assert not Target("less CPU", 15, 14.9, sense=AT_LEAST).met


def test_the_report_states_which_targets_were_met() -> None:
    outcome = Outcome(
        row="row",
        title="a title",
        sizes={"pods": 7},
        figures={"ours": Figures([{"cpu": 2.0}, {"cpu": 1.0}, {"cpu": 3.0}])},
        targets=(
            Target("CPU, relative to the peer", 0.5, 0.7),
            Target("peak, relative to the peer", 0.5, 0.2),
        ),
    )
    missed, met = targets(outcome)
    assert "≤ 0.5 x" in missed
    assert "measured 0.7 x" in missed
    assert missed.endswith("NOT MET")
    assert met.endswith("   met")
    found = as_json(outcome, {"cores": 2}, {"client-go": "v1"})
    assert [target["met"] for target in found["targets"]] == [False, True]
    assert found["medians"] == {"ours": {"cpu": 2.0}}
    assert found["runs"]["ours"] == [{"cpu": 2.0}, {"cpu": 1.0}, {"cpu": 3.0}]


def test_a_table_has_a_line_for_each_contender_and_gaps_for_missing_figures() -> None:
    lines = list(
        table({"ours": Figures([{"cpu": 1.5}]), "theirs": Figures([{"resident": 2.0 * 2**20}])})
    )
    assert lines[0].split() == ["cpu", "resident"]
    assert lines[1].split() == ["ours", "1.500", "s"]
    assert lines[2].split() == ["theirs", "2.0", "MiB"]
