"""Run an admission webhook for a case: a TLS server, and its registration."""

import base64
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from tests.cases.case import Case
from tests.cases.waiting import wait_for

from navarchos.client import ApiError, PatchType
from navarchos.stopping import StopToken
from navarchos.testing.controlplane.credentials import Authority
from navarchos.testing.controlplane.layout import HOST
from navarchos.threads import ThreadGroup
from navarchos.tls import close_dropped_sockets

__all__ = ["EVICTIONS", "POD_DELETIONS", "Allow", "Break", "Deny", "Hang", "Webhook", "webhook"]

JsonObject = dict[str, Any]

EVICTIONS: Final = ("CREATE", "pods/eviction")
POD_DELETIONS: Final = ("DELETE", "pods")

_LATE: Final = 20.0


@dataclass(frozen=True)
class Allow:
    """Allow every request."""


@dataclass(frozen=True)
class Deny:
    """Deny every request with this reason."""

    message: str
    code: int = 403


@dataclass(frozen=True)
class Break:
    """Answer with an HTTP status and without a review."""

    status: int = 500


@dataclass(frozen=True)
class Hang:
    """Accept the request and do not answer."""


Behaviour = Allow | Deny | Break | Hang


class Webhook:
    """Decides on requests and counts them.

    Threads: safe from any thread; the behaviour is one reference.

    Attributes:
        behaviour: The answer to requests from now on.
        name: The name in errors of the API server.
    """

    def __init__(self, case: Case, asked: tuple[str, str]) -> None:
        self.behaviour: Behaviour = Allow()
        self.name = f"{case.name}.webhooks.test"
        self._case = case
        self._asked = asked
        self._over = StopToken()

    def register(self, url: str, authority: bytes, *, policy: str, seconds: int) -> None:
        """Register the webhook; return when the API server calls it."""
        operation, resource = self._asked
        rule = {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": [operation],
            "resources": [resource],
        }
        ours = {
            "name": self.name,
            "rules": [rule],
            "clientConfig": {"url": url, "caBundle": base64.b64encode(authority).decode()},
            # Only for this case, because others run beside it.
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self._case.name}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "failurePolicy": policy,
            "timeoutSeconds": seconds,
        }
        configuration = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": self.name},
            "webhooks": [ours],
        }
        self._case.target.create(configuration)
        self.behaviour = Deny("a dry run")
        wait_for("the API server to call the webhook", self._is_asked)

    def fail(self, policy: str) -> None:
        """Change the failure policy of the webhook."""
        path = [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": policy}]
        self._registrations.patch(self.name, path, type=PatchType.JSON)

    def withdraw(self) -> None:
        """Remove the registration and release requests that wait for an answer."""
        self._registrations.delete(self.name)
        self._over.stop("the webhook is withdrawn")

    def answer(self, review: JsonObject) -> JsonObject | int | None:
        """Return the answer to a review: an HTTP status, a review, or `None` for no answer."""
        behaviour = self.behaviour
        match behaviour:
            case Break(status):
                return status
            case Hang():
                self._over.wait(_LATE)
                return None
        request = review["request"]
        response: JsonObject = {"uid": request["uid"], "allowed": isinstance(behaviour, Allow)}
        if isinstance(behaviour, Deny):
            response["status"] = {"message": behaviour.message, "code": behaviour.code}
        return {**review, "request": None, "response": response}

    @property
    def _registrations(self) -> Any:
        return self._case.target.of("ValidatingWebhookConfiguration")

    def _is_asked(self) -> bool:
        pods = self._case.target.of("Pod")
        try:
            if self._asked == EVICTIONS:
                pods.evict("missing", self._case.name, dry_run=True)
            else:
                pods.delete(self._case.pods()[0]["metadata"]["name"], self._case.name, dry_run=True)
        except ApiError as error:
            return "a dry run" in error.message
        return False


@contextmanager
def webhook(
    case: Case,
    directory: Path,
    asked: tuple[str, str] = EVICTIONS,
    *,
    policy: str = "Fail",
    seconds: int = 10,
) -> Iterator[Webhook]:
    """Register a webhook for the pods of a case. It denies requests at first."""
    authority = Authority(directory)
    pair = authority.issue_server("webhook", [HOST])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    hook = Webhook(case, asked)
    threads = ThreadGroup("webhook", stop=StopToken())
    with _Server((HOST, 0), _handler(hook)) as server:
        # The TLS handshake runs on the thread of the connection, not on the accepting one.
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
        threads.start("", lambda: server.serve_forever(poll_interval=0.05))
        try:
            url = f"https://{HOST}:{server.server_port}/"
            bundle = authority.files.certificate.read_bytes()
            hook.register(url, bundle, policy=policy, seconds=seconds)
            yield hook
        finally:
            hook.withdraw()
            server.shutdown()
            assert threads.join(_LATE), threads.running()


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # closing joins them

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError as error:
            close_dropped_sockets(error)
            raise


def _handler(hook: Webhook) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _LATE

        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = hook.answer(review)
            if isinstance(answer, int):
                self.send_error(answer)
            elif answer is not None:
                body = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's
            """Log nothing."""

    return Handler
