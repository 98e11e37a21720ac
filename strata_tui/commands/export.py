"""`strata-tui export`: a chat as a file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..errors import UserError
from .chat import chat_id

HELP = "Write a chat as markdown, HTML or JSON."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "id",
        metavar="ID",
        nargs="?",
        default="last",
        type=_which,
        help="the chat's number, or last: the one used last, with messages in it",
    )
    parser.add_argument("--format", choices=("md", "html", "json"), help="default: what FILE ends with, else md")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="a file or folder, or - for stdout (default: a name made from the title); a file is never overwritten",
    )
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--tree", action="store_true", help="all branches (JSON: the default)")
    part.add_argument("--branch", action="store_true", help="the shown branch (markdown, HTML: the default)")
    parser.add_argument("--thinking", action="store_true", help="with the replies' thinking (JSON always has it)")


def run(args: argparse.Namespace) -> int:
    from ..sessions.export import Form, export_text, file_name, form_of, write_export
    from ..sessions.store import Store

    form = Form(args.format) if args.format else form_of(args.output or "") or Form.MARKDOWN
    whole = args.tree or (form is Form.JSON and not args.branch)
    with Store() as store:
        if args.id == "last":
            chats = [chat for chat in store.list_sessions() if chat.messages]
            if not chats:
                raise UserError(f"There is no chat to export in {store.path}: none has messages.")
            session = max(chats, key=lambda chat: chat.updated)
        else:
            session = store.session(args.id)
        text = export_text(store, session.id, form, whole=whole, thinking=args.thinking)
    if args.output == "-":
        sys.stdout.write(text)
        return 0
    target = Path(args.output or ".")
    if target.is_dir():
        target /= file_name(session, form.value)
    print(write_export(text, target))
    return 0


def _which(text: str) -> int | str:
    return text if text == "last" else chat_id(text)
