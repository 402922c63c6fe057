"""Resource quantities."""

import pytest

from navarchos.quantities import parse_quantity


@pytest.mark.parametrize(
    ("text", "expected"),
    [("250m", 250), ("2", 2000), (3, 3000), ("1Ki", 1024_000), ("0.1", 100), ("1e3", 10**6)],
)
def test_quantities_are_read_in_thousandths(text: str | int, expected: int) -> None:
    assert parse_quantity(text) == expected


def test_parts_of_a_thousandth_count_as_a_whole_one() -> None:
    assert parse_quantity("1n") == 1


def test_nonsense_is_no_quantity() -> None:
    with pytest.raises(ValueError, match="quantity"):
        parse_quantity("lots")
