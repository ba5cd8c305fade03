"""Quantised weights of Hugging Face's files: read as they are, never cast as if floats, dequantised on demand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.torch import save_file as save_torch

import allranks
from allranks.errors import DoesNotFit, UnknownFormat
from allranks.world.base import World
from allranks.world.detect import single_world
from allranks.world.simulated import SimulatedWorld

RANDOM = np.random.default_rng(0)
FP8 = RANDOM.normal(size=(6, 8)).astype(np.float32).astype(ml_dtypes.float8_e4m3fn)
NF4 = np.linspace(-1, 1, 16, dtype=np.float32)  # a map of values: that of the file counts


def file(folder: Path, arrays: Mapping[str, Any], config: Any = None) -> Path:
    """Write a file as ``save_pretrained`` does."""
    folder.mkdir(exist_ok=True)
    rest = {"norm.weight": np.ones(3, np.float32)}
    save_torch({name: tensor(one) for name, one in {**arrays, **rest}.items()}, folder / "model.safetensors")
    if config is not None:
        (folder / "config.json").write_text(json.dumps({"quantization_config": config}))
    return folder


def tensor(array: Any) -> torch.Tensor:
    if array.dtype == ml_dtypes.float8_e4m3fn:
        return torch.from_numpy(array.view(np.uint8).copy()).view(torch.float8_e4m3fn)
    return torch.from_numpy(np.array(array, order="C"))


def state_of(shape: tuple[int, ...], **more: Any) -> np.ndarray[Any, Any]:
    text = json.dumps({"quant_type": "nf4", "blocksize": 8, "dtype": "bfloat16", "shape": shape, **more})
    return np.frombuffer(text.encode(), np.uint8)


def four_bits(nested: bool) -> tuple[dict[str, Any], np.ndarray[Any, Any]]:
    """Return a weight of an odd number of elements as bitsandbytes stores it, and the floats, counted one by one."""
    places, largest = RANDOM.integers(0, 16, 35), RANDOM.random(5).astype(np.float32)
    padded = np.append(places, 0).astype(np.uint8)
    parts = {"": (padded[::2] << 4 | padded[1::2]).reshape(-1, 1), ".quant_map": NF4}
    more: dict[str, Any] = {}
    if nested:
        codes, table, above = RANDOM.integers(0, 256, 5).astype(np.uint8), NF4.repeat(16), RANDOM.random(3).astype("f4")
        parts |= {".absmax": codes, ".nested_quant_map": table, ".nested_absmax": above}
        more = {"nested_blocksize": 2, "nested_dtype": "float32", "nested_offset": 0.25}
        largest = np.array([table[code] * above[n // 2] + np.float32(0.25) for n, code in enumerate(codes)], np.float32)
    else:
        parts[".absmax"] = largest
    parts[".quant_state.bitsandbytes__nf4"] = state_of((5, 7), **more)
    floats = np.array([NF4[place] * largest[n // 8] for n, place in enumerate(places)], np.float32).reshape(5, 7)
    return {f"q.weight{ending}": one for ending, one in parts.items()}, floats


ONE, ROWS = np.array([0.5], np.float32), RANDOM.random((6, 1)).astype(np.float32)
BLOCKS = RANDOM.random((2, 3)).astype(np.float32)
WIDE = BLOCKS.repeat(4, 0)[:6].repeat(3, 1)[:, :8]
INTS, LARGEST = RANDOM.integers(-127, 128, (6, 8)).astype(np.int8), RANDOM.random(6).astype(np.float32)
NUMBERS = FP8.astype(np.float32)
BNB = {"quant_method": "bitsandbytes"}
# By kind: the arrays of a weight and the floats that it stands for; the configuration.
KINDS: dict[str, tuple[tuple[dict[str, Any], Any], Any]] = {
    "fp8 tensor": (({"q.weight": FP8, "q.weight_scale": ONE, "q.input_scale": ONE}, NUMBERS * ONE), None),
    "fp8 rows": (({"q.weight": FP8, "q.weight_scale": ROWS}, NUMBERS * ROWS), None),
    "fp8 vector": (({"q.weight": FP8, "q.weight_scale": ROWS[:, 0]}, NUMBERS * ROWS), None),
    "fp8 blocks": (({"q.weight": FP8, "q.weight_scale_inv": BLOCKS}, NUMBERS * WIDE), {"weight_block_size": [4, 3]}),
    "int8 rows": (({"q.weight": INTS, "q.weight_scale": ROWS}, INTS * ROWS), None),
    "int8 bnb": (
        (
            {"q.weight": INTS, "q.SCB": LARGEST, "q.weight_format": np.array(0, np.uint8)},
            INTS.astype(np.float32) * LARGEST[:, None] * np.float32(1 / 127),
        ),
        BNB,
    ),
    "nf4": (four_bits(nested=False), BNB),
    "nf4 nested": (four_bits(nested=True), BNB),
}
# Those that are not dequantised.
OTHERS: dict[str, dict[str, Any]] = {
    "GPTQ": {f"q.{name}": np.ones((2, 2), np.int32) for name in ("qweight", "qzeros", "scales", "g_idx")},
    "AWQ": {f"q.{name}": np.ones((2, 2), np.int32) for name in ("qweight", "qzeros", "scales")},
    "compressed-tensors": {"q.weight_packed": np.ones((2, 2), np.int32), "q.weight_scale": ROWS},
    "torchao": {"q._weight_qdata": INTS, "q._weight_scale": ROWS},
    "MXFP4": {"q.weight_blocks": np.ones((2, 2), np.uint8), "q.weight_scales": np.ones((2, 1), np.uint8)},
}


def into(shape: tuple[int, ...], dtype: Any = np.float32) -> dict[str, Any]:
    return {"q": {"weight": np.zeros(shape, dtype)}, "norm": {"weight": np.zeros(3, np.float32)}}


@pytest.mark.parametrize("kind", KINDS)
def test_quantised_weights_are_dequantised_on_demand_alone(kind: str, tmp_path: Path) -> None:
    """Exactly, on two ranks too. Else they are refused by name, also where a cast would have been silent."""
    (arrays, floats), config = KINDS[kind]
    path = file(tmp_path / "f", arrays, config)
    template = into(floats.shape)
    with pytest.raises(DoesNotFit, match=r"(?s)q.weight: .*here.*dequantize=True") as raised:
        allranks.load(path, into=template, allow_unexpected=["q.*"], world=single_world())
    assert [one.kind for one in raised.value.differences if one.path] == ["packed"]  # type: ignore[attr-defined]
    assert not template["q"]["weight"].any()
    report = allranks.load(path, into=template, dequantize=True, world=single_world())
    assert np.array_equal(template["q"]["weight"], floats)
    assert report.coverage == report.used_of_file == 1.0
    half = torch.zeros(floats.shape, dtype=torch.bfloat16)
    allranks.load(path, into={"q.weight": half, "norm.weight": torch.zeros(3)}, dequantize=True, world=single_world())
    assert torch.equal(half, torch.from_numpy(floats).bfloat16())

    def job(world: World) -> Any:
        return allranks.load(path, into=into(floats.shape), dequantize=True, world=world).state["q"]["weight"]

    assert all(np.array_equal(one, floats) for one in SimulatedWorld(2).run(job).values())


@pytest.mark.parametrize("kind", [*KINDS, *OTHERS])
def test_without_a_template_the_arrays_are_as_in_the_file(kind: str, tmp_path: Path) -> None:
    arrays = OTHERS[kind] if kind in OTHERS else KINDS[kind][0][0]
    found = allranks.load(file(tmp_path / "f", arrays), world=single_world())
    assert found.state.keys() == {*arrays, "norm.weight"}
    assert all(found.state[name].tobytes() == one.tobytes() for name, one in arrays.items())
    assert all(found.state[name].dtype == one.dtype for name, one in arrays.items())
    assert "weights are quantised" in str(found)


@pytest.mark.parametrize("dequantize", [False, True])
@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_not_unpacked_here_is_refused_by_name(kind: str, dequantize: bool, tmp_path: Path) -> None:
    path = file(tmp_path / "f", OTHERS[kind], {"quant_method": kind.lower()})
    template = into((6, 8))
    with pytest.raises(DoesNotFit) as raised:
        allranks.load(path, into=template, allow_unexpected=["*"], dequantize=dequantize, world=single_world())
    text = str(raised.value)
    assert "quantised in the file, not in the template: not loaded (1):" in text
    assert "q/weight: " in text
    assert f"config.json says quant_method '{kind.lower()}'" in text
    assert "unpacked by the library that wrote them" in text
    assert "dequantize=True makes floats" not in text
    assert not template["norm"]["weight"].any()
    kept = allranks.load(
        path,
        into=template,
        allow_missing=["q.*"],
        allow_unexpected=["q.*"],
        dequantize=dequantize,
        world=single_world(),
    )
    assert kept.missing == ("q/weight",)


@pytest.mark.parametrize(
    ("change", "config", "says"),
    [
        (
            {"q.weight_scale_inv": BLOCKS},
            None,
            r"shape \[2, 3\], which does not fit \[6, 8\] with weight_block_size None",
        ),
        ({"q.weight_scale_inv": BLOCKS}, {"weight_block_size": [2, 2]}, "weight_block_size"),
        ({"q.weight_scale_inv": BLOCKS}, {"weight_block_size": "x"}, "weight_block_size"),
        ({"q.weight_scale_inv": ROWS[:5]}, {"weight_block_size": [0, 3]}, "weight_block_size"),
        ({"q.weight_scale": ONE, "q.weight_zero_point": ONE}, None, "it has a zero point"),
    ],
)
def test_scales_that_are_not_known_are_refused(change: Any, config: Any, says: str, tmp_path: Path) -> None:
    path = file(tmp_path / "f", {"q.weight": FP8, **change}, config)
    with pytest.raises(UnknownFormat, match=rf"dequantize: 'q.weight' .*{says}.*transformers"):
        allranks.load(path, into=into((6, 8)), dequantize=True, world=single_world())


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", state_of((500, 7)).tobytes(), state_of((-1,)).tobytes()])
def test_a_state_that_cannot_be_is_refused(text: bytes, tmp_path: Path) -> None:
    arrays = {**four_bits(nested=False)[0], "q.weight.quant_state.bitsandbytes__nf4": np.frombuffer(text, np.uint8)}
    path = file(tmp_path / "f", arrays)
    with pytest.raises(UnknownFormat, match="its quant_state cannot be used"):
        allranks.load(path, into=into((5, 7)), dequantize=True, world=single_world())


def test_a_config_that_is_none_is_no_config(tmp_path: Path) -> None:
    for text in ("no json", "[]", "[" * 100_000, '{"quantization_config": 3}'):
        path = file(tmp_path / "f", {})
        (path / "config.json").write_text(text)
        assert allranks.load(path, world=single_world()).notes == ()


def test_floats_of_8_bits_without_scales_are_cast(tmp_path: Path) -> None:
    """So is a template of the same dtype filled, whatever stands beside."""
    path = file(tmp_path / "g", {"q.weight": FP8, "q.weight_scale": ONE})
    raw = into((6, 8), ml_dtypes.float8_e4m3fn)
    allranks.load(path, into=raw, allow_unexpected=["q.weight_scale"], world=single_world())
    assert raw["q"]["weight"].tobytes() == FP8.tobytes()
    plain = into((6, 8))
    allranks.load(file(tmp_path / "h", {"q.weight": FP8}), into=plain, world=single_world())
    assert np.array_equal(plain["q"]["weight"], NUMBERS)


def test_names_may_be_changed_and_below_a_prefix(tmp_path: Path) -> None:
    (arrays, floats), config = KINDS["nf4"]
    path = file(tmp_path / "f", {f"model.{name}": one for name, one in arrays.items()}, config)
    template = into(floats.shape)
    with pytest.raises(DoesNotFit, match="dequantize=True"):
        allranks.load(path, into=template, rename={"model.*": "*"}, world=single_world())
    allranks.load(path, into=template, rename={"model.*": "*"}, dequantize=True, world=single_world())
    assert np.array_equal(template["q"]["weight"], floats)
