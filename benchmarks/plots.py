"""Draw line plots and flame graphs as SVG, without a plotting package."""

import math
from collections.abc import Mapping, Sequence
from typing import Final
from xml.sax.saxutils import escape

__all__ = ["flame_graph", "line_plot", "slope"]

Points = Sequence[tuple[float, float]]

_COLOURS: Final = ("#1b6ca8", "#c8553d", "#5b8e3e", "#7d5ba6", "#8a8a8a")
_WIDTH, _HEIGHT = 640, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 190, 40, 50
_ROW: Final = 18
_LETTER: Final = 7


def slope(points: Points) -> float:
    """Return the growth of a quantity per unit, by least squares."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread


def line_plot(title: str, across: str, up: str, lines: Mapping[str, Points]) -> str:
    """Draw lines from the origin of both axes, with a legend beside them."""
    most_x = max(x for points in lines.values() for x, _ in points)
    most_y = _round_up(max(y for points in lines.values() for _, y in points))
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def at(x: float, y: float) -> tuple[float, float]:
        return _LEFT + wide * x / most_x, _TOP + high * (1 - y / most_y)

    parts = [_text(_LEFT, 20, title, size=14)]
    for step in range(5):
        x, y = most_x * step / 4, most_y * step / 4
        (left, level), (right, _) = at(0, y), at(most_x, y)
        parts += [
            f'<path d="M{left:.0f} {level:.1f}H{right:.0f}" stroke="#ddd"/>',
            _text(left - 6, level + 4, f"{y:,.4g}", anchor="end"),
            _text(at(x, 0)[0], _HEIGHT - _BOTTOM + 18, f"{x:,.0f}", anchor="middle"),
        ]
    beside = _WIDTH - _RIGHT + 14
    parts += [
        _text(_LEFT + wide / 2, _HEIGHT - 10, across, anchor="middle"),
        _text(_LEFT, _TOP - 8, up),
    ]
    for number, (name, points) in enumerate(lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        drawn = [at(x, y) for x, y in points]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in drawn)
        legend = _TOP + 10 + number * _ROW
        parts += [
            f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>',
            *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in drawn),
            f'<path d="M{beside} {legend - 4}h16" stroke="{colour}" stroke-width="3"/>',
            _text(beside + 22, legend, name),
        ]
    return _svg(_WIDTH, _HEIGHT, parts)


def flame_graph(title: str, stacks: Mapping[str, float], width: int = 1_000) -> str:
    """Draw folded stacks (`outer;inner`, by weight) as nested boxes, the outermost below.

    Boxes are sorted by name; one narrower than a pixel is left out.
    """
    total = sum(stacks.values())
    boxes: dict[tuple[str, ...], float] = {}
    for stack, weight in stacks.items():
        frames = tuple(stack.split(";"))
        for depth in range(1, len(frames) + 1):
            boxes[frames[:depth]] = boxes.get(frames[:depth], 0.0) + weight
    height = (max(map(len, boxes)) + 2) * _ROW
    parts = [_text(4, 14, title, size=14)]
    starts: dict[tuple[str, ...], float] = {(): 0.0}
    for frames in sorted(boxes):
        outer = frames[:-1]
        left, wide = starts[outer], boxes[frames] / total * width
        starts[outer] += wide
        starts[frames] = left
        if wide < 1:
            continue
        top = height - len(frames) * _ROW
        share = f"{frames[-1]}: {boxes[frames] / total:.1%}"
        colour = f"hsl({20 + _shade(frames[-1]) % 35},80%,{62 + _shade(frames[-1]) % 12}%)"
        shown = frames[-1][: int(wide / _LETTER)] if wide > 4 * _LETTER else ""
        parts.append(
            f'<g><title>{escape(share)}</title><rect x="{left:.1f}" y="{top}" width="{wide:.1f}"'
            f' height="{_ROW - 1}" fill="{colour}"/>{_text(left + 3, top + 13, shown)}</g>'
        )
    return _svg(width, height + 4, parts)


def _svg(width: float, height: float, parts: Sequence[str]) -> str:
    inner = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}"'
        f' font-family="sans-serif" font-size="12">\n'
        f'<rect width="100%" height="100%" fill="#fff"/>\n{inner}\n</svg>\n'
    )


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
    return f"<text {place}>{escape(text)}</text>" if text else ""


def _round_up(value: float) -> float:
    """Return the next round number for an axis."""
    unit = 10 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(unit * step for step in (1, 2, 4, 5, 8, 10, 20) if unit * step >= value)


def _shade(name: str) -> int:
    """Return a number that is the same for a name in every run."""
    return sum(map(ord, name))
