"""Decoding the first items of a list before its end has arrived."""

import re
from typing import Final

import msgspec

__all__ = ["ListSplitter"]

_MIN_SPLIT: Final = 1 << 20
_MAX_HEAD: Final = 1 << 12
_ITEMS: Final = b'"items":['
_FIRST_KEY: Final = re.compile(rb'\{"[^"\\]{1,40}":')
_MAX_GUESSES: Final = 4


class ListSplitter:
    """Splits whole items off a list while it arrives; the remainder is a list as well.

    ```text
    {"kind":"PodList","items":[{1},{2},{3},{4      is split into
                              [{1},{2},{3}]   and   {"kind":"PodList","items":[{4
    ```

    A server that answers from its cache ignores `limit` and sends the whole list in one
    response (RF-09). A reader that decodes it in pieces never holds all of its bytes.

    Each split is a guess: its place is before text that looks like the beginning of the
    first item. Decoding the piece shows whether the guess is right: inside an item the
    piece would have more opening brackets than closing ones, which is not valid JSON. A
    list whose keys are in another order, or that contains blanks, is not split.

    Args:
        min_split: Minimum number of bytes for a split. A shorter list is decoded in one
            piece.
    """

    def __init__(self, min_split: int = _MIN_SPLIT) -> None:
        self._min_split = min_split
        self._held = bytearray()
        self._first = -1  # index of the first item; -1 until the head was examined
        self._seam = b""  # the bytes between two items; empty if the list is not split
        self._due = min_split
        self._guesses_left = 0
        self._end = 0  # index of the end of the last guess
        self._guess: memoryview | None = None

    def feed(self, part: bytes) -> None:
        """Append bytes that have arrived."""
        self._held += part
        if len(self._held) < self._due:
            return
        if self._first < 0:
            self._examine_head()
        # Trying again for each part would take quadratic time.
        self._due = 2 * len(self._held)
        if self._seam:
            self._guesses_left, self._end = _MAX_GUESSES, len(self._held)

    def next_guess(self) -> memoryview | None:
        """Return bytes that may be a JSON array of items, longest first; `None` at the end.

        Call `confirm` before any other method; the bytes are invalid afterwards.
        """
        if not self._guesses_left:
            return None
        self._guesses_left -= 1
        self._end = self._held.rfind(self._seam, self._first, self._end)
        if self._end < 0:
            self._guesses_left = 0
            return None
        # In place, because a copy would allocate half a megabyte each time: the opening
        # bracket is before the first item, and the closing one replaces the comma.
        self._held[self._end + 1 : self._end + 2] = b"]"
        self._guess = memoryview(self._held)[self._first - 1 : self._end + 2]
        return self._guess

    def confirm(self, *, right: bool) -> None:
        """Remove the items of the last guess if it was right, otherwise keep them."""
        assert self._guess is not None
        self._guess.release()
        self._guess = None
        if right:
            del self._held[self._first : self._end + len("},")]
            self._due, self._guesses_left = self._min_split, 0
        else:
            self._held[self._end + 1 : self._end + 2] = b","

    def remainder(self) -> bytes:
        """Return the list without the removed items."""
        return bytes(self._held)

    def _examine_head(self) -> None:
        self._first = self._held.find(_ITEMS, 0, _MAX_HEAD) + len(_ITEMS)
        first_key = _FIRST_KEY.match(self._held, self._first)
        if self._first >= len(_ITEMS) and first_key is not None and self._is_head():
            self._seam = b"}," + first_key[0]

    def _is_head(self) -> bool:
        """Return whether `items` is a field of the list, not of an object in it."""
        try:
            msgspec.json.decode(self._held[: self._first] + b"]}")
        except msgspec.DecodeError:
            return False
        return True
