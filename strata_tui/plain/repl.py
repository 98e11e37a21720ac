"""The plain chat's loop."""

from __future__ import annotations

from collections import deque
from pathlib import Path

from .. import __version__
from ..config import ChatOptions
from ..demo.build import ensure_demo_model
from ..engine.engine import Engine
from ..errors import UserError
from ..sessions.store import Store
from ..ui.actions import as_message, parse_slash
from ..ui.shelf import Shelf
from .commands import PlainCommands, Quit
from .lines import Lines, Steps
from .talk import Talk


def run(options: ChatOptions, lines: Lines) -> int:
    """Talks until the person quits; the exit code. Raises UserError where it cannot begin."""
    problems: deque[Exception] = deque()
    with Store(options.store, on_error=problems.append) as store:
        engine = Engine(options.engine)
        try:
            talk = Talk(engine, store, options.given, lines, options.engine)
            shelf = Shelf(options.given.sections.folders, options.settings.model, options.engine, talk.held)
            commands = PlainCommands(talk, shelf, options.settings_file, options.engine.modes)
            _begin(options, talk, commands)
            _loop(talk, commands, problems)
        finally:
            engine.close()
    return 0


def _begin(options: ChatOptions, talk: Talk, commands: PlainCommands) -> None:
    talk.lines.say(f"strata-tui {__version__}, in plain lines. /help lists the commands, /quit ends.")
    if options.resume is not None:
        commands.open(talk.store.session(options.resume))
    try:
        commands.load(options.model or _demo_model(talk.lines))
    except UserError as error:
        talk.lines.say(f"Error: {error}")


def _demo_model(lines: Lines) -> Path:
    steps = Steps(lines.say)
    return ensure_demo_model(lambda done, total: steps.step("making the demo model", done, total))


def _loop(talk: Talk, commands: PlainCommands, problems: deque[Exception]) -> None:
    armed = False
    while True:
        while problems:
            talk.lines.say(f"Error: {problems.popleft()}")
        try:
            text = talk.lines.ask()
        except KeyboardInterrupt:
            talk.lines.say("")
            if armed:
                return
            armed = True
            talk.lines.say("ctrl+c again, or /quit, quits.")
            continue
        armed = False
        if text is None:
            return
        try:
            _take(text, commands)
        except Quit:
            return
        except UserError as error:
            talk.lines.say(f"Error: {error}")
        except KeyboardInterrupt:
            talk.lines.say("Stopped.")


def _take(text: str, commands: PlainCommands) -> None:
    command = parse_slash(text)
    if command is not None:
        commands.perform(command)
        return
    commands.send(as_message(text))
