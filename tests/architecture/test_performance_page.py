"""The tables and plots of the performance page agree with the results."""

from benchmarks.pages import PAGE, files
from benchmarks.processes import ROOT


def test_the_page_and_its_plots_agree_with_the_results() -> None:
    stale = [
        str(path.relative_to(ROOT))
        for path, text in files().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    assert stale == [], "run `python -m benchmarks.pages`"


def test_every_row_has_a_place_on_the_page() -> None:
    from benchmarks.__main__ import ALONE, ON_A_FILLED_SERVER

    text = PAGE.read_text(encoding="utf-8")
    for row in (*ALONE, *ON_A_FILLED_SERVER):
        assert f" {row} -->" in text, f"docs/performance.md has no place for {row}"
