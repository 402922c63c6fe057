"""Keys by value: the secondary indexes of a store."""

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

from navarchos.informers.errors import IndexConflict, IndexFailed, UnknownIndex

__all__ = ["IndexFunction", "Indexes", "Values"]

T = TypeVar("T")

IndexFunction = Callable[[T], Iterable[str]]
"""Maps an object to the values under which it is to be found; pure and quick."""

Values = dict[str, tuple[str, ...]]
"""The values of one object, by index name."""


class Indexes(Generic[T]):
    """Any number of indexes over the same keys.

    Computing values runs user code and may raise; entering them does not. So a
    caller computes first, then changes, and is never left half-way (ST-12).

    Threads: none of its own; the store that owns it guards it.
    """

    def __init__(self, functions: Mapping[str, IndexFunction[T]]) -> None:
        self._functions = dict(functions)
        # Index name to value to keys. The innermost dict serves as a set that
        # keeps its order, so that look-ups are reproducible.
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
        """Return the keys under a value; none for an unknown value (ST-06)."""
        return list(self._of(name).get(value, ()))

    def values(self, name: str) -> list[str]:
        """Return the values that have keys."""
        return list(self._of(name))

    def move(self, key: str, old: Values, new: Values) -> None:
        """Take a key out of its old values and put it under its new ones (ST-07)."""
        for name, by_value in self._keys.items():
            before, after = old.get(name, ()), new.get(name, ())
            if before != after:
                _leave(by_value, key, before)
            for value in after:
                by_value.setdefault(value, {})[key] = None

    def build(self, values: Mapping[str, Values]) -> None:
        """Forget everything and enter these keys with their values (ST-10)."""
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
        """Return the values that a key stands under, for the object it was entered for.

        Never raises: a function that has changed its mind since, or does not like an
        object that somebody has changed, must not keep the key from being taken out.
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
            # Empty sets of one-time values would pile up for ever (ST-08).
            by_value.pop(value, None)
