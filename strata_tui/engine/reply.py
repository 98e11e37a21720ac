"""One reply: template, prefix reuse, prompt in batches, tokens until it ends. Runs on the worker thread."""

from __future__ import annotations

import json
import secrets
import time
from logging import Logger

from ..errors import UserError
from . import llama
from .chat_format import Prompt
from .counters import Counters, DraftCounters, ReplyStats
from .events import FinishReason, Notice, PromptProgress, ReplyDone, TextDelta
from .job import Hooks, Job
from .llama_log import LOG, cause
from .opening import OpenModel
from .reply_text import ReplyText
from .sampler import Sampler
from .sampling import resolve
from .speculate import Spoiled
from .telemetry import ram_for_core

VERIFIED = 8  # residents compared in one check of the cache


class _Stop(Exception):
    """The reply ends here."""

    def __init__(self, reason: FinishReason, message: str = "") -> None:
        self.reason, self.message = reason, message


class Reply:
    """`stats()` may be asked from any thread while `run` works."""

    def __init__(self, job: Job, opened: OpenModel, hooks: Hooks, log: Logger) -> None:
        self._job, self._opened, self._hooks, self._log = job, opened, hooks, log
        self._begun = time.monotonic()
        self._counters = opened.counters()
        self._layers = opened.layers()
        self._drafts: DraftCounters = opened.speculation.counters()
        self._prompt_tokens = self._reused = 0
        self._source = ""  # of the reused ones, see prefix.Reuse
        self._read_known: int | None = None  # tokens read although they were known
        self.prompt_read = 0  # tokens of the prompt that were evaluated
        self.reply_tokens = 0
        self._prompt_total = 0  # while the prompt is read
        self._batch_tokens = 0  # of the running batch
        self._thinking_tokens = 0
        self._thought: float | None = None  # when the last token of its thinking was sampled
        self._prompt_begun: float | None = None
        self._prompt_end: float | None = None
        self._first: float | None = None
        self._last: float | None = None

    def run(self) -> ReplyDone:
        """Always returns; whatever goes wrong becomes the ReplyDone's reason and message."""
        try:
            self._run()
            raise AssertionError("a reply ends by _Stop")
        except _Stop as stop:
            reason, message = stop.reason, stop.message
        except UserError as error:
            reason, message = FinishReason.ERROR, str(error)
        except Exception as error:  # the worker must live on
            self._log.exception("reply %d failed", self._job.reply_id)
            reason, message = FinishReason.ERROR, f"The reply failed: {cause(error)}."
            self._opened.prefix.clear()
        stats = self.stats()
        why = f" ({message})" if message else ""
        self._log.info("reply %d: %s%s: %s", self._job.reply_id, reason.value, why, json.dumps(stats.to_dict()))
        return ReplyDone(self._job.reply_id, reason, stats, message)

    def stats(self, counters: Counters | None = None) -> ReplyStats:
        """`counters`: totals read just now, to save reading them again."""
        opened, first, last, thought = self._opened, self._first, self._last, self._thought
        begun, end = self._prompt_begun, self._prompt_end
        return ReplyStats(
            prompt_tokens=self._prompt_tokens,
            reused_tokens=self._reused,
            reused_ram=self._reused if self._source == "ram" else 0,
            reused_disk=self._reused if self._source == "disk" else 0,
            read_again=self._read_known,
            reply_tokens=self.reply_tokens,
            prompt_seconds=end - begun if begun is not None and end is not None else None,
            first_token_seconds=first - self._begun if first is not None else None,
            decode_seconds=last - first if first is not None and last is not None else None,
            counters=(opened.counters() if counters is None else counters) - self._counters,
            context_used=len(opened.prefix.tokens),
            context_total=opened.context.size,
            model=opened.about.name,
            quantization=opened.about.quantization,
            drafts=opened.speculation.counters() - self._drafts,
            gate=opened.speculation.state().reason,
            thinking_tokens=self._thinking_tokens,
            thinking_seconds=thought - first if first is not None and thought is not None else None,
            layers=tuple((p - q, h - i) for (p, h), (q, i) in zip(opened.layers(), self._layers, strict=True)),
        )

    def progress(self) -> PromptProgress | None:
        """How far the prompt is now; None when none is being read. Any thread."""
        total, begun = self._prompt_total, self._prompt_begun
        if not total or begun is None:
            return None
        stream = self._opened.tier.stream()
        part = stream["done"] / stream["total"] if stream["total"] else 0.0
        done = min(total, self.prompt_read + int(self._batch_tokens * part))
        rate = done / max(1e-9, time.monotonic() - begun) if done else None
        copied = (self._opened.counters() - self._counters).prompt.bytes_copied
        left = (total - done) / rate if rate else None
        return PromptProgress(self._job.reply_id, done, total, rate, copied, left, bool(stream["filling"]))

    def _run(self) -> None:
        opened, job = self._opened, self._job
        self._check_cancelled()
        LOG.start()
        opened.format.think(job.sampling.thinking)
        prompt, text = self._prompt()
        tokens = prompt.tokens
        for notice in opened.format.take_notices():
            self._notice(notice)
        size = opened.context.size
        self._prompt_tokens = len(tokens)
        if not tokens:
            raise UserError("There is nothing to answer: the conversation is empty.")
        if len(tokens) + 1 > size:
            raise _Stop(
                FinishReason.TOO_LONG,
                f"The conversation takes {len(tokens)} tokens and a reply at least one more, but the context holds "
                f"{size}: shorten it, start a new one, or open the model with a longer --ctx.",
            )
        reuse = opened.snapshots.prepare(tokens, job.chat)
        self._reused, self._source = reuse.kept, reuse.source
        self._read_known = max(0, max(prompt.history, reuse.known) - reuse.kept)
        if reuse.notice:
            self._notice(reuse.notice)
        seed = secrets.randbits(32) if job.sampling.seed is None else job.sampling.seed & 0xFFFFFFFF
        sampler = Sampler(opened.model, resolve(job.sampling, opened.info.metadata))
        try:
            self._log.info(
                "reply %d: %d prompt tokens, %d reused%s, %d known ones read again, seed %d",
                job.reply_id,
                len(tokens),
                reuse.kept,
                f" from a snapshot ({reuse.source})" if reuse.source else "",
                self._read_known,
                seed,
            )
            self._read(tokens, opened.snapshots.mark(reuse.kept, len(tokens), prompt.opening))
            sampler.accept(tokens)
            opened.speculation.begin(tokens, sampler, seed)
            self._write(text)
        finally:
            opened.speculation.end()
            opened.speculation.cut(len(opened.prefix.tokens))
            sampler.close()

    def _prompt(self) -> tuple[Prompt, ReplyText]:
        """The prompt, and what turns the tokens of the reply into text."""
        form, messages = self._opened.format, self._job.messages
        if self._job.go_on:
            begun = form.go_on(messages[:-1], messages[-1], self._opened.snapshots.last(self._job.chat))
            words = "with the tokens it wrote" if begun.exact else "with its text read again"
            self._log.info("reply %d: goes on %s", self._job.reply_id, words)
            return Prompt("", begun.tokens, begun.text.thinking, history=len(begun.tokens) - 1), begun.text
        prompt = form.prompt(messages)
        return prompt, form.reply(thinking=prompt.thinking)

    def _read(self, tokens: list[int], mark: int) -> None:
        """Evaluates the prompt after its reused part, batch by batch; a batch ends at `mark`."""
        opened = self._opened
        opened.tier.set_phase(opened.core.PHASE_PROMPT, ram_for_core())
        total = len(tokens) - self._reused
        self._prompt_begun = time.monotonic()
        self._prompt_total = total
        self._hooks.emit(PromptProgress(self._job.reply_id, 0, total))
        start = self._reused
        while start < len(tokens):
            end = min(len(tokens), start + opened.context.batch)
            end = mark if start < mark < end else end
            part = tokens[start:end]
            start = end
            self._batch_tokens = len(part)
            opened.prepare(len(part))
            self._decode(part)
            self._batch_tokens = 0
            self.prompt_read += len(part)
            opened.snapshots.passed(mark)
            self._prompt_end = time.monotonic()
            if progress := self.progress():
                self._hooks.emit(progress)
        self._prompt_total = 0
        opened.log_stager(self._log)

    def _write(self, text: ReplyText) -> None:
        opened, limit = self._opened, self._job.sampling.max_tokens
        opened.tier.set_phase(opened.core.PHASE_DECODE)
        self._hooks.decoding()
        try:
            self._check_limit(limit)
            window = [self._choose_first()]
            while True:
                held = len(opened.prefix.tokens) - len(window) + 1  # in front of the window's second token
                self._last = time.monotonic()
                self._first = self._first or self._last
                for i, token in enumerate(window):
                    if opened.model.is_end(token):
                        raise _Stop(FinishReason.STOP)
                    self.reply_tokens += 1
                    opened.prefix.sampled(token)
                    for part, thinking in text.feed(token):
                        self._hooks.emit(TextDelta(self._job.reply_id, part, thinking))
                    if text.thinking:
                        self._thinking_tokens, self._thought = self.reply_tokens, self._last
                    if text.stopped:
                        opened.prefix.take_back(held + i)
                        raise _Stop(FinishReason.STOP)
                self._check_limit(limit)
                if len(opened.prefix.tokens) >= opened.context.size:
                    raise _Stop(FinishReason.FULL, f"The context of {opened.context.size} tokens is full.")
                room = opened.context.size if limit is None else limit - self.reply_tokens
                window = self._window(window[-1], room)
        finally:
            for part, thinking in text.finish():
                self._hooks.emit(TextDelta(self._job.reply_id, part, thinking))

    def _choose_first(self) -> int:
        try:
            return self._opened.speculation.first()
        except UserError:
            self._opened.prefix.clear()
            raise

    def _decode(self, tokens: list[int]) -> None:
        """One part of the prompt. The prefix then holds exactly what the memory holds."""
        opened = self._opened
        self._check_cancelled()
        self._hooks.between_rounds()
        position = len(opened.prefix.tokens)
        self._decoded(opened.context.decode(tokens, position), tokens)
        opened.speculation.observe(tokens, position)

    def _window(self, pending: int, room: int) -> list[int]:
        """One round: up to `room` tokens that follow `pending`. The prefix then holds exactly what the memory holds."""
        opened = self._opened
        self._check_cancelled()
        self._hooks.between_rounds()
        try:
            status, tokens = opened.speculation.round(pending, len(opened.prefix.tokens), room)
        except Spoiled as spoiled:
            self._read_again([*opened.prefix.tokens, pending, *spoiled.tokens[:-1]])
            return spoiled.tokens
        except UserError:
            opened.prefix.clear()
            raise
        self._decoded(status, [pending, *tokens[:-1]])
        return tokens

    def _read_again(self, tokens: list[int]) -> None:
        """The memory could not be cut back behind a rejected draft."""
        opened = self._opened
        self._notice(f"Reading {len(tokens)} known tokens again: this model's cache could not be cut behind a draft.")
        opened.prefix.clear()
        opened.speculation.cut(0)
        for start in range(0, len(tokens), opened.context.batch):
            self._decode(tokens[start : start + opened.context.batch])

    def _decoded(self, status: int, tokens: list[int]) -> None:
        """llama_decode returned; with OK, `tokens` are in the memory."""
        opened = self._opened
        if status == llama.OK:
            opened.prefix.extend(tokens)
            opened.log_stager(self._log, only_changes=True)
            self._verify()
            return
        opened.prefix.after_abort()
        self._check_cancelled()
        if status == llama.NO_SLOT:
            raise _Stop(FinishReason.FULL, f"The context of {opened.context.size} tokens has no room left.")
        why = opened.tier.last_error().rstrip(".") or LOG.reason()
        raise UserError(f"The engine stopped while computing (llama_decode {status}): {why}.")

    def _verify(self) -> None:
        """Every so many rounds, compares some residents with the file; what wrong ones gave is forgotten."""
        opened = self._opened
        opened.rounds += 1
        if not opened.verify_every or opened.rounds % opened.verify_every:
            return
        try:
            opened.tier.verify(VERIFIED, opened.rounds)
        except opened.core.Error as error:
            self._log.error("verify: %s", error)
            opened.prefix.clear()
            opened.snapshots.distrust()
            found = str(error).partition("; the slot's history:")[0]
            raise UserError(f"The expert cache is not what the file says: {found}; open the model again.") from error

    def _check_limit(self, limit: int | None) -> None:
        if limit is not None and self.reply_tokens >= limit:
            raise _Stop(FinishReason.LENGTH, f"The reply has reached its limit of {limit} tokens.")

    def _check_cancelled(self) -> None:
        if self._hooks.cancelled():
            raise _Stop(FinishReason.CANCELLED)

    def _notice(self, text: str) -> None:
        self._log.info("notice: %s", text)
        self._hooks.emit(Notice(text))
