"""`strata-tui serve`: the model for other programs, by OpenAI's HTTP interface."""

from __future__ import annotations

import argparse
import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from .flags import add_engine_flags, check_model_file, find_model, given_of, log_of

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..engine.events import ModelInfo

HELP = "Serve the model to other programs (OpenAI's chat completions)."
KEY = "STRATA_TUI_API_KEY"
_WAIT_SECONDS = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="where to listen (default: 127.0.0.1)")
    parser.add_argument("--port", type=port_of, default=8080, metavar="N", help="default: 8080; 0: a free one")
    add_engine_flags(parser)
    parser.epilog = f"{KEY}, where it is set, is the key that clients must have."


def port_of(text: str) -> int:
    """A port's number as typed."""
    if text.isascii() and text.isdigit() and int(text) < 2**16:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no port: it is a number from 0 to 65535")


def run(args: argparse.Namespace) -> int:
    find_model(args)
    given = given_of(args)
    settings, log, key = given.settings, log_of(args), os.environ.get(KEY, "")
    from ..serve.server import is_loopback

    if not key and not is_loopback(args.host):
        raise UserError(f"On {args.host} everyone in the network could use the model: set {KEY} to a key for clients.")
    if settings.model is not None:
        check_model_file(settings.model)
    ending = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ending.set())
    from ..demo import ensure_demo_model
    from ..engine.engine import Engine

    model = settings.model or ensure_demo_model()
    engine = Engine(settings.engine_options(log))
    try:
        info = _opened(engine, model, ending)
        if info is None:
            return 130
        from ..parameters import Layers
        from ..serve.desk import Desk
        from ..serve.server import Server, serve

        desk = Desk(engine)
        try:
            server = Server((args.host, args.port), desk, info, Layers(given), key)
        except OSError as error:
            why = error.strerror or str(error)
            raise UserError(f"The server cannot listen on {args.host}, port {args.port}: {why}.") from error
        with server:
            host, port = server.server_address[:2]
            shown = f"[{host!s}]" if ":" in str(host) else str(host)
            print(f"{info.name} is served on http://{shown}:{port}/v1; ctrl+c ends.", flush=True)
            serve(server, ending)
            engine.cancel()
            desk.close()
    finally:
        engine.close()
    return 0


def _opened(engine: Engine, path: Path, ending: threading.Event) -> ModelInfo | None:
    """The model once it is loaded; None where it was stopped. Raises UserError."""
    from ..engine.events import Loaded, LoadFailed

    engine.open(path)
    while True:
        engine.wait_events(_WAIT_SECONDS)
        if ending.is_set():
            engine.cancel_load()
        for event in engine.drain():
            if isinstance(event, LoadFailed):
                if event.cancelled:
                    return None
                raise UserError(event.message)
            if isinstance(event, Loaded):
                return event.model
