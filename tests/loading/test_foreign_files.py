"""Round trips: what the formats' own libraries wrote is here bit for bit, in torch and in JAX."""

from __future__ import annotations

import json
import pickle
from collections import namedtuple
from pathlib import Path
from typing import Any

import flax.serialization
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.numpy import save_file as save_numpy
from safetensors.torch import save_file as save_torch
from torch.distributed.checkpoint.state_dict import get_state_dict

import allranks
from allranks.errors import AllranksError, CannotStore, DoesNotFit, UnknownFormat, Unsafe
from allranks.world.detect import single_world

WORLD = single_world()


def load(path: Path, into: Any, **known: Any) -> Any:
    return allranks.load(path, into, world=WORLD, **known)


def model(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(300, 200), torch.nn.BatchNorm1d(200), torch.nn.Linear(200, 3))


def same(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


DTYPES = ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "int64", "int8", "uint8", "bool", "complex64"]


def tensors() -> dict[str, torch.Tensor]:
    """Every usual dtype, and shapes with and without elements."""
    whole = torch.arange(-100.0, 140.0).reshape(4, 60)
    found = {name: whole.to(getattr(torch, name)) for name in DTYPES}
    return found | {"scalar": torch.tensor(3.5), "empty": torch.zeros(0, 3)}


def zeros(like: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: torch.zeros(tensor.shape, dtype=tensor.dtype) for name, tensor in like.items()}


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(
        torch.equal(one[name].view(torch.uint8), other[name].view(torch.uint8)) for name in one if name != "scalar"
    )


def saved(path: Path, form: str, state: dict[str, torch.Tensor]) -> Path:
    match form:
        case "safetensors":
            save_torch(state, path / "model.safetensors")
        case "torch":
            torch.save(state, path / "model.pt")
        case "DCP":
            dcp.save(dict(state), checkpoint_id=path, no_dist=True)
        case "ours":
            with allranks.Checkpointer(path, WORLD) as ckpt:
                ckpt.save(3, state, block=True)
    return path


FORMS = ["safetensors", "torch", "DCP", "ours"]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("form", FORMS)
def test_all_dtypes_and_a_module_come_back(form: str, tmp_path: Path) -> None:
    """From the directory alone: what it is, is found. Into torch, and into JAX with a sharding."""
    state = tensors()
    filled = zeros(state)
    report = load(saved(tmp_path, form, state), filled)
    assert equal(state, filled)
    assert filled["scalar"] == 3.5
    assert (report.coverage, report.used_of_file) == (1.0, 1.0)
    assert report.read == sum(tensor.nbytes for tensor in state.values())
    assert report.before != report.after

    cut = jax.sharding.NamedSharding(jax.make_mesh((1,), ("x",)), jax.sharding.PartitionSpec("x"))
    described = {"float32": jax.ShapeDtypeStruct((4, 60), jnp.bfloat16, sharding=cut)}
    report = load(tmp_path, described, allow_unexpected=["*"])
    assert report.state["float32"].sharding == cut
    assert np.array_equal(report.state["float32"], state["float32"].numpy().astype(ml_dtypes.bfloat16))
    assert [one.lossy for one in report.of_kind("recast")] == [True]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("form", FORMS)
def test_a_module_is_filled_in_place_or_from_nothing(form: str, tmp_path: Path) -> None:
    """On the meta device nothing is allocated twice."""
    source, here = model(0), model(1)
    weight = here[0].weight
    saved(tmp_path, form, source.state_dict())
    load(tmp_path, here)
    assert same(source, here)
    assert here[0].weight is weight
    with torch.device("meta"):
        bare = model(2)
    report = load(tmp_path, bare)
    assert same(source, bare)
    assert report.before == ("",)


def test_what_is_only_described_must_be_in_the_file(tmp_path: Path) -> None:
    """Allowed or not: a leaf on the meta device that gets nothing has no value at all."""
    save_numpy({"weight": np.ones((2, 3), np.float32)}, tmp_path / "model.safetensors")
    save_numpy({"weight": np.ones((2, 3), np.float32)}, tmp_path / "another.safetensors")
    with torch.device("meta"):
        bare = torch.nn.Linear(3, 2)
    with pytest.raises(DoesNotFit, match="the template only describes 1 leaves, first 'bias'"):
        load(tmp_path, bare, allow_missing="bias")
    assert load(tmp_path, torch.nn.Linear(3, 2), allow_missing="bias").missing == ("bias",)


def test_hugging_faces_shards_are_one_checkpoint(tmp_path: Path) -> None:
    """By their index, be it of safetensors or of torch's files."""
    source, here = model(0), model(1)
    names = list(source.state_dict())
    halves = {f"model-{n}-of-2": {k: source.state_dict()[k] for k in names[n - 1 :: 2]} for n in (1, 2)}
    for end, save in (("safetensors", save_torch), ("bin", torch.save)):
        folder = tmp_path / end
        folder.mkdir()
        for stem, half in halves.items():
            save(half, folder / f"{stem}.{end}")
        index = {"weight_map": {name: f"{stem}.{end}" for stem, half in halves.items() for name in half}}
        (folder / f"model.{end}.index.json").write_text(json.dumps(index))
        here = model(1)
        assert load(folder, here).format.endswith("2 files")
        assert same(source, here)
    (tmp_path / "safetensors" / "model-2-of-2.safetensors").unlink()
    with pytest.raises(allranks.errors.Damaged, match="model-2-of-2"):
        load(tmp_path / "safetensors", here)


def test_torch_views_of_all_kinds(tmp_path: Path) -> None:
    """Transposed, channels last, every other row, a part of a storage, and two names for one memory."""
    whole = torch.arange(2 * 3 * 4 * 5, dtype=torch.float32).reshape(2, 3, 4, 5)
    matrix = torch.arange(60.0).reshape(6, 10)
    state = {
        "transposed": matrix.t(),
        "channels": whole.to(memory_format=torch.channels_last),
        "rows": matrix[::2],
        "corner": matrix[1:4, 2:5],
        "flat": matrix.view(-1)[7:20],
        "tied": matrix,
        "half": matrix[:3],
    }
    torch.save(state, tmp_path / "a.pt")
    filled = zeros(state)
    load(tmp_path / "a.pt", filled)
    assert all(torch.equal(state[name], filled[name]) for name in state)
    described = {"transposed": jnp.zeros((10, 6))}
    assert np.array_equal(load(tmp_path / "a.pt", described, strict=False).state["transposed"], matrix.t().numpy())


class Trained:
    """What a checkpoint of Lightning may hold besides: a class of the user's."""

    def __reduce__(self) -> Any:
        return (print, ("run!",))


def test_lightnings_layout_is_found_and_nothing_of_it_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The weights stand below ``state_dict``, with a prefix; hyperparameters of any class are left alone."""
    source, here = model(0), model(1)
    optimizer = torch.optim.Adam(source.parameters())
    source(torch.ones(4, 300)).sum().backward()
    optimizer.step()
    state = {f"model.{name}": tensor for name, tensor in source.state_dict().items()}
    file = {
        "state_dict": state,
        "epoch": 3,
        "optimizer_states": [optimizer.state_dict()],
        "hyper_parameters": Trained(),
    }
    torch.save(file, tmp_path / "last.ckpt")
    with pytest.raises(DoesNotFit, match=r'did you mean: rename=\{"model\.\*": "\*"\}'):
        load(tmp_path / "last.ckpt", here)
    report = load(tmp_path / "last.ckpt", here, rename={"model.*": "*"})
    assert same(source, here)
    assert "the weights are below key='state_dict'" in " ".join(report.notes)
    assert "run!" not in capsys.readouterr().out
    whole = {"state_dict": {f"model.{k}": torch.zeros_like(v) for k, v in source.state_dict().items()}, "epoch": 0}
    assert load(tmp_path / "last.ckpt", whole, key="", allow_unexpected=["optimizer_states*"]).state["epoch"] == 3


def pytree() -> dict[str, Any]:
    kernel = np.arange(12, dtype=np.float32).reshape(3, 4)
    return {
        "params": {"dense": {"kernel": kernel, "bias": np.ones(4, ml_dtypes.bfloat16)}},
        "layers": [np.ones(2)],
        "step": 7,
    }


def described(like: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.zeros_like(leaf) if isinstance(leaf, np.ndarray) else 0, like)


def check(state: Any) -> None:
    assert np.array_equal(state["params"]["dense"]["kernel"], pytree()["params"]["dense"]["kernel"])
    assert state["params"]["dense"]["bias"].dtype == jnp.bfloat16
    assert np.array_equal(state["params"]["dense"]["bias"], np.ones(4))
    assert state["step"] == 7


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("zarr", ["default", "zarr3", "no ocdbt"])
def test_orbax(zarr: str, tmp_path: Path) -> None:
    """A StandardCheckpointer's directory, a PyTree's with each of its drivers; parts of arrays, casts."""
    options = {"default": {}, "zarr3": {"use_zarr3": True}, "no ocdbt": {"use_ocdbt": False}}[zarr]
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**options)) as saver:
        saver.save(tmp_path / "it", pytree())
    report = load(tmp_path / "it", described({**pytree(), "layers": [np.ones(2, np.float32)]}))
    check(report.state)
    assert [one.path for one in report.of_kind("recast")] == ["layers/0"]
    if zarr == "default":
        with ocp.CheckpointManager(tmp_path / "run") as manager:
            manager.save(3, args=ocp.args.StandardSave(pytree()))
            manager.wait_until_finished()
        check(load(tmp_path / "run" / "3", described(pytree())).state)


@pytest.mark.parametrize("chunk", [1 << 30, 20])
def test_flax_msgpack(chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays where they lie, whole and in pieces, with numbers and texts of every length between them."""
    monkeypatch.setattr(flax.serialization, "MAX_CHUNK_SIZE", chunk)
    tree = {**pytree(), "text": "x" * 70_000, "n": [1, -1, 200, -200, 70_000, 1 << 40, 1.5]}
    (tmp_path / "a.msgpack").write_bytes(flax.serialization.to_bytes(tree))
    report = load(tmp_path / "a.msgpack", described(pytree()))
    check(report.state)


State = namedtuple("State", ["mu", "count"])


def test_pickled_pytrees_only_when_they_are_allowed(tmp_path: Path) -> None:
    """It runs what it names: the error says so, and the report does."""
    file = tmp_path / "a.pkl"
    file.write_bytes(pickle.dumps({**pytree(), "opt": State({"w": np.ones(3)}, 4)}))
    into = {**described(pytree()), "opt": State({"w": np.zeros(3)}, 0)}
    with pytest.raises(Unsafe, match=r"loading it can run any code.*allow_pickle=True"):
        load(file, into)
    report = load(file, into, allow_pickle=True)
    check(report.state)
    assert report.state["opt"].mu["w"].tolist() == [1, 1, 1]
    assert report.state["opt"].count == 4
    assert "unsafe" in str(report)


def test_tied_weights_are_one_memory(tmp_path: Path) -> None:
    """safetensors keeps one of two names for the same memory; the other is loaded with it, and told."""
    here = torch.nn.ModuleDict({"embed": torch.nn.Embedding(5, 3), "head": torch.nn.Linear(3, 5, bias=False)})
    here["head"].weight = here["embed"].weight
    save_numpy({"embed.weight": np.full((5, 3), 2, np.float32)}, tmp_path / "m.safetensors")
    report = load(tmp_path / "m.safetensors", here)
    assert [(one.path, one.name) for one in report.of_kind("tied")] == [("head.weight", "embed.weight")]
    assert report.coverage == 1.0
    here["head"].weight = torch.nn.Parameter(here["embed"].weight.detach().clone())
    with pytest.raises(DoesNotFit, match=r"head\.weight: float32\[5, 3\]"):
        load(tmp_path / "m.safetensors", here)


def test_tied_weights_stay_one_when_a_module_leaves_the_meta_device(tmp_path: Path) -> None:
    """Be they once in the file or twice; torch's ``load_state_dict(assign=True)`` makes two of them."""
    weight = torch.arange(15.0).reshape(5, 3)
    save_torch({"embed.weight": weight}, tmp_path / "once.safetensors")
    torch.save({"embed.weight": weight, "head.weight": weight}, tmp_path / "twice.pt")
    for file in ("once.safetensors", "twice.pt"):
        with torch.device("meta"):
            here = torch.nn.ModuleDict({"embed": torch.nn.Embedding(5, 3), "head": torch.nn.Linear(3, 5, bias=False)})
        here["head"].weight = here["embed"].weight
        load(tmp_path / file, here)
        assert here["head"].weight is here["embed"].weight
        assert torch.equal(here["head"].weight, weight)


def test_partial_loads_say_what_they_did(tmp_path: Path) -> None:
    """All or an error; what is new is allowed by name; a share; never nothing; and an error touches nothing."""
    source, here = model(0), model(1)
    here.register_parameter("elevation_alpha", torch.nn.Parameter(torch.tensor(0.01)))
    torch.save(source.state_dict(), tmp_path / "a.pt")
    before = here[0].weight.clone()
    with pytest.raises(DoesNotFit, match=r"1 leaves do not fit(?s:.*)elevation_alpha: float32\[\]"):
        load(tmp_path / "a.pt", here)
    assert torch.equal(here[0].weight, before)
    report = load(tmp_path / "a.pt", here, allow_missing=["*elevation_alpha", "*.typo"])
    assert report.missing == ("elevation_alpha",)
    assert "allow_missing='*.typo' allows nothing" in report.notes
    assert 0.8 < report.coverage < 1.0
    with pytest.raises(DoesNotFit, match=r"expected at least strict=0\.95"):
        load(tmp_path / "a.pt", here, strict=0.95)
    assert load(tmp_path / "a.pt", here, strict=0.8).loaded.leaves == 9
    torch.save({f"model.{name}": tensor for name, tensor in source.state_dict().items()}, tmp_path / "b.pt")
    with pytest.raises(DoesNotFit, match="no leaf of the file fits"):
        load(tmp_path / "b.pt", here, strict=False)
    with pytest.raises(DoesNotFit, match="into= has no array"):
        load(tmp_path / "b.pt", None, strict=False)
    for strict in (1.5, "yes"):
        with pytest.raises(AllranksError, match="expected True, False, or a fraction from 0 to 1"):
            load(tmp_path / "b.pt", here, strict=strict)


def test_what_a_format_has_no_leaf_for_is_told_with_what_to_do(tmp_path: Path) -> None:
    """Whole modules, sparse and quantized tensors in torch's files; any object in a pickle."""
    with pytest.warns(UserWarning, match="quantize"):
        quantized = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
    odd = {"w": torch.ones(2), "net": model(0), "sparse": torch.eye(2).to_sparse(), "quantized": quantized}
    torch.save(odd, tmp_path / "a.pt")
    (note,) = load(tmp_path / "a.pt", {"w": torch.zeros(2)}).notes
    assert note.startswith(
        "not loaded, and nothing of it was executed: net (torch.nn.modules.container.Sequential: a module, "
    )
    assert "save its state_dict()" in note
    assert "sparse (torch._utils._rebuild_sparse_tensor: save its to_dense())" in note
    assert "quantized (torch._utils._rebuild_qtensor: save its dequantize())" in note
    (tmp_path / "a.pkl").write_bytes(pickle.dumps({"w": np.ones(2), "seen": {1, 2}}))
    into = {"w": np.zeros(2)}
    assert load(tmp_path / "a.pkl", into, allow_pickle=True).notes[-1] == "not loaded: seen (set)"
    assert into["w"].tolist() == [1, 1]


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_the_optimizer_of_a_directory_of_dcp_comes_back(tmp_path: Path) -> None:
    """With its betas and its parameters' names, which DCP stores as lists, each a value for itself."""

    def training(seed: int) -> dict[str, Any]:
        net = model(seed)
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.1 + seed)
        net(torch.full((4, 300), 1.0 + seed)).sum().backward()
        optimizer.step()
        weights, moments = get_state_dict(net, optimizer)
        return {"model": weights, "optimizer": moments}

    source, here = training(0), training(1)
    dcp.save(source, checkpoint_id=tmp_path / "dcp", no_dist=True)
    loaded = load(tmp_path / "dcp", here).state["optimizer"]
    assert loaded["param_groups"] == source["optimizer"]["param_groups"]
    for name, moments in source["optimizer"]["state"].items():
        assert all(torch.equal(value, loaded["state"][name][kind]) for kind, value in moments.items())


def test_keys_of_random_numbers_are_made_of_their_bits(tmp_path: Path) -> None:
    """Other formats know no keys: a dropout's is stored as the integers that it is."""
    save_numpy({"dropout": np.asarray(jax.random.key_data(jax.random.key(7)))}, tmp_path / "k.safetensors")
    report = load(tmp_path / "k.safetensors", {"dropout": jax.random.key(0)})
    assert (report.state["dropout"] == jax.random.key(7)).all()
    assert [one.found for one in report.of_kind("recast")] == ["uint32[2]"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float16])
def test_a_number_that_is_too_large_is_not_made_infinite(dtype: torch.dtype, tmp_path: Path) -> None:
    """Of the dtypes that NumPy does not know itself, too; what was infinite may stay so."""
    save_torch({"w": torch.tensor([1.0, 3.4e38])}, tmp_path / "large.safetensors")
    with pytest.raises(CannotStore, match=r"leaf 'w' has float32 numbers that are too large for .*wider range"):
        load(tmp_path / "large.safetensors", {"w": torch.zeros(2, dtype=dtype)})
    save_torch({"w": torch.tensor([-2.0, float("nan")])}, tmp_path / "nan.safetensors")
    into = {"w": torch.zeros(2, dtype=dtype)}
    load(tmp_path / "nan.safetensors", into)
    assert into["w"].float()[0] == -2
    assert into["w"].float()[1].isnan()


def test_a_view_that_repeats_its_elements_cannot_be_filled(tmp_path: Path) -> None:
    """Row after row would be written to one memory."""
    save_torch({"w": torch.ones(3, 2)}, tmp_path / "a.safetensors")
    with pytest.raises(CannotStore, match=r"many elements share one number.*clone"):
        load(tmp_path / "a.safetensors", {"w": torch.zeros(2).expand(3, 2)})


def test_an_offer_goes_on_from_the_rename_that_was_asked_for(tmp_path: Path) -> None:
    """It is ready: with it, all is loaded."""
    source, here = model(0), model(1)
    state = {f"model.{name.replace('0.', 'fc.')}": tensor for name, tensor in source.state_dict().items()}
    torch.save(state, tmp_path / "a.pt")
    rename = load(tmp_path / "a.pt", here, rename={"model.*": "*"}, strict=False).rename
    assert rename == {"model.*": "*", "fc.*": "0.*"}
    load(tmp_path / "a.pt", here, rename=rename)
    assert same(source, here)


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    """With what it is, and what could be done."""
    (tmp_path / "a.txt").write_text("hello, here are no weights")
    (tmp_path / "steps" / "100").mkdir(parents=True)
    with pytest.raises(UnknownFormat, match=r"it contains 100/.*give its path"):
        load(tmp_path / "steps", {})
    np.save(tmp_path / "a.npy", np.ones(2))
    with pytest.raises(UnknownFormat, match=r"arrays without names.*tree_deserialise_leaves"):
        load(tmp_path / "a.npy", {})
    with pytest.raises(allranks.errors.NotThere, match="the path is empty"):
        allranks.load("", {}, world=single_world())
    with pytest.raises(UnknownFormat, match="has an unknown format"):
        load(tmp_path / "a.txt", {})
    with pytest.raises(UnknownFormat, match=r"it contains a\.npy, a\.txt, steps/"):
        load(tmp_path / "steps" / "..", {})
    with pytest.raises(allranks.errors.NotThere, match="is empty, or does not exist"):
        load(tmp_path / "b", {})
    torch.save({"w": torch.ones(2)}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(UnknownFormat, match=r"torch before 1\.6"):
        load(tmp_path / "old.pt", {"w": torch.zeros(2)})
    for name in ("1.pt", "2.pt"):
        torch.save({"w": torch.ones(2)}, tmp_path / name)
    with pytest.raises(UnknownFormat, match="has 3 checkpoints"):
        load(tmp_path, {"w": torch.zeros(2)})
