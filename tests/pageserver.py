"""A real HTTP server on loopback that answers as an exporter does, or as none should."""

import contextlib
import gzip
import ssl
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


@dataclass
class Answer:
    """What a path is answered with.

    Attributes:
        body: the page; a text is sent as UTF-8.
        held: where it is set, the answer waits for that event after its headers.
        claims: length in the header; None is the true one.
    """

    body: str | bytes = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    held: threading.Event | None = None
    claims: int | None = None

    @classmethod
    def packed(cls, page: str, encoding: str | None = "gzip") -> "Answer":
        headers = {} if encoding is None else {"Content-Encoding": encoding}
        return cls(gzip.compress(page.encode()), headers=headers)


class PageServer:
    """Answers by path; use it as a context manager.

    Attributes:
        answers: by path; may be changed at any time. A list is used up but for its last.
        requests: `(path, headers)` of each request, in their order.
    """

    def __init__(self, answers=None, *, tls: tuple | None = None) -> None:
        self.answers: dict[str, Answer | list[Answer]] = dict(answers or {})
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.came = threading.Semaphore(0)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.scheme = "http"
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self.scheme = "https"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def instance(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    def url(self, path: str = "/metrics") -> str:
        return f"{self.scheme}://{self.instance}{path}"

    def wait_for_requests(self, many: int) -> None:
        for _ in range(many):
            assert self.came.acquire(timeout=30), "no more requests come"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _next(self, path: str) -> Answer:
        answer = self.answers.get(path.partition("?")[0], Answer("no such page", 404))
        if isinstance(answer, list):
            return answer.pop(0) if len(answer) > 1 else answer[0]
        return answer

    def _handler(server) -> type[BaseHTTPRequestHandler]:  # noqa: N805 - `self` is the handler's
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                with contextlib.suppress(OSError):  # who asked has left
                    self._answer()

            def _answer(self) -> None:
                server.requests.append((self.path, dict(self.headers)))
                answer = server._next(self.path)
                body = answer.body if isinstance(answer.body, bytes) else answer.body.encode()
                self.send_response(answer.status)
                self.send_header(
                    "Content-Length", str(len(body) if answer.claims is None else answer.claims)
                )
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                server.came.release()
                if answer.held is not None:
                    answer.held.wait(60)
                self.wfile.write(body)
                if answer.claims is not None:
                    self.close_connection = True

            def log_message(self, *_: object) -> None:
                pass

        return Handler
