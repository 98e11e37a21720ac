from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import models
import numpy as np
import pytest
from gguf import GGUFReader, GGUFWriter
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_fixtures import TinyModel

from strata_tui.demo.taps import TappedModel
from strata_tui.engine.gguf_info import (
    GgufInfo,
    expert_groups,
    load_segments,
    override_pattern,
    read_info,
)
from strata_tui.errors import UserError

F32 = 0
SCALARS = {"general.architecture": "x", "x.block_count": 2, "x.expert_used_count": 3}


def expert(layer: int, role: str, n: int, family: str = "exps") -> tuple[str, tuple[int, ...], int]:
    return (f"blk.{layer}.ffn_{role}_{family}.weight", (8, 4, n), F32)


def by_hand(path: Path, tensors: Sequence[tuple[str, tuple[int, ...], int]], **more: int | str | list[int]) -> GgufInfo:
    metadata = SCALARS | {key.replace("__", "."): value for key, value in more.items()}
    return read_info(models.header_only(path / "m.gguf", tensors, metadata, 1 << 16))


# What read_info says


@pytest.mark.parametrize("name", models.MODELS)
def test_tensors_are_where_gguf_finds_them(name: str, tiny_model: TinyModel) -> None:
    info = read_info(tiny_model(name))
    theirs = {
        t.name: (i, t.data_offset, t.n_bytes, int(t.tensor_type), tuple(int(n) for n in t.shape))
        for i, shard in enumerate(info.shards)
        for t in GGUFReader(shard).tensors
    }
    ours = {t.name: (t.shard, t.file_offset, t.nbytes, t.ggml_type, t.dims) for t in info.tensors}
    assert ours == theirs
    assert info.trunk_bytes + info.expert_bytes == sum(t.nbytes for t in info.tensors)
    assert info.file_bytes == sum(shard.stat().st_size for shard in info.shards)
    assert info.n_layers == models.LAYERS
    assert info.context_trained == models.CONTEXT
    assert info.n_vocab == len(models.vocabulary())
    assert info.n_experts == (models.EXPERTS if name in models.MOE_MODELS else 0)
    assert info.n_experts_used == (models.USED if name in models.MOE_MODELS else 0)
    assert info.metadata["tokenizer.chat_template"] == models.CHAT_TEMPLATE
    assert info.arrays["tokenizer.ggml.tokens"].length == info.n_vocab


def test_a_vocabulary_longer_than_the_first_read(tmp_path: Path) -> None:
    tokens = [f"{'word' * (i % 40)}{i}" for i in range(60_000)]
    writer = GGUFWriter(tmp_path / "m.gguf", "x")
    writer.add_token_list(tokens)
    writer.add_array("x.scores", [float(i) for i in range(400_000)])
    writer.add_string("after", "still in step")
    writer.add_tensor("t", np.arange(32, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    info = read_info(tmp_path / "m.gguf")
    assert info.n_vocab == 60_000
    assert info.arrays["x.scores"].length == 400_000
    assert info.arrays["x.scores"].values is None
    assert info.metadata["after"] == "still in step"
    assert info.path.read_bytes()[info.tensors[0].file_offset :] == np.arange(32, dtype=np.float32).tobytes()


def test_quantization_is_the_files_word_or_where_most_bytes_are(tmp_path: Path, tiny_model: TinyModel) -> None:
    q2_0, q8_0 = 42, 8
    tensors = [("a", (256, 4), q2_0), ("b", (32,), q8_0), ("c", (32,), q8_0)]
    assert by_hand(tmp_path, tensors).quantization == "Q2_0"
    assert by_hand(tmp_path, tensors, general__file_type=15).quantization == "Q4_K_M"
    assert by_hand(tmp_path, tensors, general__file_type=1024 + 7).quantization == "Q8_0"
    assert by_hand(tmp_path, tensors, general__file_type=777).quantization == "Q2_0"
    assert read_info(tiny_model("deepseek2")).quantization == "F16"


def test_name_falls_back_to_the_files(tmp_path: Path) -> None:
    assert by_hand(tmp_path, [("a", (4,), F32)]).name == "m"
    assert by_hand(tmp_path, [("a", (4,), F32)], general__name="Ada").name == "Ada"


# Expert groups and the override pattern


def test_groups_of_a_plain_moe(tiny_model: TinyModel) -> None:
    info = read_info(tiny_model("qwen3moe"))
    groups = expert_groups(info)
    assert [g[:3] for g in groups] == [(layer, models.EXPERTS, models.USED) for layer in range(models.LAYERS)]
    for layer, n, _, slices in groups:
        assert [s[0] for s in slices] == [f"blk.{layer}.ffn_{role}_exps.weight" for role in ("gate", "up", "down")]
        assert [s[4:] for s in slices] == [(models.WIDTH, models.FF)] * 2 + [(models.FF, models.WIDTH)]
        for name, shard, offset, kind, _, _ in slices:
            tensor = next(t for t in GGUFReader(info.shards[shard]).tensors if t.name == name)
            assert (tensor.data_offset, int(tensor.tensor_type), len(tensor.data)) == (offset, kind, n)


def test_groups_of_the_other_kinds(tiny_model: TinyModel) -> None:
    def shape(name: str) -> list[tuple[int, int, int, list[str]]]:
        kinds = expert_groups(read_info(tiny_model(name)))
        return [(layer, n, used, [s[0].split(".")[2] for s in slices]) for layer, n, used, slices in kinds]

    assert shape("llama_dense") == []
    assert [g[0] for g in shape("deepseek2")] == [1, 2, 3]
    assert {tuple(g[3]) for g in shape("qwen3next_fused")} == {("ffn_gate_up_exps", "ffn_down_exps")}
    assert shape("grovemoe")[:2] == [
        (0, 4, 4, ["ffn_gate_chexps", "ffn_up_chexps", "ffn_down_chexps"]),
        (0, 16, 4, ["ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"]),
    ]
    assert {s[1] for g in expert_groups(read_info(tiny_model("qwen3moe_split"))) for s in g[3]} == {0, 1, 2}


def test_used_experts_by_layer_and_never_more_than_there_are(tmp_path: Path) -> None:
    tensors = [expert(0, "up", 16), expert(1, "up", 16), expert(1, "up", 2, "chexps")]
    info = by_hand(tmp_path, tensors, x__expert_used_count=[2, 8])
    assert [(g[0], g[1], g[2]) for g in expert_groups(info)] == [(0, 16, 2), (1, 2, 2), (1, 16, 8)]
    assert info.n_experts_used == 8


@pytest.mark.parametrize("used", [0, [3]])
def test_unknown_number_of_used_experts(tmp_path: Path, used: int | list[int]) -> None:
    info = by_hand(tmp_path, [expert(1, "up", 4)], x__expert_used_count=used)
    with pytest.raises(UserError, match="does not say how many"):
        expert_groups(info)


def test_a_layer_whose_tensors_disagree(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="16 experts.*has 4"):
        expert_groups(by_hand(tmp_path, [expert(0, "up", 4), expert(0, "down", 16)]))


def test_small_tensors_of_experts_stay_with_the_trunk(tmp_path: Path, tiny_model: TinyModel) -> None:
    tensors = [
        expert(0, "up", 4),
        ("blk.0.ffn_norm_exps.weight", (8,), F32),
        ("blk.0.ffn_up_exps.scale", (4,), F32),
        ("blk.0.ffn_up_shexp.weight", (8, 4), F32),
    ]
    info = by_hand(tmp_path, tensors)
    assert [t.name for t in info.expert_tensors] == ["blk.0.ffn_up_exps.weight"]
    assert info.expert_bytes == 8 * 4 * 4 * 4
    biases = [t.name for t in read_info(tiny_model("gpt_oss")).expert_tensors if "bias" in t.name]
    assert biases == []


@pytest.mark.parametrize("name", models.MODELS)
def test_pattern_matches_expert_tensors_and_no_other(name: str, tiny_model: TinyModel) -> None:
    info = read_info(tiny_model(name))
    matched = {t.name for t in info.tensors if re.search(override_pattern(info), t.name)}
    assert matched == {s[0] for group in expert_groups(info) for s in group[3]}


def test_pattern_where_a_namesake_is_no_expert_tensor(tmp_path: Path) -> None:
    info = by_hand(tmp_path, [expert(0, "up", 4), ("blk.1.ffn_up_exps.weight", (8, 4), F32)])
    pattern = override_pattern(info)
    assert [t.name for t in info.tensors if re.search(pattern, t.name)] == ["blk.0.ffn_up_exps.weight"]


# The virtual single file


def materialise(info: GgufInfo, path: Path) -> Path:
    """The virtual file with the skipped experts put in, in the order in which they must come."""
    shards = [shard.read_bytes() for shard in info.shards]
    experts = iter(sorted(info.expert_tensors, key=lambda t: (t.shard, t.file_offset)))
    with path.open("wb") as out:
        for length, source in load_segments(info):
            if source is None:
                tensor = next(experts)
                assert tensor.nbytes == length
                source = (tensor.shard, tensor.file_offset)
            data = source if isinstance(source, bytes) else shards[source[0]][source[1] : source[1] + length]
            assert len(data) == length
            out.write(data)
    assert next(experts, None) is None
    return path


def test_one_shard_is_its_own_file(tiny_model: TinyModel, tmp_path: Path) -> None:
    for name in ("qwen3moe", "llama_dense"):
        info = read_info(tiny_model(name))
        assert materialise(info, tmp_path / "copy.gguf").read_bytes() == info.path.read_bytes()
    assert all(source is not None for _, source in load_segments(info)), "a dense model has nothing to skip"
    assert {(t.nbytes, (0, t.file_offset)) for t in info.tensors} <= set(load_segments(info))  # a segment per tensor


def split_with_two_alignments(whole: Path, folder: Path) -> Path:
    """Two shards as llama.cpp's own splitter writes them: only the first states the model's alignment."""
    reader = GGUFReader(whole)
    half = len(reader.tensors) // 2
    for number, tensors in enumerate((reader.tensors[:half], reader.tensors[half:])):
        path = folder / f"two-{number + 1:05}-of-00002.gguf"
        writer = GGUFWriter(path, "qwen3moe")
        if number == 0:
            for key, field in reader.fields.items():
                if not key.startswith("GGUF.") and key != "general.architecture":
                    sub = field.types[1] if len(field.types) > 1 else None
                    writer.add_key_value(key, field.contents(), field.types[0], sub)
            writer.add_custom_alignment(256)
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", 2)
        writer.add_int32("split.tensors.count", len(reader.tensors))
        for t in tensors:
            writer.add_tensor(t.name, t.data, raw_dtype=t.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return folder / "two-00001-of-00002.gguf"


@pytest.mark.parametrize("two_alignments", [False, True])
def test_shards_become_one_file_that_llama_cpp_reads(two_alignments: bool, tmp_path: Path) -> None:
    whole = models.qwen3moe(tmp_path / "whole.gguf")
    if two_alignments:
        first = split_with_two_alignments(whole, tmp_path)
    else:
        first = models.qwen3moe_split(tmp_path / "split.gguf")
    info = read_info(first)
    merged = materialise(info, tmp_path / "merged.gguf")

    ours, theirs = GGUFReader(merged), GGUFReader(whole)
    assert [t.name for t in ours.tensors] == [t.name for t in info.tensors]
    data = {t.name: (t.tensor_type, t.data.shape, t.data.tobytes()) for t in ours.tensors}
    assert data == {t.name: (t.tensor_type, t.data.shape, t.data.tobytes()) for t in theirs.tensors}
    keys = {k for k in theirs.fields if not k.startswith("GGUF.")}
    assert {k for k in ours.fields if not k.startswith("GGUF.")} - {"general.alignment"} == keys
    for key in keys:
        assert ours.fields[key].contents() == theirs.fields[key].contents()

    logits = []
    for path in (whole, merged, first):
        with TappedModel(path, context=64) as model:
            logits.append(model.decode(model.tokenize("the people of water")).tobytes())
    assert logits[0] == logits[1] == logits[2]


def test_any_shard_stands_for_all(tiny_model: TinyModel) -> None:
    first = read_info(tiny_model("qwen3moe_split"))
    for shard in first.shards:
        info = read_info(shard)
        assert (info.path, info.shards, info.tensors) == (shard, first.shards, first.tensors)
    assert first.name == "tiny qwen3moe"


# What can be wrong


def refused(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        read_info(path)
    text = str(caught.value)
    assert text.endswith(".")
    assert "\n" not in text
    return text


def test_no_file_a_folder_or_something_else(tmp_path: Path) -> None:
    assert "no model file" in refused(tmp_path / "nothing.gguf")
    assert "is a folder" in refused(tmp_path)
    assert "not a GGUF file" in refused(models.not_gguf(tmp_path / "m.gguf"))
    (tmp_path / "empty.gguf").touch()
    assert "not a GGUF file" in refused(tmp_path / "empty.gguf")
    os.mkfifo(tmp_path / "pipe.gguf")
    assert "not a regular file" in refused(tmp_path / "pipe.gguf")
    assert "not a regular file" in refused(Path("/dev/zero"))
    assert "big-endian" in refused(models.big_endian(tmp_path / "m.gguf"))
    assert "version 1" in refused(models.old_version(tmp_path / "m.gguf"))


def test_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = models.not_gguf(tmp_path / "m.gguf")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # root may read everything, so a mode would not do
    assert "Permission denied" in refused(path)


def test_cut_short(tmp_path: Path) -> None:
    assert "inside its header" in refused(models.truncated_header(tmp_path / "m.gguf"))
    assert "5,000 bytes of tensor data are missing" in refused(models.truncated_data(tmp_path / "m.gguf"))


def test_cut_anywhere_in_the_header(tmp_path: Path) -> None:
    whole = models.llama_dense(tmp_path / "whole.gguf")
    data = whole.read_bytes()
    start = min(t.file_offset for t in read_info(whole).tensors)
    path = tmp_path / "m.gguf"
    for length in range(0, start, 97):
        path.write_bytes(data[:length])
        refused(path)


def test_missing_shard(tmp_path: Path) -> None:
    first = models.missing_shard(tmp_path / "m.gguf")
    assert str(tmp_path / "m-00002-of-00003.gguf") in refused(first)


def test_shards_with_other_names(tmp_path: Path) -> None:
    first = models.qwen3moe_split(tmp_path / "m.gguf")
    second = first.with_name("m-00002-of-00003.gguf")
    second.rename(tmp_path / "second.gguf")
    assert "must end in -00001-of-00003.gguf" in refused(tmp_path / "second.gguf")
    second.write_bytes(first.read_bytes())
    assert "says it is shard" in refused(first)


def test_shards_of_different_models(tmp_path: Path) -> None:
    first = models.qwen3moe_split(tmp_path / "m.gguf")
    first.with_name("m-00002-of-00003.gguf").write_bytes(first.with_name("m-00003-of-00003.gguf").read_bytes())
    refused(first)


def test_damaged_headers(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    for tensors, metadata, word in [
        ([("a", (4,), F32)], {"no.arch": 1}, "names no model architecture"),
        ([], SCALARS, "holds no tensors"),
        ([("a", (4,), 99)], SCALARS, "tensor type 99"),
        ([("a", (33,), 8)], SCALARS, "impossible"),
        ([("a", (4,), F32), ("a", (4,), F32)], SCALARS, "2 times"),
        ([("a", (1, 1, 1, 1, 4), F32)], SCALARS, "5 dimensions"),
        ([("a", (4,), F32)], SCALARS | {"general.alignment": 48}, "alignment is 48"),
    ]:
        assert word in refused(models.header_only(path, tensors, dict(metadata), 4096))


def test_unknown_architecture_is_left_to_llama_cpp(tmp_path: Path) -> None:
    path = models.unknown_architecture(tmp_path / "m.gguf")
    assert read_info(path).architecture == "zzz-unheard-of"
    with pytest.raises(UserError, match="cannot load"):
        TappedModel(path)


@pytest.fixture(scope="module")
def small_header(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.header_only(
        tmp_path_factory.mktemp("fuzz") / "m.gguf",
        [expert(0, "up", 4), ("a", (32,), 8)],
        SCALARS | {"split.count": 1, "x.list": [1, 2, 3]},
        4096,
    )


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_byte_may_be_wrong(small_header: Path, tmp_path: Path, data: st.DataObject) -> None:
    raw = bytearray(small_header.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 4097))] = data.draw(st.integers(0, 255))
    path = tmp_path / "m.gguf"
    path.write_bytes(raw)
    try:
        info = read_info(path)
        expert_groups(info)
        load_segments(info)
        re.compile(override_pattern(info))
    except UserError as error:
        assert str(error)
