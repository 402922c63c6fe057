"""Structured logging.

The library only creates loggers. The application chooses the destination and the format of
the lines; `configure()` is the choice of our command line. Field names are the same
everywhere: `error`, and `kind`, `namespace` and `name` for an object.
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
    """Return a logger whose lines have the module's name in the field `module`."""
    return cast("FilteringBoundLogger", structlog.get_logger(module=name))


def traceback_of(error: BaseException) -> str:
    """Return the text of a traceback, for the field `exception` of a log line.

    For errors that may occur in quick succession. If structlog is not configured and the
    package `rich` is installed, structlog formats tracebacks with all local variables,
    which takes a tenth of a second for each.
    """
    return "".join(traceback.format_exception(error))


def bound(**fields: object) -> AbstractContextManager[None]:
    """Return a context in which each log line of this thread has these fields."""
    return structlog.contextvars.bound_contextvars(**fields)


def configure(
    *, level: str = "info", style: LogFormat = "json", stream: TextIO | None = None
) -> None:
    """Send the log lines of this process to a stream. For applications only.

    Promises: tracebacks never show local variables, which may contain objects of the
    cluster and tokens.

    Args:
        level: The lowest level that is shown; one of `LEVELS`.
        style: `json`, or `console` for a terminal.
        stream: The destination; standard error by default.
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
