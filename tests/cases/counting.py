"""Count the requests of a server."""

from navarchos.testing.apiserver import ApiServer

__all__ = ["status_writes"]


def status_writes(server: ApiServer, plural: str) -> int:
    """Return the number of status patches of a kind among the latest 10,000 requests."""
    return sum(
        (record.verb, record.resource, record.subresource) == ("patch", plural, "status")
        for record in server.audit
    )
