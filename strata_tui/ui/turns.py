"""Sending, queueing, editing, and replies written again or gone on with, in the shown chat."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..engine.events import FinishReason, ReplyDone, Sampling
from ..errors import UserError
from ..sessions.rows import Role, Status
from . import format as f
from .actions import as_message
from .chat import Chat, RunningReply, Turn
from .queue import Queue, Queued

if TYPE_CHECKING:
    from .screens.chat import ChatScreen

_BETWEEN = "\n\n"  # messages that are kept as one draft


@dataclass(frozen=True, slots=True)
class Editing:
    """A message that is being changed in the prompt, and what was typed there before."""

    chat: Chat
    turn: Turn
    typed: str


class Turns:
    """The chat screen's turns. Methods may raise UserError."""

    def __init__(self, screen: ChatScreen) -> None:
        self._screen = screen
        self._queue = Queue()
        self._starting = False  # a reply is on its way: set at once, before anything waits
        self._editing: Editing | None = None
        self._same_told = False  # why another reply may be no other
        self._full: Chat | None = None  # in which room has to be made, as soon as nothing runs

    # Sending

    @property
    def busy(self) -> bool:
        """Whether a reply runs or is about to."""
        return self._starting or self._screen.replies.busy

    def submit(self, text: str) -> None:
        """Sends a message of the prompt, or has it wait for the reply that runs or the model that loads."""
        screen = self._screen
        refusal = self._refusal()
        if refusal:
            self.hand_back(text, refusal, stay=False)
            return
        screen.flash.clear()
        above = self.above
        editing, self._editing = self._editing, None
        if editing is not None and editing.chat is screen.chat:
            self._restore_prompt(editing)
        message = Queued(screen.chat, as_message(text), above)
        if self.busy or screen.loader.loading or self._queue:
            self._queue.add(message)
            self._queue_changed(screen.chat)
        else:
            self._start(self._send(message))

    def hand_back(self, text: str, why: str, stay: bool = True) -> None:
        """Puts a text into the prompt again and says why."""
        self._screen.prompt.put_back(text)
        self._screen.flash.say(why, error=True, stay=stay)

    def _refusal(self) -> str:
        """Why a message can neither be sent nor wait now, or nothing."""
        if self._screen.leaving:
            return "The program is ending. Your text is kept."
        if self._screen.model is None and not self._screen.loader.loading:
            return "No model is loaded: /open loads one. Your text is kept."
        chats = self._screen.commands.chats
        if chats.elsewhere is not None:
            chats.look(sending=True)
            return f"{chats.read_only()} /fork goes on in a copy. Your text is kept."
        return ""

    def _start(self, work: Awaitable[None]) -> None:
        self._starting = True

        async def start() -> None:
            try:
                await work
            except UserError as error:
                self._screen.flash.say(str(error), error=True)
            finally:
                self._starting = False
            self._offer_room()
            self.go_ahead()

        self._screen.run_worker(start(), group="send")

    async def _send(self, message: Queued) -> None:
        chat, above = message.chat, message.above
        try:
            failed = _failed(message)
            if failed is None:
                run = await self._screen.replies.send(chat, message.text, above, *self._terms(chat))
            else:  # did not fit when it was sent first: it is no other branch
                run = await self._screen.replies.go_on(chat, failed, *self._terms(chat))
                run.sent = failed.above
        except UserError as error:
            self._give_back(message.chat, [message, *self._queue.take_all(chat)], f"Not sent: {error}")
            return
        self._queue.follow(chat, above, run.turn)
        self._queue_changed(chat)
        await self._begun(run)

    def _terms(self, chat: Chat) -> tuple[str, Sampling]:
        """The model's name and the sampling parameters for a reply in a chat."""
        model = self._screen.model
        return model.name if model else "", self._screen.options.sampling(chat)

    async def _begun(self, run: RunningReply) -> None:
        screen = self._screen
        if run.chat is screen.chat:
            await screen.transcript.refresh_turns(follow=True)
            if (view := screen.transcript.view_of(run.turn)) is not None:
                view.sync()
            screen.show_title()
        screen.sample_now()
        await screen.commands.chats.refresh()

    async def finished(self, run: RunningReply, event: ReplyDone) -> None:
        """What follows a reply's end."""
        screen, transcript = self._screen, self._screen.transcript
        if event.reason is FinishReason.TOO_LONG:
            stats = event.stats
            size = f"{f.count(stats.prompt_tokens)} tokens for a context of {f.count(stats.context_total)}"
            why = f"{'Not begun' if run.sent is None else 'Not sent'}: {size}. /room makes room."
            if run.chat is screen.chat:
                await transcript.refresh_turns(follow=run.sent is not None)
            if run.sent is not None:
                waiting = self._queue.take_all(run.chat)
                self._give_back(run.chat, [Queued(run.chat, run.sent.text, run.shown), *waiting], why)
                if run.chat is screen.chat and run.sent.above is not run.shown and not waiting:
                    self._edits_again(run.sent)
            else:
                screen.flash.say(why, error=True)
            self._full = run.chat
        elif event.reason is FinishReason.FULL:
            where = " in another chat" if run.chat is not screen.chat else ""
            screen.flash.say(f"The context is full{where}: /room makes room for more.", stay=True)
        elif event.reason is FinishReason.ERROR:
            why = event.message or "The reply ended with an error."
            self._give_back(run.chat, self._queue.take_all(run.chat), why)
        elif run.before is not None and event.reason is FinishReason.STOP and not event.stats.reply_tokens:
            screen.flash.say("The reply had ended by itself: the model has nothing to add.")
        if (view := transcript.view_of(run.turn)) is not None:
            transcript.before_growth()
            view.sync()
            transcript.settle()
        screen.sample_now()
        await screen.commands.chats.refresh()
        screen.tidying.ask()
        self._offer_room()
        self.go_ahead()

    def _offer_room(self) -> None:
        """Opens the page for the chat that did not fit; not where a reply can end before its begin is all told."""
        screen = self._screen
        if self._full is not None and not self.busy:
            chat, self._full = self._full, None
            if chat is screen.chat and screen.is_current:
                screen.start("make_room")

    # The queue

    def go_ahead(self) -> None:
        """Sends the next message that waits, if it can be sent now."""
        screen = self._screen
        if self._queue and screen.model is not None and not (self.busy or screen.loader.loading or screen.leaving):
            self._start(self._send(self._queue.next()))

    def load_failed(self) -> None:
        """There will be no model: what waits comes back."""
        chat = self._screen.chat
        if waiting := self._queue.take_all(chat):
            self._give_back(chat, waiting, "")

    @property
    def waits(self) -> bool:
        """Whether a message waits in the shown chat."""
        return bool(self._queue.of(self._screen.chat))

    def give_all_back(self) -> None:
        """Nothing is sent by itself any more: all that waits comes back."""
        for chat in {id(chat): chat for chat in self._queue.chats()}.values():
            self._give_back(chat, self._queue.take_all(chat), "")

    def take_back(self) -> bool:
        """The last message that waits in the shown chat goes back into the prompt; false when none does."""
        message = self._queue.take_back(self._screen.chat)
        if message is None:
            return False
        self._screen.prompt.put_back(message.text)
        self._queue_changed(self._screen.chat)
        self._screen.prompt.focus()
        return True

    def forget(self, session: int) -> None:
        """What waits for a chat stays in its draft only: the chat was deleted."""
        chat = self._queue.chat(session)
        if chat is not None:
            self._queue.take_all(chat)

    def show_queue(self) -> None:
        """Shows what waits in the shown chat."""
        self._screen.queued.show([message.text for message in self._queue.of(self._screen.chat)])
        self._screen.key_line.check()

    def _queue_changed(self, chat: Chat) -> None:
        self.show_queue()
        if chat.session is not None:  # in case the program dies before they are sent
            self._screen.store.set_draft(chat.session, self.draft_of(chat))

    def left(self) -> str:
        """Call before another chat is shown: the shown one's draft."""
        chat = self._screen.chat
        chat.typed = self._typed()
        return self.draft_of(chat)

    def chat_shown(self) -> None:
        """Another chat is shown, with its own draft in the prompt."""
        self._editing = None
        self._screen.prompt.border_title = "Prompt"
        self.show_queue()

    def draft_of(self, chat: Chat) -> str:
        """What is not sent yet: the messages that wait, and what is typed."""
        typed = self._typed() if chat is self._screen.chat else chat.typed
        return _BETWEEN.join(filter(None, [*(message.text for message in self._queue.of(chat)), typed]))

    def _typed(self) -> str:
        editing = self._editing
        return editing.typed if editing is not None else self._screen.prompt.message

    def live_chat(self, session: int) -> Chat | None:
        """The chat with this id that a reply runs in or a message waits for; its turns may grow."""
        run = self._screen.replies.running
        if run is not None and run.chat.session == session:
            return run.chat
        return self._queue.chat(session)

    def live_sessions(self) -> set[int]:
        """Chats that a reply runs in or messages wait for."""
        run = self._screen.replies.running
        chats = [*self._queue.chats(), *([run.chat] if run is not None else [])]
        return {chat.session for chat in chats if chat.session is not None}

    def _give_back(self, chat: Chat, messages: list[Queued], why: str) -> None:
        """Messages that cannot be sent: into the prompt, or into the draft of a chat that is not shown."""
        text = _BETWEEN.join(message.text for message in messages)
        if chat is self._screen.chat:
            if text:
                self._screen.prompt.put_back(text)
        else:
            chat.typed = _BETWEEN.join(filter(None, [text, chat.typed]))
        if messages:
            self._queue_changed(chat)
        if why:
            self._screen.flash.say(why, error=True)

    # Editing

    def edit(self, turn: Turn) -> None:
        """Takes one's own message into the prompt; sending it makes a new branch."""
        prompt = self._screen.prompt
        if turn.role is not Role.USER:
            raise UserError("Only your own messages can be edited; r (/regen) has the reply written again.")
        typed = self._typed()
        self._editing = Editing(self._screen.chat, turn, typed)
        prompt.replace_message(turn.text)
        self._show_edit()
        prompt.focus()

    @property
    def editing(self) -> bool:
        """Whether a message is being changed in the prompt."""
        return self._editing is not None

    @property
    def above(self) -> Turn:
        """The message that what is typed would follow."""
        editing = self._editing
        if editing is not None and editing.chat is self._screen.chat:
            assert editing.turn.above is not None
            return editing.turn.above
        return self._screen.chat.end

    def _edits_again(self, turn: Turn) -> None:
        """A changed message, which is in the prompt again, could not be sent: it is for the same place still."""
        self._editing = Editing(self._screen.chat, turn, "")
        self._show_edit()

    def _show_edit(self) -> None:
        prompt = self._screen.prompt
        prompt.border_title = "Edit"
        prompt.border_subtitle = "enter sends it as a new branch, esc leaves it"
        self._screen.key_line.check()

    def leave_edit(self) -> bool:
        """The prompt is as it was before the editing; false when nothing is edited."""
        editing, self._editing = self._editing, None
        if editing is None:
            return False
        self._restore_prompt(editing)
        self._screen.flash.say("Not sent; ^z brings the change back.")
        return True

    def _restore_prompt(self, editing: Editing) -> None:
        prompt = self._screen.prompt
        prompt.border_title = "Prompt"
        self._screen.show_thinking()
        self._screen.key_line.check()
        prompt.replace_message(editing.typed)

    # Replies again

    def regenerate(self, turn: Turn) -> None:
        """Has another reply written in the place of this one, or to this message of the person."""
        user = turn if turn.role is Role.USER else turn.above
        if user is None or user.above is None:
            raise UserError("This reply answers no message.")
        self._refuse_unsent(user)
        self.free()
        self._start(self._answer(self._screen.chat, user))

    async def _answer(self, chat: Chat, user: Turn) -> None:
        screen = self._screen
        model, sampling = self._terms(chat)
        run = await screen.replies.answer(chat, user, model, sampling)
        await self._begun(run)
        if sampling.temperature == 0 and len(run.turn.siblings) > 1 and not self._same_told:
            self._same_told = True
            key = screen.key_of("options", "/options")
            screen.flash.say(f"At temperature 0 the text will be the same again; {key} opens the options.")

    def go_on(self, turn: Turn) -> None:
        """Has a reply gone on with where it ended."""
        if turn.role is not Role.ASSISTANT:
            raise UserError("Only a reply can be gone on with; r (/regen) has one written to this message.")
        if turn.status is Status.RUNNING and not turn.live:
            raise UserError("Another program is writing this reply.")
        self._refuse_unsent(turn)
        self.free()
        self._start(self._more(self._screen.chat, turn))

    async def _more(self, chat: Chat, turn: Turn) -> None:
        await self._begun(await self._screen.replies.go_on(chat, turn, *self._terms(chat)))

    def free(self) -> None:
        """Raises UserError where no reply can begin now."""
        screen = self._screen
        if screen.commands.chats.elsewhere is not None:
            raise UserError(f"{screen.commands.chats.read_only()} /fork goes on in a copy.")
        if self.busy:
            raise UserError("A reply is running: esc stops it.")
        if screen.loader.loading:
            raise UserError("The model is still loading.")
        if screen.model is None:
            raise UserError("No model is loaded: /open loads one.")

    def _refuse_unsent(self, turn: Turn) -> None:
        if not turn.in_view:
            key = self._screen.key_of("leave_out_here", "/room")
            raise UserError(f"This message is not sent to the model: {key} on it takes it back.")

    # Branches

    async def switch(self, turn: Turn, step: int) -> None:
        """Shows the branch before (-1) or after (1) at a message."""
        siblings = turn.siblings
        place = siblings.index(turn) + step
        if len(siblings) == 1:
            raise UserError("This message has no other branch; e (/edit) or r (/regen) makes one.")
        if not 0 <= place < len(siblings):
            raise UserError(f"This is the {'last' if step > 0 else 'first'} of {len(siblings)} branches.")
        await self.switch_to(siblings[place])

    async def switch_to(self, turn: Turn) -> None:
        """Shows a branch through a message, which is selected where it has the keys."""
        screen = self._screen
        screen.chat.show_through(turn)
        if screen.commands.chats.elsewhere is None:
            screen.replies.keep_shown(screen.chat)
        await screen.transcript.refresh_turns(follow=False)
        if screen.transcript.view_of(turn) is None:
            await screen.transcript.reveal(turn)
        screen.transcript.select(turn)
        if len(turn.siblings) > 1:  # the head that tells may be out of view
            screen.flash.say(f"Branch {turn.siblings.index(turn) + 1} of {len(turn.siblings)}.")

    async def go_to(self, turn: Turn) -> None:
        """Selects a message of the shown branch, wherever in it that is."""
        transcript = self._screen.transcript
        if transcript.view_of(turn) is None:
            await transcript.reveal(turn)
        transcript.select(turn)
        transcript.focus()

    # The end

    async def settle(self, timeout: float = 2.0) -> None:
        """Stops the running reply, waits a little for its end, and stores it either way."""
        replies = self._screen.replies
        if replies.stop():
            end = time.monotonic() + timeout
            while replies.busy and time.monotonic() < end:
                await asyncio.sleep(0.02)
                self._screen.drain()
        replies.abandon()


def _failed(message: Queued) -> Turn | None:
    """The empty reply of the same message at the same place, where it came to nothing."""
    for user in message.above.below:
        same = user.role is Role.USER and user.text == message.text and user.sent
        if same and user.below and all(map(_came_to_nothing, user.below)):
            return user.below[-1]
    return None


def _came_to_nothing(reply: Turn) -> bool:
    return reply.status is Status.ERROR and not (reply.text or reply.thinking or reply.below)
