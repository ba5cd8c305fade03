"""A proxy before an HTTP service, which answers 503, waits, or cuts the connection, as often as it is told to."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

Fault = Literal["503", "403", "wait", "cut", "lose the answer", "half an answer"]
WAIT_S = 3.0


@dataclass(slots=True)
class _Plan:
    method: str
    part: str
    fault: Fault
    times: int


class Proxy(ThreadingHTTPServer):
    """Passes requests on to a port; ``fail`` plans faults, ``answered`` are the methods and paths that came through."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, target: int) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.target = target
        self.answered: list[str] = []
        self._plans: list[_Plan] = []
        self._lock = threading.Lock()
        self.closed = threading.Event()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def fail(self, method: str, fault: Fault, *, part: str = "", times: int = 1) -> None:
        """Let the next requests with this method, and this text in the path, meet a fault."""
        self._plans.append(_Plan(method, part, fault, times))

    def fault_of(self, method: str, path: str) -> Fault | None:
        with self._lock:
            for plan in self._plans:
                if plan.times and plan.method == method and plan.part in path:
                    plan.times -= 1
                    return plan.fault
        return None

    def handle_error(self, *_: object) -> None:
        """A client that has gone away is part of the tests."""


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def do_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = self.server.fault_of(self.command, self.path)
        if fault == "wait":
            self.server.closed.wait(WAIT_S)
        if fault == "cut":
            self.close_connection = True
        elif fault in ("503", "403"):
            self.answer(int(fault), [], b"<Error><Code>Planned</Code></Error>")
        else:
            status, headers, data = self.pass_on(body)
            if fault == "lose the answer":
                self.close_connection = True
            else:
                self.server.answered.append(f"{self.command} {self.path}")
                self.answer(status, headers, data, cut=fault == "half an answer")

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_any  # noqa: N815

    def pass_on(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.target, timeout=60)
        try:
            upstream.request(self.command, self.path, body, dict(self.headers))
            answer = upstream.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            upstream.close()

    def answer(self, status: int, headers: list[tuple[str, str]], data: bytes, *, cut: bool = False) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                self.send_header(name, value)
        length = {name.lower(): value for name, value in headers}.get("content-length", str(len(data)))
        self.send_header("Content-Length", length if self.command == "HEAD" else str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if cut else data)
        self.close_connection = self.close_connection or cut


@contextmanager
def proxy_before(port: int) -> Iterator[Proxy]:
    proxy = Proxy(port)
    thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield proxy
    finally:
        proxy.closed.set()
        proxy.shutdown()
        proxy.server_close()
        thread.join(60)
