"""The chat screen: lays out the widgets, and carries what the engine says to them."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.events import Click, Resize
from textual.screen import Screen
from textual.widgets import Static

from ...config import ChatOptions
from ...engine.engine import Engine
from ...engine.events import (
    Event,
    Loaded,
    LoadFailed,
    LoadProgress,
    Measured,
    ModelInfo,
    ModesChanged,
    Notice,
    PlanLine,
    PromptProgress,
    ReplyDone,
    Snapshot,
    TextDelta,
)
from ...errors import UserError
from ...sessions.store import Store
from ..actions import Where, bindings, key_name, parse_slash
from ..chat import Chat
from ..commands import Commands
from ..completer import Completer
from ..compositor import RowsCompositor
from ..joined import joined
from ..keymap import resolve_keys
from ..leaving import Leaving
from ..loader import Loader
from ..making_room import MakingRoom
from ..options import Options, thinking_text
from ..pacer import Frames
from ..panels import CHATS, ENGINE, Panels
from ..pauses import Tidying
from ..replies import CHECKPOINT_SECONDS, Replies
from ..shelf import Shelf
from ..status_text import Activity
from ..turns import Turns
from ..welcome_text import welcome_text
from ..widgets.attachments_bar import AttachmentsBar
from ..widgets.chats_panel import ChatsPanel
from ..widgets.engine_panel import EnginePanel
from ..widgets.flash import Flash
from ..widgets.key_line import KeyLine
from ..widgets.load_bar import LoadBar
from ..widgets.menu import Menu
from ..widgets.message_head import MessageHead
from ..widgets.prompt import Prompt
from ..widgets.queued_view import QueuedView
from ..widgets.status_line import StatusLine
from ..widgets.title_bar import TitleBar
from ..widgets.too_small import MIN_HEIGHT, MIN_WIDTH, TooSmall
from ..widgets.transcript import Transcript
from .closable import Closable

MEDIUM, WIDE, TALL = 100, 160, 30
_WIDGETS = (
    "title_bar",
    "key_line",
    "chats_panel",
    "transcript",
    "message_view",
    "thinking_view",
    "message_head",
    "engine_panel",
    "load_bar",
    "flash",
    "queued_view",
    "status_line",
    "menu",
    "attachments_bar",
    "prompt",
    "too_small",
)
_STYLES: list[str | PurePath] = ["chat.tcss", *(f"../widgets/{name}.tcss" for name in _WIDGETS)]
_SAMPLE_SECONDS = 0.5  # at least between two, while a prompt is read or a model is loaded
_RARE_SAMPLE_SECONDS = 0.9  # ... while text is written, whose frames are dear enough, and while nothing runs
_REST_SECONDS = 0.5  # between two looks at what the engine says, while nothing is expected


class ChatScreen(Closable, Screen[None]):
    """Owns the shown chat and the running reply; actions are in Commands."""

    CSS_PATH = _STYLES
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(Where.CHAT)]
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (MIN_WIDTH, "-narrow"), (MEDIUM, "-medium"), (WIDE, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (MIN_HEIGHT, "-short"), (TALL, "-tall")]

    def __init__(self, engine: Engine, store: Store, options: ChatOptions, problems: deque[Exception]) -> None:
        super().__init__()
        self._compositor = RowsCompositor()
        self.engine = engine
        self.store = store
        self.settings = options.settings
        self.settings_file = options.settings_file
        self.model: ModelInfo | None = None  # from Loaded until the next load
        self.options = Options(self, options.given)
        self.chat = Chat(system=self.options.system())
        self._told: deque[Event] = deque()  # events of our own, from any thread
        self.keymap = resolve_keys(options.given.sections.keys)
        self.mouse = options.settings.mouse
        self.engine_options = options.engine
        self.log_path = options.engine.log
        self.shelf = Shelf(options.given.sections.folders, options.settings.model, options.engine, self.held)
        self.loader = Loader(engine, options.model, self._told.append)
        self.replies = Replies(engine, store)
        self.turns = Turns(self)
        self.room = MakingRoom(self)
        self.tidying = Tidying(self.set_timer, lambda: self.turns.busy)
        self.panels = Panels({ENGINE: options.settings.panel, CHATS: options.settings.sidebar}, self._show_panels)
        self.commands = Commands(self, options.engine.modes)
        self.completer = Completer(self, self.commands.sources)
        self.plan: tuple[PlanLine, ...] = ()
        self.snapshot = Snapshot()
        self._sampled = 0.0  # when
        self.frames = Frames(self.set_timer, self._expecting, self._listen)
        self._draft_waits = False  # what is typed will be stored
        self._resume = options.resume
        self.before_exit: Callable[[], object] = lambda: None
        self.take_copy: Callable[[str], object] = lambda _: None  # for pasting in this app, and OSC 52 as it is
        self.reload_themes: Callable[[], str] = lambda: ""  # what was wrong with them
        self.failure = ""  # why the last load failed, while no other has succeeded
        self._problems = problems  # failed writes of the store, put there by its thread
        self.departure = Leaving(self, problems)

    def compose(self) -> ComposeResult:
        yield TitleBar()
        with Horizontal(id="body"):
            yield ChatsPanel(id="chats")
            with Vertical(id="middle"):
                yield Transcript(id="transcript")
                yield Static(id="unseen")
            yield EnginePanel(id="engine", keymap=self.keymap)
        yield LoadBar(id="load")
        yield LoadBar(id="pull", stops="/pull stop ends it")
        yield Flash(id="flash")
        yield StatusLine(id="status")
        yield QueuedView(id="queued")
        menu = Menu(id="menu")
        yield menu
        yield AttachmentsBar(id="attachments")
        yield Prompt(id="prompt", menu=menu, keymap=self.keymap)
        yield KeyLine(self.commands.stop_word, self.commands.idle, id="keys-now")
        yield TooSmall()

    async def on_mount(self) -> None:
        self.prompt.focus()
        self.engine_panel.border_subtitle = " ".join(f"{key_name(key)} hides" for key in self.keymap.of("engine")[:1])
        self.set_interval(_REST_SECONDS, self._rest)
        self.watch(self.app, "app_focus", self._looked_at, init=False)
        self.show_title()
        self.show_welcome()
        await self.transcript.show(self.chat.turns)
        self.run_worker(self.commands.told(self.commands.load_history()), group="history")
        if self._resume is not None:  # once there is a layout, which knows where the end is
            self.call_after_refresh(self.run_worker, self.commands.open_session(self._resume), group="resume")

    def _looked_at(self, focused: bool) -> None:
        """The terminal's window got the focus, maybe from one that has a chat open, or lost it."""
        if focused:
            self.commands.chats.look()

    # Widgets, by name

    @property
    def prompt(self) -> Prompt:
        return self.query_one("#prompt", Prompt)

    @property
    def menu(self) -> Menu:
        return self.query_one("#menu", Menu)

    @property
    def attachments(self) -> AttachmentsBar:
        return self.query_one("#attachments", AttachmentsBar)

    @property
    def queued(self) -> QueuedView:
        return self.query_one("#queued", QueuedView)

    @property
    def key_line(self) -> KeyLine:
        return self.query_one("#keys-now", KeyLine)

    @property
    def transcript(self) -> Transcript:
        return self.query_one("#transcript", Transcript)

    @property
    def flash(self) -> Flash:
        return self.query_one("#flash", Flash)

    @property
    def chats(self) -> ChatsPanel:
        return self.query_one("#chats", ChatsPanel)

    @property
    def engine_panel(self) -> EnginePanel:
        return self.query_one("#engine", EnginePanel)

    # Layout: which panels are beside the chat, and which over it

    def on_resize(self, event: Resize) -> None:
        self.panels.resized(event.size.width)
        self.draw_soon(self.show_welcome)

    def _show_panels(self) -> None:
        opened = False
        for name, panel in ((ENGINE, self.engine_panel), (CHATS, self.chats)):
            shown = self.panels.is_beside(name) or self.panels.is_over(name)
            opened = opened or (shown and not panel.display)
            panel.display = shown
            panel.set_class(self.panels.is_over(name), "-over")
        self.query_one("#body").set_class(self.panels.over is not None, "-covered")
        if not self.chats.display:
            self.chats.show_all()
        self.sample_now()
        if opened:
            self.run_worker(self.commands.chats.refresh(), group="refresh")

    # Actions

    async def action_perform(self, action: str) -> None:
        """What every binding calls; `action` is an id of the table."""
        await self.commands.perform(action)

    def start(self, action: str) -> None:
        """Does an action of the table without waiting for it."""
        self.run_worker(self.commands.perform(action), group="action")

    @on(Prompt.Changed)
    def _typed(self) -> None:
        self.tidying.typed()
        self.commands.disarm()
        self.completer.update()
        self._draft_later()

    @on(Prompt.SelectionChanged)
    def _moved(self) -> None:
        self.completer.update()

    @on(Prompt.MenuLeft)
    def _menu_left(self) -> None:
        self.completer.leave()

    @on(Prompt.MenuWanted)
    async def _menu_wanted(self, event: Prompt.MenuWanted) -> None:
        await self.commands.told(self.completer.choose(event.submit))

    @on(Menu.Picked)
    async def _menu_picked(self) -> None:
        await self.commands.told(self.completer.choose(submit=False))

    @on(Prompt.AttachmentsChanged)
    def _attached(self) -> None:
        self.attachments.show(self.prompt.attached)
        self._draft_later()

    def _draft_later(self) -> None:
        """What is typed is stored soon, as little often as a reply is."""

        async def keep() -> None:
            with contextlib.suppress(UserError):  # the store's on_error tells of it
                await self.commands.chats.save_draft()

        def save() -> None:
            self._draft_waits = False
            self.run_worker(keep(), group="draft")

        if not self._draft_waits:
            self._draft_waits = True
            self.set_timer(CHECKPOINT_SECONDS, save)

    @on(ChatsPanel.Chosen)
    async def _chosen(self, event: ChatsPanel.Chosen) -> None:
        await self.commands.open_session(event.session)

    @on(ChatsPanel.Left)
    def _left_chats(self) -> None:
        self.panels.close_over()

    @on(Transcript.Unseen)
    def _unseen(self, event: Transcript.Unseen) -> None:
        mark = self.query_one("#unseen", Static)
        number = event.messages or event.lines
        mark.display = number > 0
        noun = ("later message" if event.messages else "new line") + ("" if number == 1 else "s")
        mark.update(Content(f"↓ {number} {noun}, ^end follows "))

    @on(Click, "#unseen")
    async def _follow(self) -> None:
        await self.transcript.go_to_end()

    # Sending

    @on(Prompt.Submitted)
    async def _submitted(self, event: Prompt.Submitted) -> None:
        text = event.text
        command = parse_slash(text)
        if command is None:
            self.turns.submit(text)
        elif command.action is None:
            news = f"There is no command {command.name}; /help lists them, // sends it as text."
            self.turns.hand_back(text, news)
        else:
            self.flash.clear()
            await self.commands.perform(command.action.id, command.argument)

    @on(Prompt.Recalled)
    def _recalled(self) -> None:
        if not self.commands.recall():
            self.prompt.show_older()

    @on(MessageHead.BranchClicked)
    async def _branch_clicked(self, event: MessageHead.BranchClicked) -> None:
        await self.commands.switch_branch(event.turn, event.step)

    # What the engine says

    def _expecting(self) -> bool:
        return self.replies.busy or self.loader.loading or self.room.waiting

    def pace(self) -> None:
        """The engine is listened to often while it has something to say; to be called when that begins."""
        self.frames.begin()

    def _rest(self) -> None:
        if not self.frames.running:
            self._listen()

    def _listen(self) -> None:
        """Text and numbers, so that both are one frame."""
        self.drain()
        run = self.replies.running
        begins = run is not None and run.first is not None and run.first > self._sampled
        seconds = _SAMPLE_SECONDS if run is not None and run.first is None else _RARE_SAMPLE_SECONDS
        if begins or time.monotonic() - self._sampled >= seconds:
            self.sample_now()

    def drain(self) -> None:
        """Takes what the engine has said since."""
        told = [self._told.popleft() for _ in range(len(self._told))]
        for event in joined([*told, *self.engine.drain()]):
            self._handle(event)
        self.replies.checkpoint()
        while self._problems:
            problem = self._problems.popleft()
            self.flash.say(self.departure.warning or str(problem), error=True)
        self.transcript.settle()

    def _handle(self, event: Event) -> None:
        match event:
            case TextDelta():
                run = self.replies.take(event)
                if run is not None and (view := self.transcript.view_of(run.turn)) is not None:
                    self.transcript.before_growth()
                    view.sync()
            case PromptProgress():
                self.replies.take(event)
            case ReplyDone():
                run = self.replies.finish(event)
                if run is not None:
                    self.run_worker(self.turns.finished(run, event), group="finish")
            case LoadProgress():
                self.query_one("#load", LoadBar).show(event)
            case Loaded():
                self._loaded(event)
            case LoadFailed():
                self.loader.ended(False, stopped=event.cancelled)
                self.failure = "" if event.cancelled else event.message
                self._show_model(None, ())
                text = "The load was stopped; /open starts it again." if event.cancelled else event.message
                self.turns.load_failed()
                self.flash.say(text, error=not event.cancelled, stay=True)
            case Measured():
                self.room.answered(event)
            case ModesChanged():
                self.sample_now()
            case Notice():
                self.flash.say(event.text)

    def _loaded(self, event: Loaded) -> None:
        self.loader.ended(True)
        self.failure = ""
        self.replies.session = None
        self.engine_panel.forget()
        self._show_model(event.model, event.plan)
        self.turns.go_ahead()
        if event.notices:
            self.flash.say("  ".join(event.notices), stay=True)

    def _show_model(self, model: ModelInfo | None, plan: tuple[PlanLine, ...]) -> None:
        before = self.options.system()
        self.model, self.plan = model, plan
        self.options.begin(before)
        self.show_thinking()
        self.query_one("#load", LoadBar).hide()
        self.query_one(TitleBar).show_model(model, "loading" if self.loader.loading else "no model")
        self.show_welcome()
        self.sample_now()

    # Numbers

    def sample_now(self) -> None:
        """Reads the engine's last snapshot and shows it."""
        self._sampled = time.monotonic()
        self.pace()
        self.snapshot = self.engine.snapshot()
        if self.snapshot.reply is not None:
            self.replies.count_thinking(self.snapshot.reply.thinking_tokens)
        self.engine_panel.sample(self.snapshot)
        run = self.replies.running
        self.prompt.cursor_blink = run is None  # each blink is a frame
        queued = self.queued.display
        of_shown = self.chat.session is not None and self.chat.session == self.replies.session
        other = not of_shown and bool(self.chat.turns or self.snapshot.context_used)
        activity = Activity(loading=self.loader.loading, queued=queued, other=other)
        if run is not None:
            seconds, away = time.monotonic() - run.started, run.chat is not self.chat
            activity = Activity(True, run.stopping, run.prompt, seconds, elsewhere=away, other=other, queued=queued)
        self.query_one("#status", StatusLine).show(self.snapshot, activity, not self.panels.is_beside(ENGINE))
        self.key_line.check()

    # The shown chat

    async def show_chat(self, chat: Chat) -> None:
        """Shows another chat; a reply that runs goes on in its own."""
        self.chat = chat
        self.show_title()
        self.turns.chat_shown()
        self.show_thinking()
        await self.transcript.show(chat.turns)
        self.show_welcome()
        self.sample_now()
        await self.commands.chats.refresh()

    def show_title(self) -> None:
        """The title bar's title."""
        read_only = "(read-only) " if self.commands.chats.elsewhere is not None else ""
        self.query_one(TitleBar).show_title(read_only + self.chat.shown_title)

    def show_thinking(self) -> None:
        """How the next reply thinks, where the model's template has a choice: in the prompt's border."""
        if not self.turns.editing:  # that has a hint there
            self.prompt.border_subtitle = thinking_text(self.options, self.key_of("thinking", "/thinking"))

    def key_of(self, action: str, slash: str) -> str:
        """An action's key as it is shown; else the command that does it."""
        return next((key_name(key) for key in self.keymap.of(action)), slash)

    def show_welcome(self) -> None:
        """The text of an empty chat: the model, its memory plan, the first keys."""
        width = self.transcript.text_width - 2
        text = welcome_text(self.model, self.loader.loading, self.plan, self.store.path, width, self.keymap)
        self.transcript.welcome(text)

    def held(self) -> int:
        """Bytes that the open model takes where the plan counts them."""
        return self.snapshot.memory.held

    def load(self, path: Path | None, context: int | None = None) -> None:
        """Loads a model file; None: the last one. `context`: tokens, in place of the settings'."""
        self.loader.begin(path, context)
        self._show_model(None, ())  # the engine closes the old model first
        self.run_worker(self.loader.load(), group="load")

    @property
    def leaving(self) -> bool:
        """Whether the program is ending."""
        return self.departure.ending

    def leave(self) -> None:
        """Ends the program once everything is stored; see Leaving."""
        self.departure.begin()
