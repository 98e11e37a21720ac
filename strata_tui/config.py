"""Settings and folders: defaults, then the settings file, then the environment, then flags.

A key pressed while the program runs beats a flag; `save` and `save_switches` keep it for the next start.
"""

from __future__ import annotations

import contextlib
import math
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from pathlib import Path
from typing import Any

import platformdirs

from .atomic import write_atomic
from .engine.events import Sampling
from .engine.modes import Drafting, Modes, Pinning, Residency, StagerProfile
from .engine.options import EngineOptions
from .errors import UserError
from .regular import check_regular
from .sections import PER_MODEL, Sections, take_sections, take_table

APP = "strata-tui"
AUTO = "auto"  # as text: leave it to the memory plan (None)
_ENV = "STRATA_TUI_"
_TRUE, _FALSE = ("true", "on", "yes", "1"), ("false", "off", "no", "0")


# Folders. Each can be moved by one variable; none is created by asking for it.


def data_dir() -> Path:
    """Where chats live (STRATA_TUI_DATA)."""
    return _folder("DATA", platformdirs.user_data_path(APP))


def cache_dir() -> Path:
    """What can be made again: the demo model, usage profiles, KV snapshots (STRATA_TUI_CACHE)."""
    return _folder("CACHE", platformdirs.user_cache_path(APP))


def profile_dir() -> Path:
    """The models' usage profiles."""
    return cache_dir() / "profiles"


def snapshot_dir() -> Path:
    """The chats' KV snapshots."""
    return cache_dir() / "snapshots"


def models_dir() -> Path:
    """Where `strata-tui pull` puts models (STRATA_TUI_MODELS)."""
    return _folder("MODELS", data_dir() / "models")


def log_dir() -> Path:
    """Engine logs and crash notes (STRATA_TUI_LOGS)."""
    return _folder("LOGS", platformdirs.user_log_path(APP))


def config_file() -> Path:
    """The settings file (STRATA_TUI_CONFIG)."""
    return _folder("CONFIG", platformdirs.user_config_path(APP) / "settings.toml")


def config_dir() -> Path:
    """The settings file's folder; a person's own themes are in its `themes` folder."""
    return config_file().parent


def store_path() -> Path:
    """The chat database."""
    return data_dir() / "chats.sqlite3"


def _folder(name: str, default: Path) -> Path:
    moved = os.environ.get(_ENV + name)
    return Path(os.path.abspath(os.path.expanduser(moved))) if moved else default


# Settings


@dataclass(frozen=True, slots=True)
class Spec:
    """What one setting may be. `auto`: the word auto (None) is allowed. Limits include their ends."""

    section: str  # of the settings file; "": top level
    kind: Any  # int, float, bool, str, Path or an Enum class
    low: float | None = None
    high: float | None = None
    auto: bool = False

    def allowed(self, typed: bool = False) -> str:
        """The allowed values in words; `typed`: as the text of a flag or variable, not in the settings file."""
        if issubclass(self.kind, Enum):
            return ", ".join(str(m.value) for m in self.kind)
        if self.kind is bool:
            return "on or off" if typed else "true or false"
        if self.kind is str:
            return "text" + (", or auto" if self.auto else "")
        if self.kind is Path:
            return "a path, or auto for the demo model"
        word = "a whole number" if self.kind is int else "a number"
        if self.high is not None:
            word += f" from {self.low} to {self.high}"
        elif self.low is not None:
            word += f" of at least {self.low}"
        return word + (", or auto" if self.auto else "")

    def check(self, value: object) -> Any:
        """The typed value of a TOML value. Raises ValueError."""
        if value is None or (self.auto and value == AUTO):
            if self.auto:
                return None
            raise ValueError
        if issubclass(self.kind, Enum):
            return self.kind(value.value if isinstance(value, Enum) else value)
        if self.kind is Path:
            if not isinstance(value, (str, Path)) or not str(value) or "\0" in str(value):
                raise ValueError
            return Path(os.path.expanduser(value))
        if self.kind in (bool, str):
            if not isinstance(value, self.kind):
                raise ValueError
            return value
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError
        if self.kind is int and not isinstance(value, int):
            raise ValueError
        if not math.isfinite(value):
            raise ValueError
        if (self.low is not None and value < self.low) or (self.high is not None and value > self.high):
            raise ValueError
        return self.kind(value)

    def parse(self, text: str) -> Any:
        """The typed value of a flag's or variable's text. Raises ValueError."""
        if self.auto and text == AUTO:
            return None
        if self.kind is bool:
            word = text.lower()
            if word not in _TRUE + _FALSE:
                raise ValueError
            return word in _TRUE
        if self.kind in (int, float):
            return self.check(self.kind(text))
        return self.check(text)


def _is(section: str, kind: Any, low: float | None = None, high: float | None = None) -> dict[str, Spec]:
    return {"spec": Spec(section, kind, low, high)}


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a person can set. None: auto (the memory plan, or the engine, decides)."""

    model: Path | None = field(default=None, metadata=_is("", Path))  # None: the demo model
    system: str = field(default="", metadata=_is("", str))  # system prompt of new chats

    context: int | None = field(default=None, metadata=_is("engine", int, 256, 2**24))  # tokens
    slots: int | None = field(default=None, metadata=_is("engine", int, 1, 2**24))
    vram_gib: float | None = field(default=None, metadata=_is("engine", float, 0))
    reserve_gib: float | None = field(default=None, metadata=_is("engine", float, 0))
    ram_gib: float | None = field(default=None, metadata=_is("engine", float, 0))
    mirror_gib: float | None = field(default=None, metadata=_is("engine", float, 0))
    gpu: int | None = field(default=None, metadata=_is("engine", int, -1, 255))  # -1: the CPU
    threads: int | None = field(default=None, metadata=_is("engine", int, 1, 1024))
    batch: int | None = field(default=None, metadata=_is("engine", int, 1, 2**16))  # tokens of one graph computation
    stream_from: int | None = field(default=None, metadata=_is("engine", int, 0, 2**16))  # tokens; 0: never
    ring_gib: float | None = field(default=None, metadata=_is("engine", float, 0))
    pinning: Pinning = field(default=Pinning.AUTO, metadata=_is("engine", Pinning))
    stager: StagerProfile = field(default=StagerProfile.AUTO, metadata=_is("engine", StagerProfile))
    stager_threads: int | None = field(default=None, metadata=_is("engine", int, 1, 32))
    pool_buffers: int = field(default=24, metadata=_is("engine", int, 2, 4096))  # depth of the ring of stage buffers
    residency: Residency = field(default=Residency.LRU, metadata=_is("engine", Residency))
    draft: Drafting = field(default=Drafting.AUTO, metadata=_is("engine", Drafting))
    draft_min_p: float = field(default=0.0, metadata=_is("engine", float, 0, 1))
    profile: bool = field(default=True, metadata=_is("engine", bool))  # read and write usage profiles
    snapshot_ram_gib: float | None = field(default=None, metadata=_is("engine", float, 0))
    snapshot_disk_gib: float = field(default=4.0, metadata=_is("engine", float, 0))
    verify_cache: int = field(default=0, metadata=_is("engine", int, 0, 2**31))  # rounds between checks; 0: none

    # None: the model's own value, else the usual one (engine/sampling.py)
    temperature: float | None = field(default=None, metadata=_is("sampling", float, 0, 10))
    top_k: int | None = field(default=None, metadata=_is("sampling", int, 0, 2**24))
    top_p: float | None = field(default=None, metadata=_is("sampling", float, 0, 1))
    min_p: float | None = field(default=None, metadata=_is("sampling", float, 0, 1))
    top_n_sigma: float | None = field(default=None, metadata=_is("sampling", float, 0, 100))
    typical_p: float | None = field(default=None, metadata=_is("sampling", float, 0, 1))
    repeat_penalty: float | None = field(default=None, metadata=_is("sampling", float, 0.1, 10))
    presence_penalty: float | None = field(default=None, metadata=_is("sampling", float, -2, 2))
    frequency_penalty: float | None = field(default=None, metadata=_is("sampling", float, -2, 2))
    penalty_window: int | None = field(default=None, metadata=_is("sampling", int, 0, 2**16))
    seed: int | None = field(default=None, metadata=_is("sampling", int, 0, 2**32 - 2))
    max_tokens: int | None = field(default=None, metadata=_is("sampling", int, 1, 2**24))
    thinking: str | None = field(default=None, metadata=_is("sampling", str))  # a word of the model's chat template

    theme: str = field(default="", metadata=_is("screen", str))  # "": the default theme
    sidebar: bool = field(default=True, metadata=_is("screen", bool))
    panel: bool = field(default=True, metadata=_is("screen", bool))
    mouse: bool = field(default=True, metadata=_is("screen", bool))  # off: the terminal selects text by itself

    @property
    def modes(self) -> Modes:
        """The engine's switches as asked for."""
        return Modes(self.pinning, self.stager, self.residency, self.draft)

    @property
    def sampling(self) -> Sampling:
        """The sampling parameters of a reply."""
        return Sampling(**{f.name: getattr(self, f.name) for f in fields(Sampling)})

    def engine_options(self, log: Path | None = None) -> EngineOptions:
        """What the engine is opened with."""
        return EngineOptions(
            context=self.context,
            slots=self.slots,
            vram_gib=self.vram_gib,
            reserve_gib=self.reserve_gib,
            ram_gib=self.ram_gib,
            mirror_gib=self.mirror_gib,
            gpu=self.gpu,
            threads=self.threads,
            batch=self.batch,
            stream_from=self.stream_from,
            ring_gib=self.ring_gib,
            modes=self.modes,
            stager_threads=self.stager_threads,
            pool_buffers=self.pool_buffers,
            profiles=profile_dir() if self.profile else None,
            draft_min_p=self.draft_min_p,
            snapshot_ram_gib=self.snapshot_ram_gib,
            snapshot_disk_gib=self.snapshot_disk_gib,
            snapshots=snapshot_dir(),
            verify_cache=self.verify_cache,
            log=log,
        )


SPECS: Mapping[str, Spec] = {f.name: replace(f.metadata["spec"], auto=f.default is None) for f in fields(Settings)}
# What a chat, or a model in the settings file, may have of its own.
OWN = ("system", *(name for name, spec in SPECS.items() if spec.section == "sampling"))


@dataclass(slots=True)
class Given:
    """What was set, by where it was set: names of Settings and their values. Nothing else is in the tables."""

    file: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    flags: dict[str, Any] = field(default_factory=dict)
    per_model: dict[str, dict[str, Any]] = field(default_factory=dict)  # of the file: a model's name or key -> values
    sections: Sections = field(default_factory=Sections)

    @property
    def settings(self) -> Settings:
        """All together."""
        return Settings(**{**self.file, **self.environment, **self.flags})


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """What the chat screen is started with."""

    settings: Settings  # file, environment and flags together
    engine: EngineOptions
    model: Path | None  # None: the demo model
    resume: int | None = None  # id of the chat to open; None: a new one
    store: Path = field(default_factory=store_path)  # the chat database
    settings_file: Path = field(default_factory=config_file)  # where `save` writes
    given: Given = field(default_factory=Given)


def load_settings(
    flags: Mapping[str, str] | None = None, path: Path | None = None, environ: Mapping[str, str] | None = None
) -> Settings:
    """Settings from file, environment and flags (setting name -> text as typed). Raises UserError."""
    return load_given(flags, path, environ).settings


def load_given(
    flags: Mapping[str, str] | None = None, path: Path | None = None, environ: Mapping[str, str] | None = None
) -> Given:
    """The same, by where each setting comes from. Raises UserError."""
    given = read_given(path or config_file())
    env = os.environ if environ is None else environ
    texts = {name: env[_ENV + name.upper()] for name in SPECS if env.get(_ENV + name.upper())}
    given.environment = _parsed(texts, lambda name: f"The variable {_ENV}{name.upper()}")
    given.flags = _parsed(flags or {}, flag_of)
    return given


def flag_of(name: str) -> str:
    """The command line's flag of a setting."""
    return "--ctx" if name == "context" else "--" + name.replace("_", "-")


def read_file(path: Path) -> Settings:
    """Defaults, overlaid by the settings file where there is one. Raises UserError."""
    return read_given(path).settings


def read_given(path: Path) -> Given:
    """What the settings file sets; nothing where there is none. Raises UserError."""
    try:
        check_regular(path, f"The settings file {path}", "set STRATA_TUI_CONFIG to one on a disk")
        with path.open("rb") as stream:
            data = tomllib.load(stream)
    except FileNotFoundError:
        return Given()
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"The settings file {path} is not valid TOML: {error}.") from error
    except OSError as error:
        raise UserError(f"The settings file {path} cannot be read: {error.strerror}.") from error
    given = Given(sections=take_sections(data, path))
    for name, table in take_table(data, PER_MODEL, path).items():
        if not isinstance(table, dict):
            raise UserError(f"{path}: {PER_MODEL}.{name} = {_show(table)} must be a section.")
        given.per_model[name] = {}
        for key, value in table.items():
            if key not in OWN:
                raise UserError(f"{path}: unknown key {PER_MODEL}.{name}.{key}; the keys are {', '.join(OWN)}.")
            what = f"{path}: {PER_MODEL}.{name}.{key} = {_show(value)}"
            given.per_model[name][key] = _checked(SPECS[key], value, what)
    for section, key, value in _entries(data, path):
        spec = SPECS.get(key)
        if spec is None or spec.section != section:
            known = ", ".join(_dotted(n, s) for n, s in SPECS.items())
            raise UserError(f"{path}: unknown key {_join(section, key)} = {_show(value)}; the keys are {known}.")
        checked = _checked(spec, value, f"{path}: {_dotted(key, spec)} = {_show(value)}")
        if checked is not None:  # auto is as if it were not there
            given.file[key] = checked
    model = given.file.get("model")
    if model is not None:
        given.file["model"] = path.parent / model  # a relative path is relative to the file that names it
    return given


def save(changes: Mapping[str, object], path: Path | None = None, model: str = "") -> None:
    """Writes some settings (name -> value; None: auto), keeping comments and the other keys.

    `model`: only for the model of that name or key. Atomic, and safe beside a second instance that saves at
    the same time. Raises UserError when the file cannot be written, or is not valid (it is then left as it is).
    """
    import tomlkit

    path = Path(os.path.realpath(path or config_file()))  # a link (dotfiles) stays a link
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path.parent):
            read_file(path)  # refuses a broken file
            doc = tomlkit.parse(path.read_text(encoding="utf-8") if path.exists() else "")
            for name, value in changes.items():
                spec = SPECS[name]
                plain = _plain(_checked(spec, value, f"{_dotted(name, spec)} = {_show(value)}"))
                place = [PER_MODEL, model] if model else [spec.section] if spec.section else []
                _put(doc, place, name, plain)
            write_atomic(path, tomlkit.dumps(doc))
    except OSError as error:
        raise UserError(f"The settings file {path} cannot be written: {error.strerror}.") from error


def _put(doc: Any, place: list[str], name: str, plain: object) -> None:
    """Sets a key in the table at `place`, which is made where it is missing; None removes the key."""
    import tomlkit

    table = doc
    for number, part in enumerate(place):
        if part not in table:
            if plain is None:
                return
            last = number == len(place) - 1
            table[part] = tomlkit.table(is_super_table=not last)
        table = table[part]
    if plain is not None:
        table[name] = plain
    elif name in table:
        del table[name]


def save_switches(modes: Modes, path: Path | None = None) -> None:
    """Keeps the engine's switches for the next start. Raises UserError."""
    save({f.name: getattr(modes, f.name) for f in fields(Modes)}, path)


def _parsed(texts: Mapping[str, str], origin: Callable[[str], str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, text in texts.items():
        try:
            values[name] = SPECS[name].parse(text)
        except ValueError:
            raise UserError(f"{origin(name)} is {text!r}; allowed: {SPECS[name].allowed(typed=True)}.") from None
    return values


def _entries(data: Mapping[str, Any], path: Path) -> Iterator[tuple[str, str, Any]]:
    sections = {s.section for s in SPECS.values() if s.section}
    for key, value in data.items():
        if key in sections:
            if not isinstance(value, dict):
                raise UserError(f"{path}: {key} = {_show(value)} must be a section, written [{key}].")
            yield from ((key, k, v) for k, v in value.items())
        else:
            yield "", key, value


def _checked(spec: Spec, value: object, what: str) -> Any:
    try:
        return spec.check(value)
    except ValueError:
        raise UserError(f"{what} is not allowed; allowed: {spec.allowed()}.") from None


def _dotted(name: str, spec: Spec) -> str:
    return _join(spec.section, name)


def _join(section: str, key: str) -> str:
    return f"{section}.{key}" if section else key


def _show(value: object) -> str:
    text = repr(value.value if isinstance(value, Enum) else value)
    return text if len(text) <= 60 else text[:57] + "..."


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, Path) else value


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Holds an advisory lock on a folder, so that two instances do not lose each other's change."""
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
