"""Resource quantities."""

import pytest

from navarchos.quantities import parse_quantity


@pytest.mark.parametrize(
    ("text", "expected"),
    [("250m", 250), ("2", 2000), (3, 3000), ("1Ki", 1024_000), ("0.1", 100), ("1e3", 10**6)],
)
def test_quantities_are_parsed_to_thousandths(text: str | int, expected: int) -> None:
    assert parse_quantity(text) == expected


def test_parts_of_a_thousandth_are_rounded_up() -> None:
    assert parse_quantity("1n") == 1


def test_an_invalid_quantity_is_refused() -> None:
    with pytest.raises(ValueError, match="quantity"):
        parse_quantity("lots")
