"""Keys by value: the secondary indexes of a store."""

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

from navarchos.informers.errors import IndexConflict, IndexFailed, UnknownIndex

__all__ = ["IndexFunction", "Indexes", "Values"]

T = TypeVar("T")

IndexFunction = Callable[[T], Iterable[str]]
"""Returns the values of an object in an index. Must be pure and quick."""

Values = dict[str, tuple[str, ...]]
"""The values of one object, by index name."""


class Indexes(Generic[T]):
    """Any number of indexes over the same keys.

    Computing values runs user code and may raise; entering values does not raise. So the
    store computes first and changes afterwards, and never stops half-way (ST-12).

    Threads: guarded by the lock of the store that owns it.
    """

    def __init__(self, functions: Mapping[str, IndexFunction[T]]) -> None:
        self._functions = dict(functions)
        # Index name to value to keys. The innermost dict is used as a set that keeps its
        # order, so that lookups return the same order every time.
        self._keys: dict[str, dict[str, dict[str, None]]] = {name: {} for name in functions}

    def names(self) -> list[str]:
        """Return the names of the indexes."""
        return list(self._functions)

    def values_of(self, key: str, obj: T) -> Values:
        """Compute the values of an object in every index.

        Raises:
            IndexFailed: A function raised; the cause is chained.
        """
        values: Values = {}
        for name, function in self._functions.items():
            try:
                values[name] = tuple(function(obj))
            except Exception as error:
                raise IndexFailed(name, key) from error
        return values

    def keys(self, name: str, value: str) -> list[str]:
        """Return the keys under a value; empty for an unknown value (ST-06)."""
        return list(self._of(name).get(value, ()))

    def values(self, name: str) -> list[str]:
        """Return the values that have keys."""
        return list(self._of(name))

    def move(self, key: str, old: Values, new: Values) -> None:
        """Move a key from its old values to its new values (ST-07)."""
        for name, by_value in self._keys.items():
            before, after = old.get(name, ()), new.get(name, ())
            if before != after:
                _leave(by_value, key, before)
            for value in after:
                by_value.setdefault(value, {})[key] = None

    def build(self, values: Mapping[str, Values]) -> None:
        """Replace the content of all indexes by these keys with their values (ST-10)."""
        self._keys = {name: {} for name in self._functions}
        for name, by_value in self._keys.items():
            for key, of_key in values.items():
                for value in of_key[name]:
                    by_value.setdefault(value, {})[key] = None

    def add(self, functions: Mapping[str, IndexFunction[T]], objects: Mapping[str, T]) -> None:
        """Add indexes over the present objects (ST-09).

        Raises:
            IndexConflict: A name is taken; nothing was added.
            IndexFailed: A function raised; nothing was added.
        """
        taken = self._functions.keys() & functions.keys()
        if taken:
            raise IndexConflict(taken)
        added = Indexes(functions)
        added.build({key: added.values_of(key, obj) for key, obj in objects.items()})
        self._functions.update(added._functions)
        self._keys.update(added._keys)

    def values_of_entered(self, key: str, obj: T) -> Values:
        """Return the values under which a stored object's key was entered.

        Never raises: an index function that now returns something else, or raises because
        the object was changed in place, must not prevent the removal of the key.
        """
        try:
            return self.values_of(key, obj)
        except IndexFailed:
            return {
                name: tuple(value for value, keys in by_value.items() if key in keys)
                for name, by_value in self._keys.items()
            }

    def _of(self, name: str) -> dict[str, dict[str, None]]:
        try:
            return self._keys[name]
        except KeyError:
            raise UnknownIndex(name, self._functions) from None


def _leave(by_value: dict[str, dict[str, None]], key: str, values: Iterable[str]) -> None:
    for value in values:
        keys = by_value.get(value, {})
        keys.pop(key, None)
        if not keys:
            # Otherwise empty sets of values that occurred once would accumulate (ST-08).
            by_value.pop(value, None)
