"""The content of log lines, and the facts that they must not contain."""

import io
import json
from collections.abc import Iterator
from typing import get_args

import pytest
import structlog

from navarchos import logs
from navarchos.logs import LogFormat


@pytest.fixture(autouse=True)
def _configuration() -> Iterator[None]:
    """Restore the log configuration of the process."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


_PARTS = ("s3cr3t", "t0ken")
"""A text that is not in any line of source, and therefore not in a traceback."""


def _fail(token: str) -> None:
    raise ValueError("no such cluster")


def _line_of_a_failure(style: LogFormat) -> str:
    stream = io.StringIO()
    logs.configure(style=style, stream=stream)
    try:
        _fail("-".join(_PARTS))
    except ValueError:
        logs.get_logger(__name__).exception("request_failed", tries=3)
    return stream.getvalue()


@pytest.mark.parametrize("style", get_args(LogFormat))
def test_a_traceback_has_places_and_no_variables(style: LogFormat) -> None:
    line = _line_of_a_failure(style)

    assert "-".join(_PARTS) not in line
    assert "no such cluster" in line
    assert "_fail" in line


def test_a_json_line_is_one_object_with_its_fields() -> None:
    line = json.loads(_line_of_a_failure("json"))

    assert line["event"] == "request_failed"
    assert line["tries"] == 3
    assert line["exception"][0]["exc_type"] == "ValueError"
