"""A small server that speaks as much of the Hugging Face Hub's protocol as fetching a model needs."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class HubServer:
    """`files`: the one repository's. What it is to do wrong can be set while it runs."""

    files: dict[str, bytes]
    repo: str = "owner/tiny-GGUF"
    endpoint: str = ""
    cut_after: int | None = None  # bytes of one answer, after which the connection ends
    ranges: bool = True  # whether it can begin in the middle
    refuse: tuple[int, str] | None = None  # status and X-Error-Code of every answer
    sha256: dict[str, str] = field(default_factory=dict)  # told in place of the right hash
    asked: list[tuple[str, str]] = field(default_factory=list)  # (path, Range) of each file that was asked for

    def info(self) -> dict[str, object]:
        def sibling(name: str, data: bytes) -> dict[str, object]:
            digest = self.sha256.get(name, hashlib.sha256(data).hexdigest())
            lfs = {"sha256": digest, "size": len(data), "pointerSize": 100}
            return {"rfilename": name, "size": len(data), "blobId": "b", "lfs": lfs}

        siblings = [sibling(name, data) for name, data in self.files.items()]
        return {
            "id": self.repo,
            "modelId": self.repo,
            "sha": COMMIT,
            "private": False,
            "tags": [],
            "siblings": siblings,
        }


@contextmanager
def serving(hub: HubServer) -> Iterator[HubServer]:
    """Runs it on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if hub.refuse is not None:
                self.answer(hub.refuse[0], b"{}", {"X-Error-Code": hub.refuse[1]})
            elif path == f"/api/models/{hub.repo}":
                self.answer(200, json.dumps(hub.info()).encode(), {"Content-Type": "application/json"})
            elif path.startswith(f"/{hub.repo}/resolve/{COMMIT}/"):
                name = path.removeprefix(f"/{hub.repo}/resolve/{COMMIT}/")
                self.answer(302, b"", {"Location": f"/storage/{name}"})
            elif path.startswith("/storage/") and path.removeprefix("/storage/") in hub.files:
                self.file(path.removeprefix("/storage/"))
            else:
                self.answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})

        do_HEAD = do_GET

        def file(self, name: str) -> None:
            data, wanted = hub.files[name], self.headers.get("Range", "")
            hub.asked.append((name, wanted))
            start = int(wanted.removeprefix("bytes=").partition("-")[0]) if wanted and hub.ranges else 0
            headers = {"Content-Length": str(len(data) - start)}
            if start:
                headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
            self.send_response(206 if start else 200)
            for key, value in headers.items():
                self.send_header(key, value)
            self.end_headers()
            part = data[start:] if hub.cut_after is None else data[start : start + hub.cut_after]
            self.wfile.write(part)
            if len(part) < len(data) - start:
                self.close_connection = True

        def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for key, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
