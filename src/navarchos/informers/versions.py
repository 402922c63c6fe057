"""The one place that compares resourceVersions."""

__all__ = ["is_at_least"]


def is_at_least(version: str, floor: str) -> bool | None:
    """Tell whether a state at `version` contains everything up to `floor`.

    To clients a resourceVersion was long an opaque string, and the reflector still
    treats it as one. Here it is compared as an integer, as client-go's mutation
    cache and leader of consistent reads do, because that is what it is: the
    revision of etcd, one counter for all objects of a resource. Kubernetes 1.35
    makes it official (KEP-5504): versions of one resource from one server are
    decimal integers and comparable. Both arguments must be from one resource.

    Returns:
        `None` if either is no such integer, as with a foreign aggregated API:
        nothing can be said then.
    """
    digits = version + floor
    if not (version and floor and digits.isascii() and digits.isdecimal()):
        return None
    return int(version) >= int(floor)
