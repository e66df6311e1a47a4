"""A real S3 over HTTP on the loopback address, which can be told to misbehave.

moto answers. Requests are carried out one at a time, because S3's conditional writes are atomic and
moto looks first and writes then.
"""

import logging
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import BaseWSGIServer, make_server

_TROUBLE = b"<Error><Code>InternalError</Code><Message>We failed\nYou</Message></Error>"


@dataclass
class Fault:
    """What happens to the next requests of a kind."""

    method: str
    part: str = ""
    """Of the path and the query."""
    answer: Literal["none"] | int = "none"
    """HTTP status; "none": the connection is closed without one."""
    carried_out: bool = False
    """Whether the request is carried out all the same."""
    code: str = "InternalError"
    after: int = 0
    """How many of them pass before."""
    times: int = 1

    def befalls(self, environ: dict[str, Any]) -> bool:
        """Whether this request is one of them; counts."""
        target = f"{environ['PATH_INFO']}?{environ['QUERY_STRING']}"
        if environ["REQUEST_METHOD"] != self.method or self.part not in target:
            return False
        if self.after or not self.times:
            self.after = max(0, self.after - 1)
            return False
        self.times -= 1
        return True


class S3Server:
    """The server; `environment` is what a client needs to know of it."""

    bucket = "store"

    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._one_at_a_time = threading.Lock()
        self._server: BaseWSGIServer = make_server(
            "127.0.0.1", 0, self._answer, threaded=True, request_handler=MotoRequestHandler
        )
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.faults: list[Fault] = []
        self.ignores_conditions = False
        """As servers do that do not know If-None-Match and If-Match."""
        self.requests: list[str] = []
        """Of all that were carried out, "METHOD /path"."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "AKIDTESTTESTTEST",
            "AWS_SECRET_ACCESS_KEY": "a-secret-that-nothing-may-show",
            "AWS_REGION": "us-east-1",
        }

    def start(self) -> None:
        self._thread.start()
        request = urllib.request.Request(f"{self.url}/{self.bucket}", method="PUT")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        opener.open(request, timeout=60).close()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def misbehave(self, fault: Fault) -> Fault:
        self.faults.append(fault)
        return fault

    def _answer(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        fault = next((fault for fault in self.faults if fault.befalls(environ)), None)
        if fault is None:
            return self._carried_out(environ, start_response)
        if fault.carried_out:
            self._carried_out(environ, lambda *_: None)
        else:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        if fault.answer == "none":
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionResetError
        body = _TROUBLE.replace(b"InternalError", fault.code.encode())
        start_response(f"{fault.answer} Fault", [("Content-Length", str(len(body)))])
        return [body]

    def _carried_out(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        if self.ignores_conditions:
            environ.pop("HTTP_IF_NONE_MATCH", None)
            environ.pop("HTTP_IF_MATCH", None)
        with self._one_at_a_time:
            self.requests.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}")
            return list(self._moto(environ, start_response))
