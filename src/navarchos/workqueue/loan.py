"""A key that a queue has handed out."""

from typing import Generic, Protocol, TypeVar

__all__ = ["Lender", "Loan"]

K = TypeVar("K")
K_contra = TypeVar("K_contra", contravariant=True)


class Lender(Protocol[K_contra]):
    """Where a loan goes back to."""

    def done(self, key: K_contra) -> None:
        """Take the key back."""
        ...


class Loan(Generic[K]):
    """A key on loan: nobody else gets it until the loan is closed.

    ```python
    with loan as key:
        work(key)
    ```

    Promises: closing twice is harmless, also when the key has been lent to
    somebody else in the meantime.

    Threads: owned by one thread at a time.

    Attributes:
        key: What was lent.
        priority: Its priority; 0 where the queue has none.
    """

    __slots__ = ("_lender", "key", "priority")

    def __init__(self, lender: Lender[K], key: K, priority: int = 0) -> None:
        self._lender: Lender[K] | None = lender
        self.key = key
        self.priority = priority

    def __enter__(self) -> K:
        return self.key

    def __exit__(self, *_: object) -> None:
        lender = self._lender
        if lender is not None:
            self._lender = None
            lender.done(self.key)

    def done(self) -> None:
        """Close the loan."""
        self.__exit__()
