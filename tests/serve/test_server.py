"""The server on the real engine and a small random model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from model_fixtures import TinyModel

from strata_tui.config import Given
from strata_tui.engine.engine import Engine, EngineOptions
from strata_tui.engine.events import EngineState, Loaded
from strata_tui.parameters import Layers
from strata_tui.serve.desk import Desk
from strata_tui.serve.server import Server, serve

OPTIONS = EngineOptions(gpu=-1, threads=1, context=512)
HI = [{"role": "user", "content": "hello"}]
Serving = Callable[..., Any]


class Client:
    """One connection."""

    def __init__(self, engine: Engine, port: int) -> None:
        self.engine = engine
        self.port = port
        self.connection = HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        kind = {"Content-Type": "application/json"} if data is not None else {}
        self.connection.request(method, path, data, kind | {n.replace("_", "-"): v for n, v in headers.items()})
        response = self.connection.getresponse()
        return response.status, json.loads(response.read())

    def reply(self, **fields: Any) -> dict[str, Any]:
        status, answer = self.ask("POST", "/v1/chat/completions", {"messages": HI} | fields)
        assert status == 200, answer
        assert isinstance(answer, dict)
        return answer

    def stream(self, **fields: Any) -> list[Any]:
        data = json.dumps({"messages": HI, "stream": True} | fields).encode()
        self.connection.request("POST", "/v1/chat/completions", data, {"Content-Type": "application/json"})
        response = self.connection.getresponse()
        assert (response.status, response.headers["Content-Type"]) == (200, "text/event-stream")
        lines = [line for line in response.read().decode().split("\n\n") if line]
        assert lines[-1] == "data: [DONE]"
        return [json.loads(line.removeprefix("data: ")) for line in lines[:-1] if not line.startswith(":")]


@pytest.fixture
def serving(tiny_model: TinyModel) -> Serving:
    @contextmanager
    def run(key: str = "", options: EngineOptions = OPTIONS) -> Iterator[Client]:
        engine = Engine(options)
        engine.open(tiny_model("qwen3moe"))
        model = None
        while model is None:
            engine.wait_events(1.0)
            model = next((event.model for event in engine.drain() if isinstance(event, Loaded)), None)
        desk, ending = Desk(engine), threading.Event()
        given = Given(file={"temperature": 0.0, "max_tokens": 8})
        try:
            with Server(("127.0.0.1", 0), desk, model, Layers(given), key) as server:
                thread = threading.Thread(target=serve, args=(server, ending))
                thread.start()
                yield Client(engine, server.server_address[1])
                ending.set()
                thread.join()
        finally:
            desk.close()
            engine.close()

    return run


def text_of(answer: dict[str, Any]) -> str:
    text = answer["choices"][0]["message"]["content"]
    assert isinstance(text, str)
    return text


def test_replies_whole_and_in_pieces_are_the_same(serving: Serving) -> None:
    with serving() as client:
        status, models = client.ask("GET", "/v1/models")
        assert (status, models["data"][0]["id"]) == (200, "tiny qwen3moe")
        whole = client.reply(model="whatever")
        assert whole["model"] == "tiny qwen3moe" and whole["choices"][0]["finish_reason"] == "length"
        assert whole["usage"]["completion_tokens"] == 8 and text_of(whole)
        pieces = client.stream(stream_options={"include_usage": True})
        deltas = [piece["choices"][0]["delta"] for piece in pieces[:-1]]
        assert deltas[0] == {"role": "assistant", "content": ""} and deltas[-1] == {}
        assert "".join(delta.get("content", "") for delta in deltas) == text_of(whole)
        assert pieces[-2]["choices"][0]["finish_reason"] == "length"
        assert pieces[-1]["usage"]["completion_tokens"] == 8 and len({piece["id"] for piece in pieces}) == 1
        full = client.reply(max_tokens=5000)
        assert full["choices"][0]["finish_reason"] == "length" and full["usage"]["total_tokens"] >= 512
        longer = text_of(client.reply(max_tokens=12))
        assert longer.startswith(text_of(whole)) and longer != text_of(whole)


def test_a_stop_ends_the_reply(serving: Serving) -> None:
    with serving() as client:
        text = text_of(client.reply(max_tokens=200))
        stop = text[20:24]
        cut = client.reply(max_tokens=200, stop=[stop, "never there"])
        assert text_of(cut) == text[: text.index(stop)] and cut["choices"][0]["finish_reason"] == "stop"
        assert cut["usage"]["completion_tokens"] < 200


def test_clients_wait_for_each_other(serving: Serving) -> None:
    with serving() as client:
        expected = text_of(client.reply())
        got: list[str] = []
        threads = [
            threading.Thread(target=lambda: got.append(text_of(Client(client.engine, client.port).reply())))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert got == [expected] * 4


def test_a_client_that_goes_stops_its_reply(serving: Serving) -> None:
    slow = replace(OPTIONS, slots=8, copy_delay_us=3000)
    with serving(options=slow) as client:
        for stream in (True, False):
            gone = HTTPConnection("127.0.0.1", client.port, timeout=60)
            body = json.dumps({"messages": HI, "stream": stream, "max_tokens": 400}).encode()
            gone.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
            if stream:
                assert gone.getresponse().read(1)
            while client.engine.snapshot().state not in (EngineState.PROMPT, EngineState.DECODE):
                threading.Event().wait(0.01)
            gone.close()
            reply = client.reply(max_tokens=2)
            assert reply["usage"]["completion_tokens"] == 2
            snapshot = client.engine.snapshot()
            assert snapshot.queued == 0


def test_what_is_refused(serving: Serving) -> None:
    with serving() as client:
        long = [{"role": "user", "content": "words and more words " * 300}]
        for path, body, status, part in (
            ("/v1/chat/completions", {"messages": long}, 400, "The conversation takes"),
            ("/v1/chat/completions", {"messages": long, "stream": True}, 400, "The conversation takes"),
            ("/v1/chat/completions", {"messages": HI, "n": 3}, 400, "n is not supported"),
            ("/v1/chat/completions", b"{", 400, "no JSON"),
            ("/v1/embeddings", {}, 404, "There is no POST /v1/embeddings"),
        ):
            got, answer = client.ask("POST", path, body)
            assert got == status and part in answer["error"]["message"], answer
        assert client.ask("POST", "/v1/chat/completions", {"messages": HI}, Content_Type="text/plain")[0] == 415
        assert client.ask("GET", "/nothing")[0] == 404
        assert client.ask("GET", "/v1/models", Host="evil.example")[0] == 403
        assert client.ask("GET", "/v1/models", Host=f"[::1]:{client.port}")[0] == 200
        assert client.ask("GET", "/health") == (200, {"status": "ok"})
        assert client.reply()["choices"]


def test_a_key_is_asked_for(serving: Serving) -> None:
    with serving(key="secret é") as client:
        assert client.ask("GET", "/v1/models")[0] == 401
        assert client.ask("GET", "/v1/models", Authorization="Bearer wrong")[0] == 401
    with serving(key="secret") as client:
        assert client.ask("GET", "/v1/models", Authorization="Bearer secret")[0] == 200


def test_the_command(tiny_model: TinyModel, tmp_path: Path) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith("STRATA_TUI_")}
    env |= {f"STRATA_TUI_{n}": str(tmp_path / n) for n in ("DATA", "CACHE", "LOGS", "CONFIG")}
    command = [sys.executable, "-P", "-m", "strata_tui", "serve"]
    flags = ["-m", str(tiny_model("qwen3moe")), "--gpu", "-1", "--threads", "1", "--ctx", "512", "--port", "0"]
    refused = subprocess.run([*command, *flags, "--host", "0.0.0.0"], env=env, capture_output=True, text=True)
    assert refused.returncode == 2 and "set STRATA_TUI_API_KEY" in refused.stderr
    with subprocess.Popen([*command, *flags], env=env, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        line = program.stdout.readline()
        assert line.startswith("tiny qwen3moe is served on http://127.0.0.1:")
        port = int(line.partition("127.0.0.1:")[2].partition("/")[0])
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/v1/models")
        assert connection.getresponse().status == 200
        program.send_signal(signal.SIGINT)
        assert program.wait(30) == 0
