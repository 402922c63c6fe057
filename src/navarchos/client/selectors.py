"""Label and field selectors: parsing, formatting, and matching in this process.

The grammar and its meaning are as in apimachinery's `labels` and `fields`: all
requirements, separated by commas, must match; `!=`, `notin` and `!key` also match
objects without the key (LS-03).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Final, assert_never

import msgspec
from msgspec import Meta

from navarchos.errors import ConfigError
from navarchos.structs import prepare_decoding

__all__ = [
    "FieldRequirement",
    "FieldSelector",
    "LabelSelectorRequirement",
    "LabelSelectorSpec",
    "Operator",
    "Requirement",
    "Selector",
]

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_PREFIX: Final = re.compile(
    r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*"
)
_WORD: Final = "up to 63 letters, digits, '-', '_', '.', with a letter or digit at both ends"
_TOKEN: Final = re.compile(r"\s*(==|!=|[=!(),<>]|[^\s=!(),<>]+)")


class Operator(StrEnum):
    """The operator of a requirement; the values are as in `metav1.LabelSelector`."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GREATER_THAN = "Gt"
    LESS_THAN = "Lt"


class Requirement(msgspec.Struct, frozen=True):
    """One requirement for one label.

    Attributes:
        key: The label.
        operator: The operator.
        values: At least one value for `In` and `NotIn`, one integer for `Gt` and `Lt`,
            empty otherwise. Sorted and without duplicates.

    Raises:
        ConfigError: A key, a value or the number of values is invalid.
    """

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "values", tuple(sorted(set(self.values))))
        _check_key(self.key)
        for value in self.values:
            _check_value(self.key, value)
        self._check_count()

    def __str__(self) -> str:
        many = f"({','.join(self.values)})"
        match self.operator:
            case Operator.IN:
                return f"{self.key}={self.values[0]}" if self._single else f"{self.key} in {many}"
            case Operator.NOT_IN:
                text = f"{self.key}!={self.values[0]}"
                return text if self._single else f"{self.key} notin {many}"
            case Operator.EXISTS:
                return self.key
            case Operator.DOES_NOT_EXIST:
                return f"!{self.key}"
            case Operator.GREATER_THAN:
                return f"{self.key}>{self.values[0]}"
            case Operator.LESS_THAN:
                return f"{self.key}<{self.values[0]}"
            case _:
                assert_never(self.operator)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels match the requirement."""
        value = labels.get(self.key)
        match self.operator:
            case Operator.IN:
                return value in self.values
            case Operator.NOT_IN:
                return value not in self.values
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
            case Operator.GREATER_THAN:
                return _is_integer(value) and int(value or "") > int(self.values[0])
            case Operator.LESS_THAN:
                return _is_integer(value) and int(value or "") < int(self.values[0])
            case _:
                assert_never(self.operator)

    @property
    def _single(self) -> bool:
        return len(self.values) == 1

    def _check_count(self) -> None:
        match self.operator:
            case Operator.IN | Operator.NOT_IN:
                is_valid, wanted = bool(self.values), "requires values"
            case Operator.EXISTS | Operator.DOES_NOT_EXIST:
                is_valid, wanted = not self.values, "does not accept values"
            case Operator.GREATER_THAN | Operator.LESS_THAN:
                is_valid = self._single and _is_integer(self.values[0])
                wanted = "requires one integer"
            case _:
                assert_never(self.operator)
        if not is_valid:
            raise ConfigError(self.key, self.values, f"{self.operator} {wanted}")


# Written into schemas, so that servers refuse other operators; parsing accepts more.
_WIRE_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")


class LabelSelectorRequirement(
    msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True
):
    """An entry of `metav1.LabelSelector.matchExpressions`."""

    key: str
    operator: Annotated[str, Meta(extra_json_schema={"enum": list(_WIRE_OPERATORS)})]
    values: tuple[str, ...] = ()


@prepare_decoding
class LabelSelectorSpec(
    msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True
):
    """`metav1.LabelSelector`, a field of objects. `Selector.from_spec` reads it."""

    match_labels: Mapping[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class Selector(msgspec.Struct, frozen=True):
    """A label selector: all requirements must match. Immutable.

    `str()` returns the API's parameter `labelSelector`, and `parse()` reads it.
    """

    requirements: tuple[Requirement, ...] = ()

    def __str__(self) -> str:
        return ",".join(str(requirement) for requirement in self.requirements)

    @classmethod
    def everything(cls) -> "Selector":
        """Return a selector that every object matches."""
        return cls()

    @classmethod
    def nothing(cls) -> "Selector":
        """Return a selector that no object matches, here or on the server."""
        return _NOTHING

    @classmethod
    def parse(cls, text: str) -> "Selector":
        """Read the text form: `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1`.

        Raises:
            ConfigError: The text does not follow the grammar; the error has the place.
        """
        return cls(tuple(_Parser(text).requirements()))

    @classmethod
    def from_labels(cls, labels: Mapping[str, str]) -> "Selector":
        """Return the selector of objects that have all these labels."""
        pairs = sorted(labels.items())
        return cls(tuple(Requirement(key, Operator.IN, (value,)) for key, value in pairs))

    @classmethod
    def from_spec(cls, spec: LabelSelectorSpec | None) -> "Selector":
        """Read the selector of an object: `None` selects nothing, empty everything.

        Raises:
            ConfigError: An operator, a key or a value is invalid.
        """
        if spec is None:
            return cls.nothing()
        expressions = tuple(
            Requirement(entry.key, _operator(entry), entry.values)
            for entry in spec.match_expressions
        )
        return cls((*cls.from_labels(spec.match_labels).requirements, *expressions))

    @property
    def is_everything(self) -> bool:
        """Whether all labels match, so that a caller can skip matching."""
        return not self.requirements

    @property
    def is_nothing(self) -> bool:
        """Whether no labels match, so that a caller can skip the objects."""
        return self == _NOTHING

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels match all requirements."""
        return all(requirement.matches(labels) for requirement in self.requirements)


class FieldRequirement(msgspec.Struct, frozen=True):
    """One requirement for one field: it has, or does not have, this value."""

    field: str
    value: str
    equal: bool = True

    def __str__(self) -> str:
        escaped = re.sub(r"([\\,=])", r"\\\1", self.value)
        return f"{self.field}{'=' if self.equal else '!='}{escaped}"


class FieldSelector(msgspec.Struct, frozen=True):
    """A field selector: equality on the fields that a kind supports.

    `str()` returns the API's parameter `fieldSelector`.
    """

    requirements: tuple[FieldRequirement, ...] = ()

    def __str__(self) -> str:
        return ",".join(str(requirement) for requirement in self.requirements)

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> "FieldSelector":
        """Return the selector of objects whose fields have these values."""
        return cls(tuple(FieldRequirement(field, value) for field, value in fields.items()))

    @classmethod
    def parse(cls, text: str) -> "FieldSelector":
        r"""Read the text form: `spec.nodeName=a,metadata.name!=b`; `\` escapes `\,=`.

        Raises:
            ConfigError: A part is not a comparison.
        """
        return cls(tuple(_field_requirement(part, text) for part in _split_fields(text)))

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Return whether fields, by their paths, match all requirements."""
        return all(
            (fields.get(wanted.field, "") == wanted.value) is wanted.equal
            for wanted in self.requirements
        )


_COMPARISONS: Final = {
    "=": Operator.IN,
    "==": Operator.IN,
    "!=": Operator.NOT_IN,
    ">": Operator.GREATER_THAN,
    "<": Operator.LESS_THAN,
}
_SETS: Final = {"in": Operator.IN, "notin": Operator.NOT_IN}


class _Parser:
    """Recursive descent over the tokens of a label selector."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [match[1] for match in _TOKEN.finditer(text)]
        self._at = 0

    def requirements(self) -> Iterator[Requirement]:
        if not self._tokens:
            return
        while True:
            yield self._requirement()
            if self._peek() is None:
                return
            self._expect(",")

    def _requirement(self) -> Requirement:
        if self._peek() == "!":
            self._next()
            return Requirement(self._word("a label"), Operator.DOES_NOT_EXIST)
        key = self._word("a label")
        found = self._peek()
        if found is None or found == ",":
            return Requirement(key, Operator.EXISTS)
        if found in _COMPARISONS:
            return self._compared(key, _COMPARISONS[found])
        if found in _SETS:
            return self._one_of(key, _SETS[found])
        raise self._error("a comparison")

    def _compared(self, key: str, operator: Operator) -> Requirement:
        self._next()
        # An empty value is allowed: `key=` selects the empty string.
        value = "" if self._peek() in {None, ","} else self._word("a value")
        return Requirement(key, operator, (value,))

    def _one_of(self, key: str, operator: Operator) -> Requirement:
        self._next()
        self._expect("(")
        values = [self._listed_value()]
        while self._peek() == ",":
            self._next()
            values.append(self._listed_value())
        self._expect(")")
        return Requirement(key, operator, tuple(values))

    def _listed_value(self) -> str:
        return "" if self._peek() in {",", ")"} else self._word("a value")

    def _word(self, what: str) -> str:
        token = self._peek()
        if token is None or token in {"=", "==", "!=", "!", "(", ")", ",", "<", ">"}:
            raise self._error(what)
        self._next()
        return token

    def _expect(self, token: str) -> None:
        if self._peek() != token:
            raise self._error(f"{token!r}")
        self._next()

    def _peek(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _next(self) -> None:
        self._at += 1

    def _error(self, wanted: str) -> ConfigError:
        before = "".join(self._tokens[: self._at])
        place = f"after {before!r}" if before else "at the beginning"
        found = self._peek()
        there = "it ends" if found is None else f"there is {found!r}"
        return ConfigError("label_selector", self._text, f"{place} {there} instead of {wanted}")


def _operator(entry: LabelSelectorRequirement) -> Operator:
    try:
        operator = Operator(entry.operator)
    except ValueError:
        operator = Operator.GREATER_THAN
    if operator in {Operator.GREATER_THAN, Operator.LESS_THAN}:
        rule = "it must be one of In, NotIn, Exists, DoesNotExist"
        raise ConfigError(f"operator of {entry.key}", entry.operator, rule)
    return operator


def _check_key(key: str) -> None:
    prefix, slash, name = key.rpartition("/")
    if slash and not (_PREFIX.fullmatch(prefix) and len(prefix) <= 253):
        raise ConfigError("label", key, "the part before the slash must be a DNS name")
    if not _NAME.fullmatch(name):
        raise ConfigError("label", key, f"the name must be {_WORD}")


def _check_value(key: str, value: str) -> None:
    if value and not _NAME.fullmatch(value):
        raise ConfigError(f"label {key}", value, f"the value must be empty or {_WORD}")


def _is_integer(value: str | None) -> bool:
    return value is not None and re.fullmatch(r"[+-]?[0-9]+", value) is not None


def _split_fields(text: str) -> Sequence[str]:
    return [part for part in re.split(r"(?<!\\),", text) if part.strip()]


def _field_requirement(part: str, text: str) -> FieldRequirement:
    match = re.fullmatch(r"\s*([^=!\\]+?)\s*(!=|==|=)((?:[^\\=,]|\\.)*)", part)
    if match is None:
        raise ConfigError("field_selector", text, f"{part!r} does not have the form field=value")
    field, operator, value = match.groups()
    return FieldRequirement(field, re.sub(r"\\(.)", r"\1", value), equal=operator != "!=")


_CONTRADICTION: Final = "nothing"
_NOTHING: Final = Selector(
    (
        # Two requirements that exclude each other. apimachinery formats "nothing" as an
        # empty text, which would select everything when it is sent to the server.
        Requirement(_CONTRADICTION, Operator.EXISTS),
        Requirement(_CONTRADICTION, Operator.DOES_NOT_EXIST),
    )
)
