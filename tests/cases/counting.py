"""How often a server was asked for something."""

from navarchos.testing.apiserver import ApiServer

__all__ = ["status_writes"]


def status_writes(server: ApiServer, plural: str) -> int:
    """Return how many patches of the status of this kind there have been, of the latest 10,000."""
    return sum(
        (record.verb, record.resource, record.subresource) == ("patch", plural, "status")
        for record in server.audit
    )
