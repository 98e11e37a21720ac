from __future__ import annotations

import inspect
from pathlib import Path

from strata_tui.bench.ui_source import ScriptedEngine
from strata_tui.engine.engine import Engine
from strata_tui.engine.events import Loaded, Message, ReplyDone, Sampling, TextDelta


def test_it_is_called_as_the_engine_is() -> None:
    methods = [name for name, _ in inspect.getmembers(Engine, inspect.isfunction) if not name.startswith("_")]
    assert "generate" in methods
    for name in methods:
        assert inspect.signature(getattr(ScriptedEngine, name)) == inspect.signature(getattr(Engine, name)), name


def test_it_writes_its_text_and_its_numbers() -> None:
    engine = ScriptedEngine("twelve chars", 1e6)
    engine.open(Path("x"))
    reply = engine.generate([Message("user", "x")], Sampling())
    events = []
    while not (events and isinstance(events[-1], ReplyDone)):
        engine.wait_events(1.0)
        events += engine.drain()
    assert isinstance(events[0], Loaded) and all(e.reply_id == reply for e in events[1:] if isinstance(e, TextDelta))
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "twelve chars"
    done = events[-1]
    assert isinstance(done, ReplyDone)
    assert (done.stats.prompt_tokens, done.stats.reply_tokens) == (40, 3)
    assert done.stats.decode_seconds is not None
    engine.close()
