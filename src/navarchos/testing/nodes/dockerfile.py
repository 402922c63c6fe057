"""Dockerfiles: the instructions in them, and the words and variables of an instruction.

This is the part of the language that images of programs need. Other instructions, options and
heredocs are refused, so an image never differs silently from the image that Docker builds.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from navarchos.testing.nodes.images import ImageError

__all__ = [
    "BuildStage",
    "DockerfileInvalid",
    "Instruction",
    "Keyword",
    "argument_list",
    "argument_values",
    "declarations",
    "expand",
    "is_ignored",
    "pairs",
    "read_dockerfile",
    "read_ignore_file",
    "words",
]


class Keyword(StrEnum):
    """The instructions that are understood."""

    ARG = "ARG"
    CMD = "CMD"
    COPY = "COPY"
    ENTRYPOINT = "ENTRYPOINT"
    ENV = "ENV"
    EXPOSE = "EXPOSE"
    FROM = "FROM"
    LABEL = "LABEL"
    RUN = "RUN"
    USER = "USER"
    WORKDIR = "WORKDIR"


_OPTIONS: Final = {Keyword.COPY: {"from", "chown"}}


class DockerfileInvalid(ImageError):
    """A line of a Dockerfile is wrong, or asks for something that is not supported.

    Attributes:
        line: The number of the line where the instruction begins.
        why: The cause.
    """

    def __init__(self, line: int, why: str) -> None:
        super().__init__(line, why)
        self.line = line
        self.why = why

    def __str__(self) -> str:
        return f"Dockerfile, line {self.line}: {self.why}"


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction.

    Attributes:
        line: The number of its first line.
        keyword: What it does.
        text: Everything after the keyword and the options, with continued lines joined.
        options: The options, such as `from` of `--from=build`.
    """

    line: int
    keyword: Keyword
    text: str
    options: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        options = "".join(f"--{name}={value} " for name, value in self.options.items())
        return f"{self.keyword} {options}{self.text}"

    def invalid(self, why: str) -> DockerfileInvalid:
        """Return an error at this line."""
        return DockerfileInvalid(self.line, why)


@dataclass(frozen=True, slots=True)
class BuildStage:
    """The part of a Dockerfile from one FROM to the next.

    Attributes:
        number: The number of the stage; the first one is 0.
        base: The name of an image or of an earlier stage, after the expansion of variables.
        name: The name after AS, or an empty one.
        instructions: The instructions after FROM.
    """

    number: int
    base: str
    name: str
    instructions: tuple[Instruction, ...]

    def is_called(self, name: str) -> bool:
        """Return whether a name or a number stands for this stage."""
        return name == str(self.number) or name.lower() == self.name.lower() != ""


def read_dockerfile(
    text: str, arguments: Mapping[str, str]
) -> tuple[dict[str, str], list[BuildStage]]:
    """Return the variables of all ARG before the first FROM, and the stages.

    Args:
        text: The content of the Dockerfile.
        arguments: The values of build arguments; they replace the defaults in the Dockerfile.

    Raises:
        DockerfileInvalid: A line is wrong or not supported.
    """
    variables: dict[str, str] = {}
    stages: list[BuildStage] = []
    for instruction in _instructions(text):
        if instruction.keyword is Keyword.FROM:
            base, name = _from(instruction, variables)
            stages.append(BuildStage(len(stages), base, name, ()))
        elif stages:
            last = stages[-1]
            stages[-1] = replace(last, instructions=(*last.instructions, instruction))
        elif instruction.keyword is Keyword.ARG:
            variables |= argument_values(instruction, variables, arguments)
        else:
            raise instruction.invalid(f"{instruction.keyword} stands before FROM")
    if not stages:
        raise DockerfileInvalid(1, "it has no FROM")
    return variables, stages


def _from(instruction: Instruction, variables: Mapping[str, str]) -> tuple[str, str]:
    match words(instruction, variables):
        case [base]:
            return base, ""
        case [base, as_, name] if as_.upper() == "AS":
            return base, name
        case _:
            raise instruction.invalid("FROM needs an image, and may have AS and a name")


# -- lines --------------------------------------------------------------------------------------

_DIRECTIVE: Final = re.compile(r"#\s*(syntax|escape|check)\s*=", re.IGNORECASE)
_OPTION: Final = re.compile(r"--([a-z]+)(?:=(\S*))?\s+")


def _instructions(text: str) -> list[Instruction]:
    found: list[Instruction] = []
    joined, first = "", 0
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        if line.lstrip().startswith("#"):
            if not found and not joined and _DIRECTIVE.match(line.lstrip()):
                raise DockerfileInvalid(number, "directives are not supported")
            continue
        if not line.strip():
            continue  # empty lines do not end a continued line
        first = first if joined else number
        if line.rstrip().endswith("\\"):
            joined += line.rstrip()[:-1]
            continue
        found.append(_instruction(first, (joined + line).strip()))
        joined = ""
    if joined:
        raise DockerfileInvalid(first, "the last line ends with a backslash")
    return found


def _instruction(line: int, text: str) -> Instruction:
    name, _, rest = text.partition(" ")
    try:
        keyword = Keyword(name.upper())
    except ValueError:
        raise DockerfileInvalid(line, f"{name} is not supported") from None
    rest, options = rest.strip(), {}
    while found := _OPTION.match(rest):
        option, value = found.groups()
        if option not in _OPTIONS.get(keyword, ()) or not value:
            raise DockerfileInvalid(line, f"{keyword} --{option} is not supported")
        options[option] = value
        rest = rest[found.end() :]
    if not rest:
        raise DockerfileInvalid(line, f"{keyword} needs an argument")
    if keyword in {Keyword.RUN, Keyword.COPY} and re.search(r"(?<!<)<<-?[\"'A-Za-z]", rest):
        raise DockerfileInvalid(line, "heredocs are not supported")
    return Instruction(line, keyword, rest, options)


# -- words and variables ------------------------------------------------------------------------

_VARIABLE: Final = re.compile(
    r"\$(?:(?P<plain>\w+)|\{(?P<name>\w+)(?:(?P<how>:[-+])(?P<other>[^}]*))?\})"
)


def expand(instruction: Instruction, text: str, variables: Mapping[str, str]) -> str:
    """Return a text without quotes, with the values of `$NAME` and `${NAME:-default}`.

    As in a shell, single quotes keep their content as it is, and an unknown variable is empty.

    Raises:
        DockerfileInvalid: A quote or a brace is not closed.
    """
    made: list[str] = []
    position, quote = 0, ""
    while position < len(text):
        character = text[position]
        following = text[position + 1 : position + 2]
        if character == "\\" and quote != "'" and following and (not quote or following in '"$\\'):
            made.append(following)
            position += 2
        elif character == quote or (not quote and character in "\"'"):
            quote = "" if quote else character
            position += 1
        elif character == "$" and quote != "'" and (found := _VARIABLE.match(text, position)):
            made.append(_value(instruction, found, variables))
            position = found.end()
        elif character == "$" and quote != "'" and following == "{":
            raise instruction.invalid(f"{text[position:]} is not a variable")
        else:
            made.append(character)
            position += 1
    if quote:
        raise instruction.invalid(f"a quote is not closed in {text}")
    return "".join(made)


def _value(instruction: Instruction, found: re.Match[str], variables: Mapping[str, str]) -> str:
    value = variables.get(found["plain"] or found["name"], "")
    match found["how"]:
        case ":-":
            return value or expand(instruction, found["other"], variables)
        case ":+":
            return expand(instruction, found["other"], variables) if value else ""
        case _:
            return value


def words(instruction: Instruction, variables: Mapping[str, str]) -> list[str]:
    """Return the words of an instruction, expanded.

    Raises:
        DockerfileInvalid: A quote or a brace is not closed.
    """
    return [expand(instruction, word, variables) for word in _split(instruction.text)]


def _split(text: str) -> list[str]:
    """Return the words of a text, which may have spaces in quotes, as they are written."""
    return re.findall(r"(?:[^\s\"'\\]|\\.|\"(?:[^\"\\]|\\.)*(?:\"|$)|'[^']*(?:'|$)|\\$)+", text)


def pairs(instruction: Instruction, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the names and values of ENV or LABEL.

    Args:
        instruction: The instruction.
        variables: The variables before it; names that it sets itself are not visible in it.

    Raises:
        DockerfileInvalid: A word is not a pair.
    """
    found = {}
    for name, value in declarations(instruction, variables).items():
        if value is None:
            raise instruction.invalid(f"{name} is not NAME=VALUE")
        found[name] = value
    return found


def declarations(instruction: Instruction, variables: Mapping[str, str]) -> dict[str, str | None]:
    """Return the names and defaults of ARG; the value is `None` if a name stands alone.

    Raises:
        DockerfileInvalid: A name is empty, or a quote or a brace is not closed.
    """
    found: dict[str, str | None] = {}
    for word in _split(instruction.text):
        name, equals, value = word.partition("=")
        if not name:
            raise instruction.invalid(f"{word} has no name")
        found[expand(instruction, name, variables)] = (
            expand(instruction, value, variables) if equals else None
        )
    return found


def argument_values(
    instruction: Instruction, variables: Mapping[str, str], arguments: Mapping[str, str]
) -> dict[str, str]:
    """Return the values that ARG gives to its variables; without any value, a name is left out.

    Args:
        instruction: The instruction.
        variables: The variables before it.
        arguments: The values of build arguments, which replace defaults.
    """
    declared = declarations(instruction, variables)
    values = {name: arguments.get(name, default) for name, default in declared.items()}
    return {name: value for name, value in values.items() if value is not None}


def argument_list(instruction: Instruction) -> tuple[str, ...]:
    """Return the arguments of RUN, CMD or ENTRYPOINT; the shell form is a command of the shell.

    Variables are not expanded: the shell does it.
    """
    try:
        form = json.loads(instruction.text)
    except ValueError:
        form = None  # the shell form
    if isinstance(form, list) and form and all(isinstance(word, str) for word in form):
        return tuple(form)
    return ("/bin/sh", "-c", instruction.text)


# -- the context --------------------------------------------------------------------------------


def read_ignore_file(context: Path) -> list[tuple[re.Pattern[str], bool]]:
    """Return the patterns of `.dockerignore` and whether each one leaves files out.

    Without this file there are no patterns.
    """
    file = context / ".dockerignore"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    found = []
    for line in (line.strip() for line in lines):
        if line and not line.startswith("#"):
            pattern = line.removeprefix("!").strip("/")
            found.append((_pattern(pattern), not line.startswith("!")))
    return found


_WILDCARDS: Final = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def _pattern(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    # A pattern for a folder is one for everything in it, too.
    return re.compile("".join(_WILDCARDS.get(part, re.escape(part)) for part in parts) + "(?:/.*)?")


def is_ignored(name: str, patterns: list[tuple[re.Pattern[str], bool]]) -> bool:
    """Return whether a file of the context is left out: the last pattern that fits decides."""
    fitting = [leaves_out for pattern, leaves_out in patterns if pattern.fullmatch(name)]
    return bool(fitting) and fitting[-1]
