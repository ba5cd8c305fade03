"""Fingerprints and ``verify`` of tensors: against those of NumPy, and on real ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from off_host import pretend
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import allranks
from allranks.arrays.detect import open_tree
from allranks.consistency import torch as ours
from allranks.consistency.digests import fingerprints_of_copies
from allranks.consistency.fingerprint import total_fingerprint, word_layout
from allranks.errors import Mismatch
from allranks.extent import Extent

DTYPES = ["bool", "uint8", "float8_e4m3fn", "uint16", "bfloat16", "complex32", "float32", "int64", "complex128"]


def any_bits(dtype: str, *shape: int) -> torch.Tensor:
    kind = getattr(torch, dtype)
    raw = torch.randint(0, 2 if dtype == "bool" else 256, (int(np.prod(shape)) * kind.itemsize,), dtype=torch.uint8)
    return raw.view(kind).reshape(shape)


def test_tensors_have_the_value_of_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every dtype, empty, scalar, strided and conjugated, in one piece and in many."""
    tree: dict[str, Any] = {dtype: any_bits(dtype, 5, 6) for dtype in DTYPES}
    tree |= {"none": torch.zeros(0, 3), "scalar": torch.tensor(2.5), "turned": any_bits("float32", 4, 6).T}
    tree["conjugate"] = torch.tensor([1 + 2j, 3 - 4j]).conj()
    opened = open_tree(tree, rank=0, size=1)
    on_host = fingerprints_of_copies(opened.declared_arrays, [opened.copies_of_array(n) for n in range(len(tree))])
    pretend(monkeypatch)
    for piece in (1, 7, 1 << 20):
        monkeypatch.setattr(ours, "_PIECE", piece)
        assert (
            fingerprints_of_copies(opened.declared_arrays, [opened.copies_of_array(n) for n in range(len(tree))])
            == on_host
        )


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler, of torch's own calls
def test_the_fused_kernel_has_the_same_value() -> None:
    """What runs on CUDA, compiled for the CPU: words of all widths, in one dimension and in two."""
    fused = torch.compile(ours._fingerprint_sums, dynamic=True)
    for dtype in ("uint8", "int16", "int32"):
        for shape in ((100,), (3001,), (7, 33)):
            words, steps = any_bits(dtype, *shape), [40 + n for n in range(len(shape))]
            low = [
                both & 0xFFFFFFFF for way in (fused, ours._fingerprint_sums) for both in way(words, -5, steps).tolist()
            ]
            assert low[:2] == low[2:]


def test_a_part_has_its_place_in_the_whole() -> None:
    """The parts of a tensor, strided views as they are, add up to the whole."""
    whole = any_bits("float32", 6, 5, 4)
    extents = [Extent((i, 0, k), (3, 5, 2)) for i in (0, 3) for k in (0, 2)]
    leaves = [([whole[extent.slices]], [word_layout(whole.shape, extent)]) for extent in extents]
    everything = ours.fingerprints([([whole], [word_layout(whole.shape, Extent.of_shape(tuple(whole.shape)))])])[0][0]
    assert total_fingerprint(found[0] for found in ours.fingerprints(leaves)) == everything


def trained() -> dict[str, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    generator = torch.Generator().manual_seed(7)
    return {"model": model, "opt": optimizer, "rng": generator, "step": 1}


@pytest.mark.world(n=3, backend="torch")
def test_a_rank_that_drifts_is_found_where_torch_sees_nothing(
    world: allranks.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights, Adam's moments, buffers, generators: torch's check at DDP's start passes; we name leaf and rank."""
    cases = {
        "model/0.weight": lambda state: state["model"][0].weight.data.view(torch.int32)[1, 1].__ixor__(1),
        "model/1.running_mean": lambda state: state["model"][1].running_mean.neg_(),
        "opt/state/0/exp_avg": lambda state: state["opt"].state[state["model"][0].weight]["exp_avg"][0, 0].add_(1e-3),
        "opt/state/2/step": lambda state: state["opt"].state[state["model"][1].weight]["step"].add_(1),
        "rng": lambda state: torch.rand(1, generator=state["rng"]),
    }
    for number, (leaf, spoil) in enumerate(cases.items()):
        odd, state = number % 3, trained()
        if world.rank == odd:
            spoil(state)
        dist._verify_params_across_processes(dist.group.WORLD, list(state["model"].parameters()), None)
        with monkeypatch.context() as patched:
            if number % 2:
                pretend(patched)
            with pytest.raises(Mismatch, match=f"leaf '{leaf}', .*, on rank {odd} against ranks") as caught:
                allranks.verify(state)
        assert (caught.value.ranks, caught.value.leaf) == ((odd,), leaf)
        verdict = allranks.verify(state, on_mismatch="repair")
        assert verdict is not None
        assert verdict.ranks == (odd,)
        assert verdict.state["model"] is state["model"]
        assert allranks.verify(state) is not None


@pytest.mark.world(n=4, backend="torch")
def test_parts_of_a_dtensor_are_compared_where_two_ranks_hold_them(world: allranks.World) -> None:
    """Two ways replicated, two ways cut: a tie in one part; cut four ways: nobody else can tell, and that is said."""
    square = init_device_mesh("cpu", (2, 2))
    values = torch.arange(24.0).reshape(6, 4)
    twice = distribute_tensor(values, square, [Replicate(), Shard(0)])
    alone = distribute_tensor(values, square, [Shard(0), Shard(1)])
    state = {"twice": twice, "alone": alone, "whole": distribute_tensor(values, square, [Replicate(), Replicate()])}
    verdict = allranks.verify(state)
    assert verdict is not None
    assert verdict.unreplicated == ("alone",)
    assert {one.path: one.ranks for one in verdict.covered} == {"twice": 2, "alone": 1, "whole": 4}
    if world.rank == 3:
        twice.to_local()[0, 0] += 1
        state["whole"].to_local()[5, 3] = -0.0
    said = r"'twice'\[3:6, 0:4\], float32\[6, 4\], on rank 3 against rank 1, a tie"
    with pytest.raises(Mismatch, match=said) as caught:
        allranks.verify(state)
    assert caught.value.ranks == (1, 3)
    assert "leaf 'whole', float32[6, 4], on rank 3 against ranks 0-2" in str(caught.value)
