"""Items of a list whose end has not come yet."""

import re
from typing import Final

import msgspec

__all__ = ["ListCutter"]

_MUCH: Final = 1 << 20
_LONGEST_HEAD: Final = 1 << 12
_ITEMS: Final = b'"items":['
_BEGINNING: Final = re.compile(rb'\{"[^"\\]{1,40}":')
_GUESSES: Final = 4


class ListCutter:
    """Cuts whole items off a list while it comes; what is left of it is a list as well.

    ```text
    {"kind":"PodList","items":[{1},{2},{3},{4      is cut into
                              [{1},{2},{3}]   and   {"kind":"PodList","items":[{4
    ```

    A server asked for what it has at hand sends all in one answer, whatever the limit
    (RF-09); who decodes that in pieces never holds it.

    A cut is a guess: it is made before what begins as the first item did. Whoever decodes
    the piece finds out whether the guess was right, for within an item the piece has more
    brackets that open than that close, which is no JSON. A list with keys in another
    order, with blanks, or none at all, is not cut.

    Args:
        much: Bytes that are worth a cut. What is shorter is decoded in one piece.
    """

    def __init__(self, much: int = _MUCH) -> None:
        self._much = much
        self._held = bytearray()
        self._first = -1  # where the first item begins; -1 as long as nobody has looked
        self._seam = b""  # what is between two items; nothing in a list that is not cut
        self._due = much
        self._tries = 0  # guesses that are left
        self._end = 0  # of the last guess
        self._guess: memoryview | None = None

    def feed(self, part: bytes) -> None:
        """Take what has come."""
        self._held += part
        if len(self._held) < self._due:
            return
        if self._first < 0:
            self._look_at_head()
        # To try again with each part that comes would be quadratic.
        self._due = 2 * len(self._held)
        if self._seam:
            self._tries, self._end = _GUESSES, len(self._held)

    def guess(self) -> memoryview | None:
        """Return what may be a JSON array of items, the longest first; `None` if nothing may.

        It is to be settled before anything else, and is not to be used after that.
        """
        if not self._tries:
            return None
        self._tries -= 1
        self._end = self._held.rfind(self._seam, self._first, self._end)
        if self._end < 0:
            self._tries = 0
            return None
        # In place: the bracket before the first item is there, and the other takes the
        # comma's place. A copy is half a megabyte that is made and given back each time.
        self._held[self._end + 1 : self._end + 2] = b"]"
        self._guess = memoryview(self._held)[self._first - 1 : self._end + 2]
        return self._guess

    def settle(self, *, right: bool) -> None:
        """Take the items of the last guess off, or put up with them."""
        assert self._guess is not None
        self._guess.release()
        self._guess = None
        if right:
            del self._held[self._first : self._end + len("},")]
            self._due, self._tries = self._much, 0
        else:
            self._held[self._end + 1 : self._end + 2] = b","

    def rest(self) -> bytes:
        """Return the list as it is without the items that were taken."""
        return bytes(self._held)

    def _look_at_head(self) -> None:
        self._first = self._held.find(_ITEMS, 0, _LONGEST_HEAD) + len(_ITEMS)
        beginning = _BEGINNING.match(self._held, self._first)
        if self._first >= len(_ITEMS) and beginning is not None and self._is_head():
            self._seam = b"}," + beginning[0]

    def _is_head(self) -> bool:
        """Whether these are the items of the list, not of something in it."""
        try:
            msgspec.json.decode(self._held[: self._first] + b"]}")
        except msgspec.DecodeError:
            return False
        return True
