"""Plots show all points and shares, with any labels."""

from xml.etree import ElementTree as ET

import pytest
from benchmarks.plots import flame_graph, line_plot, slope

SVG = "{http://www.w3.org/2000/svg}"


def test_the_slope_of_a_line_is_found() -> None:
    assert slope([(0, 5), (10, 25), (20, 45)]) == pytest.approx(2.0)


def test_a_plot_has_every_point_and_a_larger_value_is_higher() -> None:
    drawn = ET.fromstring(line_plot("t", "pods", "MiB", {"a": [(0, 1), (5, 2), (10, 8)]}))
    points = [
        (float(c.get("cx") or 0), float(c.get("cy") or 0)) for c in drawn.iter(f"{SVG}circle")
    ]
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert [y for _, y in points] == sorted((y for _, y in points), reverse=True)
    assert len(points) == 3


def test_labels_are_escaped() -> None:
    drawn = line_plot('<b> & "quotes"', "<x>", "y", {"<lambda>": [(0, 1), (1, 2)]})
    assert "<lambda>" in [text.text for text in ET.fromstring(drawn).iter(f"{SVG}text")]


def test_a_box_of_a_flame_graph_is_as_wide_as_its_share() -> None:
    drawn = flame_graph("t", {"main;read": 3.0, "main;decode": 1.0}, width=400)
    boxes = {}
    for group in ET.fromstring(drawn).iter(f"{SVG}g"):
        box = group.find(f"{SVG}rect")
        assert box is not None
        boxes[group.findtext(f"{SVG}title")] = float(box.get("width", 0))
    assert boxes == {"main: 100.0%": 400.0, "decode: 25.0%": 100.0, "read: 75.0%": 300.0}
