"""Opens a model: reads what it is, plans the memory, loads the trunk, allocates and fills slots and mirror."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, fields, replace
from logging import Logger
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..numbers import grouped
from . import gguf_info, llama, native
from .chat_format import ChatFormat
from .counters import Counters, MemoryReport, PhaseCounters
from .events import ModelInfo, PlanLine
from .filling import Mirror, fill_slots, open_profile
from .gguf_info import GgufInfo
from .llama_log import LOG
from .loading import Emit, LoadControl, Throttle
from .modes import Modes, ModesState
from .options import EngineOptions
from .plan import Machine, Plan, gib, make_plan, refit, start_stream
from .prefix import Prefix
from .profile import UsageProfile, model_key
from .sampling import recommended
from .snapshot_open import budgets, make_prefix, open_snapshots, plan_line
from .snapshots import Snapshots
from .speculate import MOST, Speculation
from .speculate_heads import count_heads
from .switches import Switches
from .telemetry import Vram, physical_cores, process_rss, ram

if TYPE_CHECKING:
    from . import _core

MIN_HEADS_BATCH = 128  # tokens; the heads' context reads what was decoded without them in batches of 64
_PHASE_FIELDS = tuple(f.name for f in fields(PhaseCounters))


@dataclass
class OpenModel:
    """Everything that belongs to one open model. Owned by the worker; `report` and `counters` may run elsewhere."""

    info: GgufInfo
    about: ModelInfo
    plan: Plan
    device: str
    core: Any  # the extension module
    tier: _core.Tier
    model: llama.Model
    context: llama.Context
    speculation: Speculation
    format: ChatFormat
    prefix: Prefix
    snapshots: Snapshots
    kv: int | None
    vram: Vram
    notices: tuple[str, ...]
    mirror: Mirror
    verify_every: int  # rounds between two checks of the cache; 0: none
    _profile: UsageProfile | None
    _switches: Switches
    _cleanup: contextlib.ExitStack
    rounds: int = 0  # calls of llama_decode that succeeded
    modes: ModesState | None = None  # as of the last refresh()
    _stager_changes: int = 0  # of the stager's profile, as last logged
    _sizes: dict[str, int] = field(default_factory=dict)

    def close(self) -> None:
        if self._profile is not None:
            self._profile.save()
        try:
            self.snapshots.close()
        finally:
            self._cleanup.close()

    def counters(self) -> Counters:
        return read_counters(self.tier)

    def layers(self) -> list[tuple[int, int]]:
        """Picks and hits of decoding since the model was opened, of each layer with experts. Any thread."""
        return [decode for _, _, decode in sorted(self.tier.layers())]

    def note_usage(self) -> None:
        """Keeps the experts' usage for the next start; on the thread that decodes."""
        if self._profile is not None:
            self._profile.note(self.tier.usage())

    def apply(self, modes: Modes) -> None:
        """Between rounds, on the thread that decodes. Raises the extension's Error; `refresh` says what is in force."""
        self._switches.apply(modes)
        self.mirror.ask_again()

    def prepare(self, tokens: int) -> None:
        """Right before a batch of so many tokens: the first experts of one that streams set out already."""
        if self.tier.n_experts and 0 < self.tier.stream()["from"] <= tokens:
            self.tier.stream_ahead()

    def live_modes(self, modes: ModesState) -> ModesState:
        """`modes` with the switches whose state changes by itself as they are now. Any thread."""
        return self._switches.live(modes)

    def log_stager(self, log: Logger, only_changes: bool = False) -> None:
        """Logs profile, threads and the reason; `only_changes`: where the profile is another than logged last."""
        now = self.tier.stager()
        if not self.tier.n_experts or (only_changes and now["changes"] == self._stager_changes):
            return
        self._stager_changes = now["changes"]
        total = self.counters().total
        blob = now["bytes"] / (self.tier.blob_bytes / self.tier.n_experts)
        times = f", {now['fill_ns'] / blob / 1e6:.2f} ms of reading a blob" if blob >= 1 else ""
        asked = f"{total.asks} asks in {total.ask_ns / 1e6:.1f} ms"
        profile = {self.core.STAGER_RAM: "ram", self.core.STAGER_SSD: "ssd"}[now["profile"]]
        log.info("stager: %s (%s)%s; %s", profile, now["reason"], times, asked)

    def refresh(self) -> ModesState:
        """Reads the switches' state and the pool's sizes back; on the thread that decodes."""
        raw = self.tier.modes()
        self._sizes = {name: int(str(raw[name])) for name in ("pinned", "pageable", "refused", "mirror")}
        self.modes = self._switches.state()
        return self.modes

    def memory(self) -> MemoryReport:
        """Where the memory is now. Any thread, while the model is open."""
        arena = self.tier.arena()
        used, total = self.vram.read()
        snapshots, files = self.snapshots.nbytes()
        return MemoryReport(
            device=self.device,
            on_gpu=self.tier.on_gpu,
            vram_used=used,
            vram_total=total,
            trunk=self.info.trunk_bytes,
            kv=self.kv,
            reserve=self.plan.reserve,
            arena=arena["bytes"],
            slots_used=arena["slots_used"],
            slots_total=arena["slots_total"],
            experts_total=self.tier.n_experts,
            ram_available=ram().available,
            process_rss=process_rss(),
            snapshots_ram=snapshots,
            snapshots_disk=files,
            **self._sizes,
        )


def open_model(
    path: Path,
    options: EngineOptions,
    modes: Modes,
    emit: Emit,
    control: LoadControl,
    log: Logger,
) -> OpenModel:
    """Raises UserError (one sentence), LoadCancelled, or the extension's Error; nothing stays allocated then."""
    info = gguf_info.read_info(path)
    core = native.load()
    control.check()
    with contextlib.ExitStack() as stack:
        name = native.pick_device(options.gpu)
        tier = core.Tier(
            name,
            [str(shard) for shard in info.shards],
            gguf_info.expert_groups(info),
            pool_buffers=options.pool_buffers,
            stager_threads=options.stager_threads or 0,
            copy_delay_us=options.copy_delay_us,
            copy_seed=options.copy_seed,
            fault=options.fault,
        )
        stack.callback(tier.close)
        machine = _machine(name, bool(tier.on_gpu))
        plan = make_plan(info, tier, machine, options)
        ram_bytes, disk_bytes, why = budgets(plan, info.trunk_bytes, machine, options)
        plan = replace(plan, lines=(*plan.lines, plan_line(ram_bytes, disk_bytes, why)))
        for line in plan.lines:
            log.info("plan: %s: %s", line.label, _line_text(line))
        heads, no_heads = count_heads(info, MOST)
        model = _load_trunk(info, tier, heads > 0, emit, control)
        stack.callback(model.close)
        control.check()
        if not model.chats:
            raise UserError(f"{info.name} does not write text token by token, so it cannot chat: open another model.")
        flash = {None: llama.FLASH_AUTO, False: llama.FLASH_OFF, True: llama.FLASH_ON}[options.flash_attention]
        sizes = llama.ContextOptions(plan.context, plan.batch, plan.threads, flash, outputs=MOST + 1)
        if model.has_state:
            sizes = replace(sizes, snapshots=MOST)
        context = llama.Context(model, sizes, tier)
        stack.callback(context.close)
        kv, plan = _measured(plan, context)
        speculation, kv = _speculation(core, context, sizes, heads, no_heads, options, kv, tier, stack)
        if plan.n_experts:
            if machine.on_gpu:
                plan = refit(plan, tier, _device(name).free)
            control.check()
            got = tier.allocate(plan.slots)
            log.info("slots: %d of %d experts, %s", got, plan.n_experts, gib(tier.arena()["bytes"]))
            plan = _set_stream(plan, tier, log)
        switches = Switches(core, tier, speculation)
        switches.apply_pool(modes)
        profile = open_profile(options.profiles, info, plan.n_experts, log)
        if plan.n_experts:
            log.info("%s", tier.selftest())
            fill_slots(tier, profile, emit, control, log)
        switches.apply_drafting(modes.draft)
        switches.apply_residency(modes.residency)  # now that there are residents to become homes
        control.check()
        formatter = ChatFormat(model)
        notices = [*plan.notices, *formatter.take_notices()]
        if options.gpu is None and (hint := native.gpu_notice()):
            notices.append(hint)
        prefix = make_prefix(context, model.has_state, model.n_swa, ram_bytes, log)
        opened = OpenModel(
            info=info,
            about=_about(info, context.size, formatter),
            plan=plan,
            device=machine.device,
            core=core,
            tier=tier,
            model=model,
            context=context,
            speculation=speculation,
            format=formatter,
            prefix=prefix,
            snapshots=open_snapshots(
                info, context, prefix, speculation, machine.device, options, (ram_bytes, disk_bytes), log
            ),
            kv=kv,
            vram=Vram(llama.pci_address(name) if machine.on_gpu else None),
            notices=tuple(notices),
            mirror=Mirror(tier, plan.mirror, log),
            verify_every=options.verify_cache,
            _profile=profile,
            _switches=switches,
            _cleanup=stack.pop_all(),
        )
    opened.refresh()
    return opened


def read_counters(tier: _core.Tier) -> Counters:
    """The tier's counters since it was made. Any thread."""
    raw = tier.counters()

    def phase(name: str) -> PhaseCounters:
        return PhaseCounters(**{key: raw[name][key] for key in _PHASE_FIELDS})

    return Counters(phase("prompt"), phase("decode"), tier.swaps()["swaps"] if tier.n_experts else None)


def _speculation(
    core: Any,
    context: llama.Context,
    sizes: llama.ContextOptions,
    heads: int,
    no_heads: str,
    options: EngineOptions,
    kv: int | None,
    tier: _core.Tier,
    stack: contextlib.ExitStack,
) -> tuple[Speculation, int | None]:
    """With the context of the model's NextN heads, where it has some; and the KV bytes with theirs."""
    drafts: llama.Context | None = None
    if heads and (missing := core.nextn_missing()):
        heads, no_heads = 0, f"the installed llama.cpp has no {missing}"
    outputs = MOST + 1 if tier.on_gpu else 1  # logits that nobody reads cost less there than another decode
    if heads:
        small = replace(sizes, outputs=outputs, snapshots=0, heads=True, batch=max(sizes.batch, MIN_HEADS_BATCH))
        drafts = llama.Context(context.model, small, tier)
        stack.callback(drafts.close)
        own = LOG.buffers("KV")
        kv = None if kv is None or own is None else kv + own
    speculation = Speculation(core, context, drafts, no_heads, options, tier, outputs)
    stack.callback(speculation.close)
    if drafts and not context.plan_again(tier):  # before the slots take what VRAM is left
        raise UserError(f"llama.cpp could not plan its graphs: {LOG.reason()}.")
    return speculation, kv


def _load_trunk(info: GgufInfo, tier: _core.Tier, heads: bool, emit: Emit, control: LoadControl) -> llama.Model:
    stream = tier.open_stream(gguf_info.load_segments(info))
    report = Throttle("reading the trunk", emit)

    def progress(part: float) -> bool:
        # llama.cpp reads the header twice, so more may be read than there is
        report(stream.total if part >= 1 else min(stream.bytes_read, stream.total), stream.total)
        return not control.cancelled

    try:
        pattern = gguf_info.override_pattern(info)
        with control.stopping(stream.cancel):
            return llama.Model.load(
                info.path, tier=tier, stream=stream, pattern=pattern, heads=heads, progress=progress
            )
    except UserError:
        control.check()  # a cancelled load fails too
        raise
    finally:
        stream.close()


def _measured(plan: Plan, context: llama.Context) -> tuple[int | None, Plan]:
    """KV bytes as llama.cpp reports them, and the plan with what is known by now in place of estimates."""
    kv, states, compute = (LOG.buffers(kind) for kind in ("KV", "RS", "compute"))
    if kv is not None or states is not None:
        kv = (kv or 0) + (states or 0)
    known = {
        "KV cache": PlanLine("KV cache", kv, f"{grouped(context.size)} tokens"),
        "compute buffers": PlanLine("compute buffers", compute, f"batches of {grouped(context.batch)}"),
    }
    lines = tuple(
        known[line.label] if line.label in known and known[line.label].bytes is not None else line
        for line in plan.lines
    )
    return kv, replace(plan, lines=lines)


def _set_stream(plan: Plan, tier: _core.Tier, log: Logger) -> Plan:
    """Gives streamed batches their ring, and says so in the plan."""
    size = start_stream(tier, plan.stream_from, plan.ring)
    if plan.ring and not size:
        raise UserError(f"A ring of {gib(plan.ring)} is too small: this model needs {gib(tier.stream_unit)} or more.")
    units = "layers" if size >= 2 * tier.stream_layer else "slices of layers"
    if not plan.stream_from:
        note = "off: prompts use slots"
    elif not size:
        note = "none: too few slots to borrow, prompts use them in passes"
    else:
        memory = "its own memory" if plan.ring else "lent slots"
        note = f"{memory}, by {units}, for batches of {grouped(plan.stream_from)} tokens and more"
    line = PlanLine("prompt ring", size, note)
    log.info("plan: %s: %s", line.label, _line_text(line))
    at = next(i for i, old in enumerate(plan.lines) if old.label == "slots") + 1
    return replace(plan, lines=(*plan.lines[:at], line, *plan.lines[at:]))


def _machine(name: str, on_gpu: bool) -> Machine:
    device = _device(name)
    return Machine(
        device=f"{device.description} ({name})" if on_gpu else name,
        on_gpu=on_gpu,
        vram_free=device.free if on_gpu else 0,
        vram_total=device.total if on_gpu else 0,
        ram=ram(),
        cores=physical_cores(),
    )


def _device(name: str) -> native.DeviceInfo:
    return next(d for d in native.devices() if d.name == name)


def _about(info: GgufInfo, context: int, formatter: ChatFormat) -> ModelInfo:
    return ModelInfo(
        path=str(info.path),
        name=info.name,
        architecture=info.architecture,
        quantization=info.quantization,
        file_bytes=info.file_bytes,
        trunk_bytes=info.trunk_bytes,
        expert_bytes=info.expert_bytes,
        layers=info.n_layers,
        experts_per_layer=info.n_experts,
        experts_used=info.n_experts_used,
        context_trained=info.context_trained or context,
        context=context,
        key=model_key(info),
        thinking=tuple(formatter.thinking),
        recommended=tuple(recommended(info.metadata).items()),
    )


def _line_text(line: PlanLine) -> str:
    size = "" if line.bytes is None else f"{line.bytes} bytes ({gib(line.bytes)})"
    return ", ".join(filter(None, (size, line.note)))
