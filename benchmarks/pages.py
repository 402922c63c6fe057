"""Write the stored results into the documentation.

python -m benchmarks.pages [--check]

`docs/performance.md` has a pair of comments for each row; the text between them is written
here, and plots are written beside the page. `--check` only reports whether anything would
change.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.plots import flame_graph, line_plot
from benchmarks.processes import ROOT
from benchmarks.report import shown

__all__ = ["files", "main"]

RESULTS: Final = ROOT / "benchmarks" / "results"
PAGE: Final = ROOT / "docs" / "performance.md"
PLOTS: Final = ROOT / "docs" / "performance"

_PLACE: Final = re.compile(
    r"(<!-- (targets|figures|plots) (\S+) -->\n).*?(<!-- end -->)", re.DOTALL
)
_SIGNS: Final = {"at most": "≤", "at least": "≥"}


def main() -> None:
    """Write changed files; with `--check`, fail if there are any."""
    stale = {path: text for path, text in files().items() if _read(path) != text}
    if "--check" not in sys.argv[1:]:
        for path, text in stale.items():
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    elif stale:
        names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
        sys.exit(f"out of date with benchmarks/results: {names}; run `python -m benchmarks.pages`")


def files() -> dict[Path, str]:
    """Return the page and the plots as they follow from the results."""
    found = {path.stem: json.loads(path.read_text("utf-8")) for path in RESULTS.glob("*.json")}
    text = PAGE.read_text(encoding="utf-8")
    plots = {name: drawn for row in found.values() for name, drawn in _plots(row)}
    page = _PLACE.sub(lambda place: _filled(place, found), text)
    return {PAGE: page, **{PLOTS / name: drawn for name, drawn in plots.items()}}


def _plots(result: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the names and the contents of a row's plots."""
    if result["row"] == "flame":
        title = f"{result['title'].capitalize()}, imports included"
        yield "flame.svg", flame_graph(title, result["series"]["stacks"])
        return
    for across, lines in result["series"].items():
        for quantity, points in lines.items():
            title = f"{quantity} by number of {across}"
            name = f"{quantity.split(',')[0].lower()}-by-{across}.svg"
            yield name, line_plot(title, across, quantity, {quantity: points})


def _filled(place: re.Match[str], found: Mapping[str, Any]) -> str:
    begin, what, row, end = place.groups()
    if row not in found:
        return f"{begin}Not measured yet: `make bench ONLY={row}`.\n{end}"
    lines = {"targets": _targets, "figures": _figures, "plots": _images}[what](found[row])
    return begin + "".join(f"{line}\n" for line in lines) + end


def _targets(result: Mapping[str, Any]) -> Iterator[str]:
    facts = (_listed(result[part]) for part in ("sizes", "machine", "versions"))
    yield f"{result['title'].capitalize()}: {'; '.join(facts)}."
    yield ""
    yield "| | target | measured | |"
    yield "|---|---|---|---|"
    for target in result["targets"]:
        unit, sign = target["unit"], _SIGNS[target["sense"]]
        verdict = "met" if target["met"] else "**not met**"
        limit, measured = f"{target['limit']:,.4g} {unit}", f"{target['measured']:,.3g} {unit}"
        yield f"| {target['what']} | {sign} {limit} | {measured} | {verdict} |"


def _listed(facts: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items())


def _figures(result: Mapping[str, Any]) -> Iterator[str]:
    medians = result["medians"]
    quantities = list(dict.fromkeys(name for found in medians.values() for name in found))
    yield f"| | {' | '.join(quantities)} |"
    yield f"|---{'|---' * len(quantities)}|"
    for name, found in medians.items():
        cells = (shown(each, found[each]) if each in found else "" for each in quantities)
        yield f"| {name} | {' | '.join(cells)} |"


def _images(result: Mapping[str, Any]) -> Iterator[str]:
    for name, _ in _plots(result):
        yield f"![{name.removesuffix('.svg').replace('-', ' ')}](performance/{name})"


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    main()
