"""Waiting for kinds that the server does not serve yet (OP-61, CT-18)."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from navarchos.client import Client, ClientError, Resource
from navarchos.logs import get_logger
from navarchos.stopping import StopToken

__all__ = ["wait_for_kinds"]

_log = get_logger(__name__)

_RETRY: Final = 5.0


def wait_for_kinds(
    client: Client,
    wanted: Callable[[], Iterable[Resource[Any]]],
    *,
    tell: Callable[[str], None],
    hint: str,
    stop: StopToken,
) -> None:
    """Return when the server serves every kind. One warning per set of missing ones.

    Args:
        client: Asks the server.
        wanted: Returns the kinds; asked each time, since more may be wanted by then.
        tell: Called with what is waited for.
        hint: What a person can do, for the log.
        stop: Ends the wait.

    Raises:
        Stopped: `stop` was set first.
    """
    warned = ""
    while waiting_for := _missing(client, wanted()):
        tell(waiting_for)
        if waiting_for != warned:
            _log.warning("waiting_for_kinds", why=waiting_for, hint=hint)
            warned = waiting_for
        stop.wait(_RETRY)
        stop.raise_if_set()


def _missing(client: Client, wanted: Iterable[Resource[Any]]) -> str:
    by_name = {str(resource): resource for resource in wanted}
    try:
        missing = [name for name, resource in by_name.items() if not client.has_kind(resource)]
    except ClientError as error:
        return f"the server does not say which kinds it knows: {error}"
    return f"the server does not know {', '.join(missing)}" if missing else ""
