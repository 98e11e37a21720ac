from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from strata_tui import config
from strata_tui.config import SPECS, Settings, load_given, load_settings, save, save_switches
from strata_tui.engine.events import Sampling
from strata_tui.engine.modes import Drafting, Modes, Pinning, Residency, StagerProfile
from strata_tui.errors import UserError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "settings.toml"


def load(file: Path, flags: dict[str, str] | None = None, env: dict[str, str] | None = None) -> Settings:
    return load_settings(flags, file, env or {})


def test_without_a_file_all_is_default(file: Path) -> None:
    assert load(file) == Settings()
    assert Settings().modes == Modes()
    assert Settings().sampling == Sampling()


def test_every_setting_can_be_in_the_file(file: Path) -> None:
    file.write_text(
        """
        model = "/models/a.gguf"
        system = "Be brief."
        [engine]
        context = 8192
        slots = 96
        vram_gib = 10
        reserve_gib = 1.5
        ram_gib = 20.0
        mirror_gib = "auto"
        gpu = -1
        threads = 4
        batch = 256
        stream_from = 48
        ring_gib = 0.5
        snapshot_ram_gib = 2
        snapshot_disk_gib = 0
        pinning = "on"
        stager = "ssd"
        stager_threads = 12
        pool_buffers = 64
        residency = "adaptive"
        draft = 3
        draft_min_p = 0.25
        profile = false
        verify_cache = 64
        [sampling]
        temperature = 0
        top_k = 20
        top_p = 0.9
        min_p = 0.0
        top_n_sigma = 1.5
        typical_p = 0.98
        repeat_penalty = 1.1
        presence_penalty = 0.5
        frequency_penalty = -0.5
        penalty_window = 128
        thinking = "off"
        seed = 7
        max_tokens = 100
        [screen]
        theme = "strata-light"
        sidebar = false
        panel = false
        mouse = false
        """
    )
    settings = load(file)
    assert settings == Settings(
        model=Path("/models/a.gguf"),
        system="Be brief.",
        context=8192,
        slots=96,
        vram_gib=10.0,
        reserve_gib=1.5,
        ram_gib=20.0,
        mirror_gib=None,
        gpu=-1,
        threads=4,
        batch=256,
        stream_from=48,
        ring_gib=0.5,
        snapshot_ram_gib=2.0,
        snapshot_disk_gib=0.0,
        pinning=Pinning.ON,
        stager=StagerProfile.SSD,
        stager_threads=12,
        pool_buffers=64,
        residency=Residency.ADAPTIVE,
        draft=Drafting.THREE,
        draft_min_p=0.25,
        profile=False,
        verify_cache=64,
        temperature=0.0,
        top_k=20,
        top_p=0.9,
        min_p=0.0,
        top_n_sigma=1.5,
        typical_p=0.98,
        repeat_penalty=1.1,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        penalty_window=128,
        thinking="off",
        seed=7,
        max_tokens=100,
        theme="strata-light",
        sidebar=False,
        panel=False,
        mouse=False,
    )
    written = file.read_text()
    assert [n for n in SPECS if f"{n} =" not in written] == []  # a new setting belongs in this test
    assert settings.sampling == Sampling(0.0, 20, 0.9, 0.0, 1.5, 0.98, 1.1, 0.5, -0.5, 128, 7, 100, "off")
    assert settings.modes == Modes(Pinning.ON, StagerProfile.SSD, Residency.ADAPTIVE, Drafting.THREE)


def test_flag_beats_environment_beats_file_beats_default(file: Path) -> None:
    file.write_text('[engine]\nslots = 1\nbatch = 1\npinning = "off"\n')
    env = {"STRATA_TUI_SLOTS": "2", "STRATA_TUI_PINNING": "on", "STRATA_TUI_STAGER": ""}
    env["STRATA_TUI_RESIDENCY"] = "frozen"
    assert load(file).slots == 1
    assert load(file, env=env).slots == 2
    assert load(file, env=env).residency is Residency.FROZEN
    settings = load(file, {"slots": "3"}, env)
    assert (settings.slots, settings.batch, settings.pinning, settings.stager) == (
        3,
        1,
        Pinning.ON,
        StagerProfile.AUTO,
    )
    assert load(file, {"slots": "auto"}, env).slots is None


@pytest.mark.parametrize(
    ("text", "key", "value", "allowed"),
    [
        ("slotz = 3", "slotz", "3", "engine.slots"),
        ("[engine]\nslotz = 3", "engine.slotz", "3", "engine.slots"),
        ("[sampling]\nslots = 3", "sampling.slots", "3", "engine.slots"),
        ("[engine]\nslots = 0", "engine.slots", "0", "a whole number from 1 to"),
        ("[engine]\nslots = 1.5", "engine.slots", "1.5", "a whole number"),
        ("[engine]\nslots = true", "engine.slots", "True", "or auto"),
        ("[engine]\nvram_gib = nan", "engine.vram_gib", "nan", "a number of at least 0"),
        ("[engine]\nvram_gib = -1", "engine.vram_gib", "-1", "at least 0"),
        ("[engine]\npinning = 'maybe'", "engine.pinning", "'maybe'", "auto, on, off"),
        ("[engine]\nstager = 1", "engine.stager", "1", "auto, ram, ssd"),
        ("[engine]\nresidency = 'auto'", "engine.residency", "'auto'", "lru, adaptive, frozen"),
        ("[engine]\nverify_cache = -1", "engine.verify_cache", "-1", "from 0 to"),
        ("[engine]\nprofile = 'off'", "engine.profile", "'off'", "true or false"),
        ("[engine]\nverify_cache = 'auto'", "engine.verify_cache", "'auto'", "a whole number"),
        ("[sampling]\ntop_p = 1.01", "sampling.top_p", "1.01", "from 0 to 1"),
        ("[screen]\npanel = 'yes'", "screen.panel", "'yes'", "true or false"),
        ("[screen]\ntheme = 3", "screen.theme", "3", "text"),
        ("model = ''", "model", "''", "a path"),
        ("engine = 3", "engine", "3", "[engine]"),
    ],
)
def test_a_bad_entry_is_named_with_file_key_value_and_what_is_allowed(
    file: Path, text: str, key: str, value: str, allowed: str
) -> None:
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        load(file)
    message = str(caught.value)
    assert message.startswith(f"{file}: ")
    assert f"{key} = {value} " in message or f"{key} = {value};" in message
    assert allowed in message
    assert "\n" not in message


@pytest.mark.parametrize("raw", [b"[engine", b"model = 'a'\nmodel = 'b'", b"\xff\xfe", b"x"])
def test_a_file_that_is_no_toml(file: Path, raw: bytes) -> None:
    file.write_bytes(raw)
    with pytest.raises(UserError, match=re.escape(f"{file} is not valid TOML")):
        load(file)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        load(tmp_path)  # a folder


def test_bad_environment_and_flags_are_named(file: Path) -> None:
    with pytest.raises(UserError, match=r"STRATA_TUI_PINNING is 'maybe'; allowed: auto, on, off\."):
        load(file, env={"STRATA_TUI_PINNING": "maybe"})
    with pytest.raises(UserError, match=r"STRATA_TUI_PROFILE is 'maybe'; allowed: on or off\."):
        load(file, env={"STRATA_TUI_PROFILE": "maybe"})
    with pytest.raises(UserError, match=r"--vram-gib is 'x'; allowed: a number"):
        load(file, {"vram_gib": "x"})
    with pytest.raises(UserError, match=r"--ctx is '1e3'; allowed: a whole number"):
        load(file, {"context": "1e3"})
    with pytest.raises(UserError, match="--temperature is 'inf'"):
        load(file, {"temperature": "inf"})


@pytest.mark.parametrize(("text", "value"), [("on", True), ("False", False), ("0", False), ("YES", True)])
def test_words_for_true_and_false_in_variables(file: Path, text: str, value: bool) -> None:
    assert load(file, env={"STRATA_TUI_PANEL": text}).panel is value


def test_model_paths(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    file.write_text('model = "sub/a.gguf"')
    assert load(file).model == file.parent / "sub/a.gguf"
    assert load(file, {"model": "b.gguf"}).model == Path("b.gguf")
    assert load(file, {"model": "~/b.gguf"}).model == Path("/home/me/b.gguf")
    assert load(file, {"model": "auto"}).model is None


def test_save_keeps_comments_order_and_other_keys(file: Path) -> None:
    file.write_text('# my settings\nmodel = "m.gguf" # the big one\n\n[engine]\n# few\nslots = 5\n')
    save({"theme": "strata-dark", "slots": 6, "system": "hi", "panel": False}, file)
    text = file.read_text()
    assert "# my settings\n" in text
    assert 'model = "m.gguf" # the big one\n' in text
    assert "# few\nslots = 6\n" in text
    assert load(file) == Settings(model=file.parent / "m.gguf", slots=6, system="hi", theme="strata-dark", panel=False)


def test_save_of_auto_takes_the_key_out(file: Path) -> None:
    file.write_text("[engine]\nslots = 5\nthreads = 2\n")
    save({"slots": None, "seed": None}, file)
    assert file.read_text() == "[engine]\nthreads = 2\n"


def test_switches_are_kept_for_the_next_start(tmp_path: Path) -> None:
    file = tmp_path / "not" / "there yet" / "settings.toml"
    save_switches(Modes(Pinning.OFF, StagerProfile.RAM), file)
    assert load(file).modes == Modes(Pinning.OFF, StagerProfile.RAM)
    save_switches(Modes(Pinning.AUTO, StagerProfile.RAM, Residency.FROZEN), file)
    assert load(file).modes == Modes(Pinning.AUTO, StagerProfile.RAM, Residency.FROZEN)


def test_save_follows_a_link_and_keeps_permissions(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.toml"
    real.write_text("# real\n")
    real.chmod(0o600)
    link = tmp_path / "settings.toml"
    link.symlink_to(real)
    save({"slots": 2}, link)
    assert link.is_symlink()
    assert load(real).slots == 2
    assert real.stat().st_mode & 0o777 == 0o600


def test_save_refuses_and_leaves_a_broken_file(file: Path) -> None:
    file.write_text("[engine\n# precious")
    with pytest.raises(UserError, match="not valid TOML"):
        save({"slots": 2}, file)
    assert file.read_text() == "[engine\n# precious"
    file.write_text("")
    with pytest.raises(UserError, match=r"engine.slots = 0 is not allowed"):
        save({"slots": 0}, file)
    with pytest.raises(UserError, match="cannot be written"):
        save({"slots": 1}, Path("/proc/no-such/settings.toml"))


def test_two_programs_saving_at_once_lose_nothing(file: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from strata_tui.config import save\n"
        "for n in range(1, 21): save({sys.argv[1]: n}, Path(sys.argv[2]))"
    )
    names = ["slots", "threads", "batch"]
    started = [subprocess.Popen([sys.executable, "-c", code, name, str(file)]) for name in names]
    assert [p.wait() for p in started] == [0, 0, 0]
    settings = load(file)
    assert (settings.slots, settings.threads, settings.batch) == (20, 20, 20)
    assert os.listdir(file.parent) == ["settings.toml"]


def test_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("DATA", "CACHE", "LOGS", "CONFIG"):
        monkeypatch.delenv(f"STRATA_TUI_{name}", raising=False)
    if sys.platform == "linux":
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "d"))
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "c"))
        assert config.store_path() == tmp_path / "d/strata-tui/chats.sqlite3"
        assert config.config_file() == tmp_path / "c/strata-tui/settings.toml"
    monkeypatch.setenv("STRATA_TUI_DATA", str(tmp_path / "mine"))
    monkeypatch.setenv("STRATA_TUI_CACHE", "~/cache")
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("STRATA_TUI_CONFIG", str(tmp_path / "other.toml"))
    assert config.store_path() == tmp_path / "mine/chats.sqlite3"
    assert config.cache_dir() == Path("/home/me/cache")
    assert config.config_file() == tmp_path / "other.toml"
    assert config.config_dir() == tmp_path
    assert not list(tmp_path.iterdir())  # asking creates nothing


def test_where_each_setting_comes_from(file: Path) -> None:
    file.write_text('[engine]\nslots = 3\nbatch = 64\n[sampling]\ntop_k = "auto"\ntemperature = 1.0\n')
    given = load_given({"slots": "5", "temperature": "auto"}, file, {"STRATA_TUI_BATCH": "32"})
    assert given.file == {"slots": 3, "batch": 64, "temperature": 1.0}
    assert given.environment == {"batch": 32} and given.flags == {"slots": 5, "temperature": None}
    assert (given.settings.slots, given.settings.batch, given.settings.temperature) == (5, 32, None)


def test_sections_with_names_of_ones_own(file: Path) -> None:
    file.write_text(
        """
        [keys]
        chats = "f3, alt+c"
        help = []
        [models]
        folders = ["~/models", "beside"]
        [per_model."Big One"]
        temperature = 0.3
        system = "Think first."
        """
    )
    given = load_given({}, file, {})
    assert given.sections.keys == {"chats": ("f3", "alt+c"), "help": ()}
    assert given.sections.folders == (Path.home() / "models", file.parent / "beside")
    assert given.per_model == {"Big One": {"temperature": 0.3, "system": "Think first."}}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("keys = 3", "keys must be a section, written [keys]"),
        ("[keys]\nhelp = 1", "keys.help must be a text or a list of texts"),
        ("[models]\nfolder = 'x'", "unknown key models.folder; the only key there is folders"),
        ("[per_model]\nx = 1", "per_model.x = 1 must be a section"),
        ("[per_model.x]\nslots = 1", "unknown key per_model.x.slots; the keys are system, temperature"),
        ("[per_model.x]\ntop_p = 2", "per_model.x.top_p = 2 is not allowed; allowed: a number from 0 to 1"),
    ],
)
def test_faults_in_these_sections_are_named(file: Path, text: str, reason: str) -> None:
    file.write_text(text)
    with pytest.raises(UserError, match=re.escape(reason)):
        load(file)


def test_a_models_own_values_are_written_and_taken_back(file: Path) -> None:
    file.write_text("# mine\nmodel = 'a.gguf'\n[per_model.other]\ntop_k = 3\n")
    save({"temperature": 0.5, "system": "Be brief."}, file, model="Big One 2.0")
    assert load_given({}, file, {}).per_model["Big One 2.0"] == {"temperature": 0.5, "system": "Be brief."}
    save({"temperature": None}, file, model="Big One 2.0")
    save({"temperature": None}, file, model="never heard of")
    given = load_given({}, file, {})
    assert given.per_model == {"other": {"top_k": 3}, "Big One 2.0": {"system": "Be brief."}}
    assert file.read_text().startswith("# mine\n")
    with pytest.raises(UserError, match="top_p = 3"):
        save({"top_p": 3}, file, model="x")
