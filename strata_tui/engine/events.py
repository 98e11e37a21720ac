"""What the worker thread says, in order. Events cross the thread border in a deque (see Engine.drain)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from .counters import Counters, LiveRates, MemoryReport, ReplyStats
from .modes import ModesState


class EngineState(str, Enum):
    EMPTY = "empty"  # no model
    LOADING = "loading"
    IDLE = "idle"
    PROMPT = "reading prompt"
    DECODE = "generating"
    CANCELLING = "stopping"
    FAILED = "failed"  # load failed; open another model
    CLOSED = "closed"


class FinishReason(str, Enum):
    STOP = "stop"  # the model ended its reply
    LENGTH = "length"  # the token limit
    FULL = "context full"  # the reply stopped because the context has no room left
    CANCELLED = "cancelled"
    ERROR = "error"
    TOO_LONG = "prompt too long"  # nothing was generated: the prompt does not fit the context


@dataclass(frozen=True, slots=True)
class Message:
    """One turn. role: "system", "user" or "assistant". `thinking` counts only in a reply that is gone on with."""

    role: str
    text: str
    thinking: str = ""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Parameters of one reply; None: what the model's file recommends, else the usual value
    (engine/sampling.py). temperature 0 is greedy. `thinking`: a word of ModelInfo.thinking.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    top_n_sigma: float | None = None
    typical_p: float | None = None
    repeat_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    penalty_window: int | None = None
    seed: int | None = None
    max_tokens: int | None = None
    thinking: str | None = None


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What was opened. Sizes in bytes."""

    path: str
    name: str
    architecture: str
    quantization: str
    file_bytes: int
    trunk_bytes: int
    expert_bytes: int
    layers: int
    experts_per_layer: int  # 0: a dense model
    experts_used: int
    context_trained: int
    context: int
    key: str = ""  # names the file's content (engine/profile.py)
    thinking: tuple[str, ...] = ()  # the ways of thinking that its chat template knows
    recommended: tuple[tuple[str, float], ...] = ()  # its own sampling parameters: (name, value)

    @property
    def words(self) -> str:
        """What it is, in one line for the log."""
        experts = f"{self.experts_used} of {self.experts_per_layer} experts" if self.experts_per_layer else "dense"
        own = ", ".join(f"{name} {value:g}" for name, value in self.recommended)
        return (
            f"{self.name}, {self.architecture}, {self.quantization}, {self.layers} layers, {experts}, "
            f"{self.trunk_bytes} bytes of trunk and {self.expert_bytes} of experts, "
            f"context {self.context} of {self.context_trained} trained"
            + (f", recommends {own}" if own else "")
            + f"; key {self.key or 'unknown'}; {self.path}"
        )


@dataclass(frozen=True, slots=True)
class PlanLine:
    """One number of the memory plan. `bytes` None: unknown. `note` says where it comes from."""

    label: str
    bytes: int | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """How much of `total` is done; `unit` is "bytes", or what is counted; `stage` is shown as it is."""

    stage: str
    done: int
    total: int
    unit: str = "bytes"


@dataclass(frozen=True, slots=True)
class Loaded:
    model: ModelInfo
    plan: tuple[PlanLine, ...]
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """One sentence: what is wrong, where, what to do."""

    message: str
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class PromptProgress:
    """Tokens of the prompt read so far, of those that must be read (reused ones not counted). Sent after each batch,
    and some times a second meanwhile: a batch that streams counts by its layers then.
    """

    reply_id: int
    done: int
    total: int
    tokens_per_second: float | None = None
    bytes_copied: int = 0  # to the device, for this prompt
    seconds_left: float | None = None  # at this rate
    waiting_for_disk: bool = False  # computing has to wait for bytes of the file


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Some text of the reply. `thinking` text is shown apart and never goes back into the context."""

    reply_id: int
    text: str
    thinking: bool = False


@dataclass(frozen=True, slots=True)
class ReplyDone:
    """The reply's end; always sent, once, for each accepted generate(). `message` explains errors."""

    reply_id: int
    reason: FinishReason
    stats: ReplyStats
    message: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """The answer to Engine.measure: tokens of the conversation with its markup, and of each text alone.

    `problem`: why it could not be measured, in one sentence; the numbers are 0 then.
    """

    id: int
    tokens: int
    texts: tuple[int, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ModesChanged:
    """The engine has applied a change of modes; `state` is what it reports now."""

    state: ModesState


@dataclass(frozen=True, slots=True)
class Notice:
    """One sentence for the person (and the log)."""

    text: str


Event = LoadProgress | Loaded | LoadFailed | PromptProgress | TextDelta | ReplyDone | Measured | ModesChanged | Notice


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The engine at one moment. Taken by the worker and a sampler thread; reading it never blocks."""

    state: EngineState = EngineState.EMPTY
    model: ModelInfo | None = None
    memory: MemoryReport = MemoryReport()
    counters: Counters = Counters()  # since the model was opened
    reply: ReplyStats | None = None  # the running reply, else the last one
    rates: LiveRates = LiveRates()
    modes: ModesState | None = None
    context_used: int = 0
    context_total: int = 0
    queued: int = 0  # replies waiting
