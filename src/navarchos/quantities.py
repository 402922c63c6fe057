"""Resource quantities: `250m`, `2`, `64Mi`."""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Final

__all__ = ["parse_quantity"]

_SUFFIXES: Final[Mapping[str, Decimal]] = {
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
}


@lru_cache(maxsize=1024)
def parse_quantity(text: str | int) -> int:
    """Return a quantity in thousandths: `250m` is 250, `2` is 2000, `1Ki` is 1024000.

    The result is an integer, so that sums are exact. It is rounded up, as by `MilliValue`
    of apimachinery.

    Raises:
        ValueError: The text is not a quantity.
    """
    if isinstance(text, int):
        return text * 1000
    suffix = next((s for s in _SUFFIXES if text.endswith(s)), "")
    number = text[: len(text) - len(suffix)]
    try:
        value = Decimal(number) * _SUFFIXES.get(suffix, Decimal(1)) * 1000
    except InvalidOperation:
        raise ValueError(f"{text!r} is not a quantity such as 250m, 2 or 64Mi") from None
    return int(value.to_integral_value(rounding="ROUND_CEILING"))
