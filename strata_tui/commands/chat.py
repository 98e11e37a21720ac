"""`strata-tui chat`: checks that it can work, then starts the screen in a child that cannot ruin the terminal."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from ..config import ChatOptions, config_file, log_dir, store_path
from ..errors import UserError
from ..term.size import START_SIZE, terminal_size
from .flags import add_engine_flags, add_setting, check_model_file, checked_log, find_model, given_of, settings_of

HELP = "Chat (the default command)."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-c", "--continue", dest="last", action="store_true", help="go on with the last chat")
    parser.add_argument("--resume", metavar="ID", type=chat_id, help="go on with this chat; see strata-tui sessions")
    add_setting(parser, "system", "TEXT", "the system prompt of new chats", "-s")
    add_setting(parser, "theme", "NAME", "colours of the screen")
    parser.add_argument("--plain", action="store_true", help="in plain lines: for screen readers and simple terminals")
    add_setting(parser, "mouse", "on|off", "report the mouse to the chat; off: the terminal selects text by itself")
    parser.add_argument(
        "--no-mouse",
        dest="mouse",
        action="store_const",
        const="off",
        default=argparse.SUPPRESS,
        help="the same as --mouse off",
    )
    add_engine_flags(parser)
    # the process that runs the screen; PID: of the one that started it and cleans up behind it
    parser.add_argument("--child", metavar="PID", type=int, nargs="?", const=0, help=argparse.SUPPRESS)


def chat_id(text: str) -> int:
    """A chat's number as typed."""
    if text.isascii() and text.isdigit() and int(text) < 2**63:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a chat's number")


def run(args: argparse.Namespace) -> int:
    if args.child is not None:
        return _run_screen(args)
    find_model(args)
    settings = settings_of(args)
    plain = args.plain or _needs_plain()
    if not plain:
        _check_terminal()
    if settings.model is not None:
        from ..engine.gguf_info import expert_groups, read_info

        check_model_file(settings.model)
        expert_groups(read_info(settings.model))  # what is wrong with the file is said here, before the screen
    _log(args)
    if args.last and args.resume is not None:
        raise UserError("-c and --resume cannot be used together.")
    resume = _checked_chat(args)
    if plain:
        return _run_plain(args, resume)
    from ..term.launcher import supervise, this_python

    if terminal_size() is not None:
        for name in ("COLUMNS", "LINES"):  # left by a shell or by readline; they would count more than the terminal
            os.environ.pop(name, None)
    return supervise([*this_python(), "-m", "strata_tui", "chat", *_flags(args, resume), f"--child={os.getpid()}"])


def _run_screen(args: argparse.Namespace) -> int:
    if args.child:
        from ..term.parent import end_with

        end_with(args.child)
    log = _log(args)
    options = _options(args, log, args.resume)
    from ..term.stderr_guard import install

    remove = install(log)  # before Textual is imported
    try:
        from ..ui.app import run as run_screen

        return run_screen(options)
    finally:
        remove()


def _run_plain(args: argparse.Namespace, resume: int | None) -> int:
    from ..plain.lines import standard
    from ..plain.repl import run as run_plain

    return run_plain(_options(args, _log(args), resume), standard())


def _options(args: argparse.Namespace, log: Path, resume: int | None) -> ChatOptions:
    given = given_of(args)
    settings = given.settings
    return ChatOptions(
        settings=settings,
        engine=settings.engine_options(log),
        model=settings.model,
        resume=resume,
        store=store_path(),
        settings_file=config_file(),
        given=given,
    )


def _needs_plain() -> bool:
    """Whether the terminal cannot be drawn on; that is said in one line."""
    term = os.environ.get("TERM", "")
    if term not in ("", "dumb") or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    why = "is of type dumb" if term else "has no type (TERM is not set)"
    print(f"strata-tui: This terminal {why}, so the chat is in plain lines, as with --plain.", file=sys.stderr)
    return True


def _check_terminal() -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("The chat needs a terminal for input and output: in a pipe, use strata-tui ask, or --plain.")
    size = terminal_size()
    if size is not None and (size[0] < START_SIZE[0] or size[1] < START_SIZE[1]):
        raise UserError(
            f"The terminal is too small: it has {size[0]} columns and {size[1]} lines, the chat needs {START_SIZE[0]} "
            f"and {START_SIZE[1]}."
        )


def _checked_chat(args: argparse.Namespace) -> int | None:
    """The chat to go on with, after opening the store, which says so where it cannot be used."""
    from ..sessions.store import Store

    with Store() as store:
        if args.last:
            chats = store.list_sessions()
            if not chats:
                raise UserError(f"There is no chat to go on with in {store.path}.")
            return max(chats, key=lambda chat: chat.updated).id
        if args.resume is None:
            return None
        session = store.session(args.resume)
        if session.deleted_at is not None:
            raise UserError(f"Chat {session.id} was deleted.")
        return session.id


def _log(args: argparse.Namespace) -> Path:
    if args.log is not None:
        return checked_log(Path(args.log))
    folder = log_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"The log folder {folder} cannot be made: {error.strerror}; set STRATA_TUI_LOGS.") from error
    return checked_log(folder / "engine.log")


def _flags(args: argparse.Namespace, resume: int | None) -> list[str]:
    """The child's flags: those given here, with the chat found."""
    from ..config import SPECS, flag_of

    flags = [f"{flag_of(name)}={getattr(args, name)}" for name in SPECS if hasattr(args, name)]
    if args.log is not None:
        flags.append(f"--log={args.log}")
    if resume is not None:
        flags.append(f"--resume={resume}")
    return flags
