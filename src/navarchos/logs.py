"""Structured logging: names of fields, and nothing installed.

The library only asks for loggers. Where lines go and how they look is the
application's choice; `configure()` is what our own command line chooses.
"""

import logging
import sys
import traceback
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, Literal, TextIO, cast

import structlog

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger, Processor

__all__ = ["LEVELS", "LogFormat", "bound", "configure", "get_logger", "traceback_of"]

LogFormat = Literal["json", "console"]
LEVELS: Final = ("debug", "info", "warning", "error")

_WITHOUT_VARIABLES: Final = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)


def get_logger(name: str) -> "FilteringBoundLogger":
    """Return a logger whose lines carry the module's name as `module`."""
    return cast("FilteringBoundLogger", structlog.get_logger(module=name))


def traceback_of(error: BaseException) -> str:
    """Return the text of a traceback, for the field `exception` of a log line.

    For errors that may come in quick succession: structlog as it is before anybody has
    configured it draws a traceback with all local variables, where the package `rich` is
    installed, which takes a tenth of a second for each.
    """
    return "".join(traceback.format_exception(error))


def bound(**fields: object) -> AbstractContextManager[None]:
    """Return a context in which every log line of this thread carries `fields`."""
    return structlog.contextvars.bound_contextvars(**fields)


def configure(
    *, level: str = "info", style: LogFormat = "json", stream: TextIO | None = None
) -> None:
    """Send the log lines of this process to a stream. For applications only.

    Promises: the traceback of an exception shows where, never what its local variables
    hold: objects of a cluster are among them, and tokens.

    Args:
        level: The least severe level that is shown; one of `LEVELS`.
        style: `json` for machines, `console` for people.
        stream: Where to; standard error by default.
    """
    renderer: list[Processor] = (
        [
            structlog.processors.ExceptionRenderer(_WITHOUT_VARIABLES),
            structlog.processors.JSONRenderer(),
        ]
        if style == "json"
        else [
            structlog.dev.ConsoleRenderer(
                colors=(stream or sys.stderr).isatty(),
                exception_formatter=structlog.dev.plain_traceback,
            )
        ]
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.PrintLoggerFactory(stream or sys.stderr),
        cache_logger_on_first_use=True,
    )
