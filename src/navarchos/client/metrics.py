"""The metrics of a client, with the names of client-go (MT-07, MT-08)."""

from typing import Final

from navarchos.instrument import Instruments

__all__ = ["RequestMetrics"]

_SECONDS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
_BYTES: Final = (
    *(64, 256, 512, 1_024, 4_096, 16_384, 65_536),
    *(262_144, 1_048_576, 4_194_304, 16_777_216),
)


class RequestMetrics:
    """The metrics of one client's requests. No label contains the name of an object.

    With `Instruments(detailed=True)` also the durations of requests and of look-ups of the
    host's name, and the sizes of requests and responses.

    Threads: safe from any thread.
    """

    def __init__(self, instruments: Instruments, host: str) -> None:
        self._host = host
        by_verb = ("verb", "host")
        self._requests = instruments.counter(
            "rest_client_requests_total",
            "Requests to the API server, by status code",
            ("code", "method", "host"),
        )
        self._durations = instruments.histogram(
            "navarchos_client_request_duration_seconds",
            "Seconds until the response was complete; for watches, until it began",
            ("verb", "resource", "code"),
            buckets=_SECONDS,
        )
        self._retries = instruments.counter(
            "rest_client_request_retries_total",
            "Repeated requests to the API server, by the status code of the repeat",
            ("code", "verb", "host"),
        )
        self._throttled = instruments.histogram(
            "rest_client_rate_limiter_duration_seconds",
            "Seconds that requests waited for the rate limit of this client",
            by_verb,
            buckets=_SECONDS,
        )
        self.is_detailed: Final = instruments.detailed
        if not self.is_detailed:
            return
        self._seconds = instruments.histogram(
            "rest_client_request_duration_seconds",
            "Seconds until the response was complete; for watches, until it began",
            by_verb,
            buckets=_SECONDS,
        )
        self._resolved = instruments.histogram(
            "rest_client_dns_resolution_duration_seconds",
            "Seconds for looking up the name of the API server",
            ("host",),
            buckets=_SECONDS,
        ).labels(host)
        self._sent = instruments.histogram(
            "rest_client_request_size_bytes", "Bytes in request bodies", by_verb, buckets=_BYTES
        )
        self._received = instruments.histogram(
            "rest_client_response_size_bytes",
            "Bytes in response bodies, without streams",
            by_verb,
            buckets=_BYTES,
        )

    def waited(self, method: str, seconds: float) -> None:
        """Record a wait for the client's own rate limit."""
        self._throttled.labels(method, self._host).observe(seconds)

    def tried(
        self, method: str, verb: str, resource: str, *, code: str, seconds: float, again: bool
    ) -> None:
        """Count a completed or failed request."""
        self._requests.labels(code, method, self._host).inc()
        self._durations.labels(verb, resource, code).observe(seconds)
        if again:
            self._retries.labels(code, method, self._host).inc()
        if self.is_detailed:
            self._seconds.labels(method, self._host).observe(seconds)

    def sized(self, method: str, *, sent: int, received: int | None) -> None:
        """Record sizes, if detailed; `received` is `None` for a stream."""
        if self.is_detailed:
            self._sent.labels(method, self._host).observe(sent)
            if received is not None:
                self._received.labels(method, self._host).observe(received)

    def resolved(self, seconds: float) -> None:
        """Record a look-up of the host's name."""
        if self.is_detailed:
            self._resolved.observe(seconds)
