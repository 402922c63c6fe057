"""Types of options that Go programs have and click does not."""

from typing import Final

import click

from navarchos.runtime.durations import parse_duration

__all__ = ["ADDRESS", "DURATION", "GO_BOOL"]


class _Duration(click.ParamType[float]):
    """A Go duration (`5m`, `1h30m`, `15s`) as seconds."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        try:
            return parse_duration(str(value))
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)


class _Address(click.ParamType[str]):
    """`:8080`, `127.0.0.1:8080`, or `0` for off."""

    name = "address"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        text = str(value)
        if text in {"", "0"}:
            return "0"
        _, colon, port = text.rpartition(":")
        if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
            self.fail(f"{text!r} is no address: write host:port, :port, or 0 for off.", param, ctx)
        return text


class _GoBool(click.ParamType[bool]):
    """A Go boolean flag: `--flag`, `--flag=true`, `--flag=false`."""

    name = "bool"
    _words: Final = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> bool:
        word = self._words.get(str(value).lower())
        if word is None:
            self.fail(f"{value!r} is neither true nor false.", param, ctx)
        return word


DURATION: Final = _Duration()
ADDRESS: Final = _Address()
GO_BOOL: Final = _GoBool()
