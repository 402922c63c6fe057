"""Print the results of a row and store them as JSON."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from benchmarks.contests import AT_MOST, Figures, Outcome

__all__ = ["as_json", "keep", "shown", "table", "targets"]

_MEBIBYTE: Final = 2**20
_MEMORY: Final = frozenset({"resident", "after_gc", "peak"})
_SECONDS: Final = frozenset({"cpu", "cpu_sync", "cpu_server", "seconds"})


def as_json(
    outcome: Outcome, machine: Mapping[str, object], versions: Mapping[str, str]
) -> dict[str, Any]:
    """Return an outcome with all its runs as JSON."""
    return {
        "row": outcome.row,
        "title": outcome.title,
        "sizes": dict(outcome.sizes),
        "machine": dict(machine),
        "versions": {**versions, **outcome.versions},
        "targets": [{**asdict(target), "met": target.met} for target in outcome.targets],
        "medians": {name: found.medians() for name, found in outcome.figures.items()},
        "runs": {name: list(found.runs) for name, found in outcome.figures.items()},
        "series": dict(outcome.series),
    }


def keep(folder: Path, found: Mapping[str, Any]) -> None:
    """Store an outcome for the documentation."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(found, indent=1, ensure_ascii=False)
    (folder / f"{found['row']}.json").write_text(f"{text}\n", encoding="utf-8")


def table(figures: Mapping[str, Figures]) -> Iterator[str]:
    """Yield the lines of a table: one line per contender, with the medians of its quantities."""
    medians = {name: found.medians() for name, found in figures.items()}
    quantities = list(dict.fromkeys(name for found in medians.values() for name in found))
    yield " ".join([f"{'':<26}", *(f"{name:>16}" for name in quantities)])
    for name, found in medians.items():
        cells = (shown(each, found[each]) if each in found else "" for each in quantities)
        yield " ".join([f"{name:<26}", *(f"{cell:>16}" for cell in cells)])


def targets(outcome: Outcome) -> Iterator[str]:
    """Yield a line for each target: quantity, limit, measured value and verdict."""
    for target in outcome.targets:
        sign = "≤" if target.sense == AT_MOST else "≥"
        verdict = "met" if target.met else "NOT MET"
        yield (
            f"  {target.what:<52} {sign} {target.limit:g} {target.unit}"
            f"   measured {target.measured:.3g} {target.unit}   {verdict}"
        )


def shown(quantity: str, value: float) -> str:
    """Return a quantity as text with its unit."""
    if quantity in _MEMORY:
        return f"{value / _MEBIBYTE:,.1f} MiB"
    if quantity in _SECONDS:
        return f"{value:.3f} s"
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.3g}"
