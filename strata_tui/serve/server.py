"""The HTTP server: GET /v1/models, POST /v1/chat/completions, GET /health."""

from __future__ import annotations

import hmac
import select
import socket
import sys
import threading
import time
import uuid
from collections.abc import Generator
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from itertools import chain
from typing import Any
from urllib.parse import urlsplit

from ..engine.events import FinishReason, ModelInfo, PromptProgress, ReplyDone, TextDelta
from ..parameters import Layers
from . import answers
from .desk import Asked, Desk, ReplyEvent
from .requests import BadRequest, Request, request_of
from .stops import Stops

MOST_BYTES = 32 << 20  # of a body


class Server(ThreadingHTTPServer):
    """One thread a connection; the desk puts the replies in a row. `key` empty: none is asked for."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], desk: Desk, model: ModelInfo, layers: Layers, key: str) -> None:
        """Raises OSError where the address cannot be had."""
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, Handler)
        self.desk = desk
        self.model = model
        self.layers = layers
        self.key = key
        self.created = int(time.time())
        self.only_here = is_loopback(address[0])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no error; anything else is the default's to tell."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can reach that address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class Handler(BaseHTTPRequestHandler):
    """Answers one request after the other of a connection."""

    protocol_version = "HTTP/1.1"
    server_version = "strata-tui"
    sys_version = ""
    timeout = 60.0  # of a connection that says nothing
    server: Server

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is told of single requests."""

    def do_GET(self) -> None:
        """Models, and whether the server is there."""
        if not self._allowed():
            return
        path = self.path.partition("?")[0].rstrip("/")
        if path in ("/v1/models", "/models"):
            self._say(200, answers.models(self.server.model, self.server.created))
        elif path in ("/health", "/v1/health"):
            self._say(200, {"status": "ok"})
        else:
            self._unknown()

    def do_POST(self) -> None:
        """A reply."""
        body = self._body()
        if body is None or not self._allowed():
            return
        if self.path.partition("?")[0].rstrip("/") not in ("/v1/chat/completions", "/chat/completions"):
            self._unknown()
            return
        try:
            request = request_of(body, self.server.model)
        except BadRequest as error:
            self._refuse(400, str(error), error.param, error.code)
            return
        sampling = self.server.layers.sampling(self.server.model, request.options)
        asked = self.server.desk.ask(request, sampling, self._client_is_there)
        answer = answers.Answer(f"chatcmpl-{uuid.uuid4().hex}", int(time.time()), self.server.model.name)
        if request.stream:
            self._stream(request, answer, asked)
        else:
            self._whole(request, answer, asked)

    # Replies

    def _whole(self, request: Request, answer: answers.Answer, asked: Asked) -> None:
        written = {"content": "", "reasoning_content": ""}
        with closing(_with_stops(asked, request)) as events:
            for event in events:
                if isinstance(event, TextDelta):
                    written[_field(event)] += event.text
                elif isinstance(event, ReplyDone):
                    if not self._failed(event):
                        finish = answers.FINISH.get(event.reason, "stop")
                        thinking = written["reasoning_content"]
                        self._say(200, answer.whole(written["content"], thinking, finish, event.stats))
                    return
        self.close_connection = True

    def _stream(self, request: Request, answer: answers.Answer, asked: Asked) -> None:
        self.close_connection = True  # the stream ends with the connection
        with closing(_with_stops(asked, request)) as events:
            first = next(events, None)
            if first is None or (isinstance(first, ReplyDone) and self._failed(first)):
                return
            self._head(200, "text/event-stream", None)
            self._event(answer.piece({"role": "assistant", "content": ""}))
            for event in chain((first,), events):
                self._piece(event, request, answer)

    def _piece(self, event: ReplyEvent, request: Request, answer: answers.Answer) -> None:
        if isinstance(event, TextDelta):
            self._event(answer.piece({_field(event): event.text}))
        elif isinstance(event, PromptProgress):
            self._line(f": reading the prompt, {event.done} of {event.total}")
        elif event.reason is FinishReason.ERROR:
            self._event(answers.failure(event.message, "server_error"))
        else:
            self._event(answer.piece({}, answers.FINISH.get(event.reason, "stop")))
            if request.usage:
                self._event(answer.numbers(event.stats))
            self._line("data: [DONE]")

    def _failed(self, done: ReplyDone) -> bool:
        """Says so, where nothing was written."""
        if done.reason is FinishReason.TOO_LONG:
            self._refuse(400, done.message, "messages", "context_length_exceeded")
        elif done.reason is FinishReason.ERROR:
            self._say(500, answers.failure(done.message, "server_error"))
        else:
            return False
        return True

    def _event(self, value: object) -> None:
        self._line("data: " + answers.encoded(value).decode())

    def _line(self, text: str) -> None:
        self.wfile.write(f"{text}\n\n".encode())

    def _client_is_there(self) -> bool:
        asked = select.poll()
        asked.register(self.connection, select.POLLIN)
        if not asked.poll(0):
            return True
        try:
            return bool(self.connection.recv(1, socket.MSG_PEEK))  # nothing to read is the end; else a next request
        except OSError:
            return False

    # Requests

    def _allowed(self) -> bool:
        """Whether the request may be answered: not where a page in a browser has a name of its own for this machine."""
        host = self.headers.get("Host", "")
        if self.server.only_here and not is_loopback(_name(host)):
            self._refuse(403, f"This server answers to localhost only, not to {host}.")
            return False
        given = self.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        if self.server.key and not hmac.compare_digest(given.encode(), self.server.key.encode()):
            self._say(401, answers.failure("The API key is missing or wrong.", "authentication_error"))
            return False
        return True

    def _body(self) -> bytes | None:
        """The body, which is read in any case; None where it cannot be, which the client was told."""
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            self.close_connection = True
            self._refuse(411, "The request needs a Content-Length.")
            return None
        if int(length) > MOST_BYTES:
            self.close_connection = True
            self._refuse(413, f"The body is larger than {MOST_BYTES >> 20} MiB.")
            return None
        body = self.rfile.read(int(length))
        if self.headers.get_content_type() != "application/json":  # a browser would ask before it sent this from a page
            self._refuse(415, "The body must be of type application/json.")
            return None
        return body

    def _unknown(self) -> None:
        known = "GET /v1/models, POST /v1/chat/completions, GET /health"
        self._refuse(404, f"There is no {self.command} {self.path.partition('?')[0]} here; there are {known}.")

    def _refuse(self, status: int, message: str, param: str | None = None, code: str | None = None) -> None:
        self._say(status, answers.failure(message, "invalid_request_error", param, code))

    def _say(self, status: int, value: object) -> None:
        body = answers.encoded(value)
        self._head(status, "application/json", len(body))
        self.wfile.write(body)

    def _head(self, status: int, kind: str, length: int | None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Cache-Control", "no-store")
        if length is not None:
            self.send_header("Content-Length", str(length))
        if self.close_connection or length is None:
            self.send_header("Connection", "close")
        self.end_headers()


def _with_stops(asked: Asked, request: Request) -> Generator[ReplyEvent]:
    """The events, with the reply's text up to a stop."""
    stops = Stops(request.stops)
    with closing(iter(asked)) as events:
        for event in events:
            if isinstance(event, TextDelta) and not event.thinking:
                text = stops.feed(event.text)
                if text:
                    yield TextDelta(event.reply_id, text)
                if stops.found:
                    asked.stop()
                continue
            if isinstance(event, ReplyDone) and (rest := stops.finish()):
                yield TextDelta(event.reply_id, rest)
            yield event


def _name(host: str) -> str:
    """The name in a Host header, without its port."""
    try:
        return urlsplit(f"//{host.strip()}").hostname or ""
    except ValueError:
        return ""


def _field(event: TextDelta) -> str:
    return "reasoning_content" if event.thinking else "content"


def serve(server: Server, ending: threading.Event) -> None:
    """Serves until `ending` is set."""
    thread = threading.Thread(target=server.serve_forever, name="serve", daemon=True)
    thread.start()
    with suppress(KeyboardInterrupt):
        ending.wait()
    server.shutdown()
    thread.join()
