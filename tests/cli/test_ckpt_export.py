"""``allranks ckpt export``: what other programs load is equal to what was saved."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from runs import Said, Tree, four_ranks, save
from safetensors import safe_open

from allranks.storage.local import LocalStorage


def loaded(*files: Path) -> dict[str, np.ndarray]:
    """Every tensor of these files, read by the safetensors library; bfloat16 by torch, which NumPy lacks."""
    tensors = {}
    for path in files:
        with safe_open(path, framework="np") as file:
            assert file.metadata() == {"format": "pt"}
            for name in file.keys():  # noqa: SIM118  it is no dict
                tensors[name] = file.get_tensor(name)
    return tensors


def test_one_file_holds_all_tensors_under_dotted_names(
    ckpt: Callable[..., Said], run: Path, arrays: dict[str, np.ndarray], tmp_path: Path
) -> None:
    """Cut by rows or columns over four ranks, they are whole again; config.json is what the program has saved."""
    out = tmp_path / "out"
    said = ckpt("export", f"{run}@100", out)
    assert said.code == 0
    assert said.out.splitlines()[1:] == [f"  {out}/model.safetensors", f"  {out}/config.json"]
    found = loaded(out / "model.safetensors")
    assert sorted(found) == sorted(path.replace("/", ".") for path in arrays)
    for path, array in arrays.items():
        got = found[path.replace("/", ".")]
        assert got.dtype.itemsize == array.dtype.itemsize
        assert got.tobytes() == array.tobytes(), path
        assert got.shape == array.shape
    assert json.loads((out / "config.json").read_text()) == {"model_type": "gpt2"}
    assert sorted(one.name for one in out.iterdir()) == ["config.json", "model.safetensors"]


def test_a_part_of_the_tree_in_shards_with_an_index(
    ckpt: Callable[..., Said], run: Path, arrays: dict[str, np.ndarray], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    document = ckpt(
        "export", run, out, "--step", 100, "--prefix", "model/", "--strip-prefix", "--max-shard-size", "200kB", "--json"
    ).document
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"]
    assert document["files"] == [str(out / name) for name in [*names, "config.json"]]
    index = json.loads((out / names[2]).read_text())
    assert index["weight_map"] == {"bias": names[1], "wq": names[1], "wte": names[0]}
    assert index["metadata"]["total_size"] == sum(arrays[path].nbytes for path in arrays if path.startswith("model/"))
    assert np.array_equal(loaded(out / names[0])["wte"], arrays["model/wte"])


@pytest.mark.needs("torch")
def test_floats_are_cast_as_torch_casts_them(ckpt: Callable[..., Said], tmp_path: Path) -> None:
    """Rounded to the nearest, ties to even; NaN and infinity stay; integers and fp8 stay as they are."""
    import torch
    from safetensors.torch import load_file

    floats = np.random.default_rng(0).standard_normal(70_001).astype(np.float32)
    floats[:3] = np.nan, np.inf, -0.0
    tree = {"w": floats, "n": np.arange(5), "q": np.ones(3, ml_dtypes.float8_e4m3fn)}
    save(LocalStorage(tmp_path / "run"), 1, Tree(tree, ranks=3, cuts={"n": (1,), "q": (1,)}))
    assert ckpt("export", tmp_path / "run", tmp_path / "out", "--dtype", "bf16").code == 0
    found = load_file(tmp_path / "out" / "model.safetensors")
    expected = torch.from_numpy(floats).to(torch.bfloat16)
    assert torch.equal(found["w"].view(torch.int16)[1:], expected.view(torch.int16)[1:])
    assert found["w"][0].isnan()
    assert (found["n"].dtype, found["q"].dtype) == (torch.int64, torch.float8_e4m3fn)


def test_a_number_that_the_new_dtype_does_not_hold_is_refused_by_the_name_of_its_leaf(
    ckpt: Callable[..., Said], tmp_path: Path
) -> None:
    """Infinity in its place would be a silent change."""
    save(LocalStorage(tmp_path / "run"), 1, Tree({"w": np.array([1.0, 70_000.0], np.float32)}))
    said = ckpt("export", tmp_path / "run", tmp_path / "out", "--dtype", "f16")
    assert said.code == 2
    assert "leaf 'w' has float32 numbers that are too large for float16" in said.err
    assert list((tmp_path / "out").iterdir()) == []


def test_empty_and_single_elements_and_all_dtypes_of_safetensors(ckpt: Callable[..., Said], tmp_path: Path) -> None:
    arrays = {
        "empty": np.zeros((0, 4), np.float32),
        "one": np.array(2.5),
        "flags": np.array([True, False, True]),
        "bytes": np.arange(7, dtype=np.uint8),
        "wave": np.array([1 + 2j], np.complex128),
        "z": np.zeros(0, np.int8),
    }
    save(LocalStorage(tmp_path / "run"), 1, Tree(arrays))
    assert ckpt("export", tmp_path / "run", tmp_path / "out").code == 0
    found = loaded(tmp_path / "out" / "model.safetensors")
    for name, array in arrays.items():
        assert found[name].tobytes() == array.tobytes()
    assert found["empty"].shape == (0, 4)


def test_a_model_that_is_there_is_replaced_only_by_force(ckpt: Callable[..., Said], run: Path, tmp_path: Path) -> None:
    """And then wholly: a loader would prefer the old single file to the new shards."""
    out = tmp_path / "out"
    assert ckpt("export", run, out).code == 0
    (out / "tokenizer.json").write_text("{}")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    said = ckpt("export", run, out, "--max-shard-size", "200kB")
    assert said.code == 2
    assert "already contains config.json, model.safetensors. Choose another folder, or pass --force." in said.err
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert ckpt("export", run, out, "--max-shard-size", "200kB", "--force").code == 0
    names = {path.name for path in out.iterdir()}
    assert "model.safetensors" not in names
    assert {"tokenizer.json", "model.safetensors.index.json"} <= names


def test_damage_is_never_exported(
    ckpt: Callable[..., Said], run: Path, shard_files: list[Path], tmp_path: Path
) -> None:
    """No file is left, and what was there stays."""
    data = bytearray(shard_files[3].read_bytes())
    data[-1] ^= 1
    shard_files[3].write_bytes(data)
    said = ckpt("export", run, tmp_path / "out")
    assert said.code == 1
    assert shard_files[3].name in said.err
    assert list((tmp_path / "out").iterdir()) == []


def test_names_that_would_collide_are_refused(ckpt: Callable[..., Said], tmp_path: Path) -> None:
    save(LocalStorage(tmp_path / "run"), 1, Tree({"a/b": np.zeros(2), "a.b": np.ones(2)}))
    said = ckpt("export", tmp_path / "run", tmp_path / "out")
    assert said.code == 2
    assert "would both get the name 'a.b'" in said.err


def test_without_a_config_it_says_so(ckpt: Callable[..., Said], tmp_path: Path) -> None:
    save(LocalStorage(tmp_path / "run"), 1, Tree({"w": np.zeros(2)}))
    said = ckpt("export", tmp_path / "run", tmp_path / "out")
    assert said.code == 0
    assert "No config.json was written: pass one with --config" in said.out
    (tmp_path / "c.json").write_text('{"model_type": "llama"}')
    assert ckpt("export", tmp_path / "run", tmp_path / "out", "--force", "--config", tmp_path / "c.json").code == 0
    assert json.loads((tmp_path / "out" / "config.json").read_text()) == {"model_type": "llama"}


def test_an_export_takes_a_bounded_memory(tmp_path: Path) -> None:
    """The peak of a process that exports 192 MB, cut by columns and cast, is hardly above that of one that does 12."""
    peaks = []
    for rows in (1024, 16384):
        run = tmp_path / str(rows)
        tree = four_ranks({"model/wq": np.ones((rows, 2048), np.float32), "w": np.ones((rows, 1024), np.float32)})
        save(LocalStorage(run), 1, tree)
        words = ["ckpt", "export", str(run), str(run / "out"), "--dtype", "bf16"]
        source = (
            f"from allranks.cli.main import main; assert not main({words!r}); print(open('/proc/self/status').read())"
        )
        done = subprocess.run([sys.executable, "-c", source], check=True, capture_output=True, text=True)
        [peak] = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("VmHWM")]
        peaks.append(int(peak) * 1024)
    assert peaks[1] - peaks[0] < 64e6


@pytest.mark.needs("torch", "transformers")
def test_from_pretrained_loads_it(ckpt: Callable[..., Said], tmp_path: Path) -> None:
    """Hugging Face's own model, saved as a torch state dict and exported in shards, is the same model."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_layer": 2, "n_embd": 48, "n_head": 4, "vocab_size": 211, "n_positions": 32}
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)).eval()
    state = {f"model/{name}": tensor.numpy() for name, tensor in model.state_dict().items()}
    save(LocalStorage(tmp_path / "run"), 1, Tree(state), extra={"config": json.loads(model.config.to_json_string())})
    out = tmp_path / "out"
    said = ckpt("export", tmp_path / "run", out, "--prefix", "model", "--strip-prefix", "--max-shard-size", "100kB")
    assert said.code == 0, said.err
    again = GPT2LMHeadModel.from_pretrained(out).eval()
    tokens = torch.arange(20)[None]
    with torch.no_grad():
        assert torch.equal(model(tokens).logits, again(tokens).logits)
