"""``verify`` on simulated ranks: what is found, what is said of it, what can be done about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import allranks
from allranks.consistency.verdict import Verdict
from allranks.errors import AllranksError, CannotStore, Mismatch

DTYPES = ["bool", "int4", "uint8", "float8_e5m2", "float16", "bfloat16", "float32", "int64", "float64", "complex64"]


def state() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    arrays = {name: rng.integers(0, 2, (6, 4)).astype(np.dtype(getattr(ml_dtypes, name, name))) for name in DTYPES}
    return {
        "model": arrays,
        "scalar": np.float32(2),
        "none": np.zeros((0, 3)),
        "step": 7,
        "data": {"epoch": 1, "done": False, "name": None, "lr": 0.5},
        "rng": np.random.default_rng(5),
    }


def on_all(
    size: int, spoil: Callable[[dict[str, Any], int], object], **how: Any
) -> tuple[dict[int, Any], dict[int, Exception]]:
    """What ``verify`` returns or raises on each of ``size`` ranks, after ``spoil(state, rank)``."""

    def program(world: allranks.World) -> Any:
        mine = state()
        spoil(mine, world.rank)
        return allranks.verify(mine, world=world, **how)

    outcome = allranks.SimulatedWorld(size).run(program)
    return outcome.results, outcome.errors


def flip(array: Any, bit: int = 0, element: int = 9) -> None:
    array.reshape(-1)[element : element + 1].view(np.uint8)[bit // 8] ^= 1 << bit % 8


@pytest.mark.parametrize("proof", [False, True], ids=["quick", "proof"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_one_bit_on_one_rank_is_found_in_any_dtype(dtype: str, proof: bool) -> None:
    """Every rank raises the same: the leaf, the rank, the step; the others are the majority."""

    def spoil(mine: dict[str, Any], rank: int) -> None:
        if rank == 2:
            flip(mine["model"][dtype])

    results, errors = on_all(4, spoil, step=30, proof=proof)
    assert results == {}
    for rank in range(4):
        error = errors[rank]
        assert isinstance(error, Mismatch)
        assert str(error).startswith(f"rank {rank}: verify 'state at step 30")
        says = f"leaf 'model/{dtype}', {dtype}[6, 4], on rank 2 against ranks 0-1, 3 [rank 2: 1 element, first ["
        assert says in str(error)
        assert (error.ranks, error.leaf, error.step) == ((2,), f"model/{dtype}", 30)


def test_equal_states_are_equal() -> None:
    """The verdict says so, of how many leaves, and how many ranks hold each."""
    results, errors = on_all(3, lambda *_: None, step=4)
    assert errors == {}
    verdict = results[1]
    assert verdict.ok
    assert verdict.ranks == verdict.unreplicated == verdict.differences == ()
    assert {one.ranks for one in verdict.covered} == {3}
    assert str(verdict) == f"all copies are equal at step 4: {verdict.leaves} leaves"
    assert verdict.nbytes == sum(array.nbytes for array in state()["model"].values()) + 4


@pytest.mark.parametrize(
    ("spoil", "leaf", "says"),
    [
        (lambda mine: mine.update(step=8), "step", "leaf 'step' is 8 on rank 1 against 7 on ranks 0, 2"),
        (lambda mine: mine["data"].update(epoch=2), "data/epoch", "is 2 on rank 1 against 1 on"),
        (lambda mine: mine["data"].update(lr=-0.5), "data/lr", "is -0.5 on rank 1 against 0.5 on"),
        (lambda mine: mine["rng"].random(), "rng/state/state", "leaf 'rng/state/state' is "),
        (lambda mine: mine.update(scalar=np.float32(-2)), "scalar", r"leaf 'scalar', float32\[\], on rank 1"),
    ],
    ids=["step", "data", "number", "generator", "scalar"],
)
def test_counters_positions_and_generators_are_state(spoil: Callable[[Any], object], leaf: str, says: str) -> None:
    """JSON values are compared as they are, and told."""
    _, errors = on_all(3, lambda mine, rank: spoil(mine) if rank == 1 else None)
    with pytest.raises(Mismatch, match=says) as caught:
        raise errors[0]
    assert caught.value.leaf == leaf


def test_bits_count() -> None:
    """-0.0 is not 0.0; a NaN equals a NaN of the same bits, and no other."""
    bits = {"same": 0x7FC00001, "another": 0x7FC00002}

    def program(world: allranks.World) -> Any:
        return allranks.verify({"x": np.array(values[world.rank], np.uint32).view(np.float32)}, world=world)

    values = [bits["same"]] * 3
    assert allranks.SimulatedWorld(3).run(program).values()[0].ok
    values = [bits["same"], bits["another"], bits["same"]]
    assert isinstance(allranks.SimulatedWorld(3).run(program).errors[0], Mismatch)
    values = [0, 0, 1 << 31]
    assert allranks.SimulatedWorld(3).run(program).errors[0].ranks == (2,)  # type: ignore[attr-defined]


def test_ties_are_said_to_be_ties() -> None:
    """Two against two, or each for itself: nobody is called wrong, and nothing can be repaired."""
    for size, odd in ((2, (1,)), (4, (0, 3))):

        def spoil(mine: dict[str, Any], rank: int, odd: tuple[int, ...] = odd) -> None:
            if rank in odd:
                flip(mine["model"]["float32"])

        _, errors = on_all(size, spoil, on_mismatch="repair")
        for error in errors.values():
            assert isinstance(error, Mismatch)
            assert ", a tie [" in str(error)
            assert "]. No copy has a majority" in str(error)
            assert error.ranks == tuple(range(size))


def test_the_elements_and_the_size_of_the_difference() -> None:
    """Which, how many, from what to what; also across blocks, and where numbers look alike."""
    got: list[Verdict] = []

    def program(world: allranks.World) -> None:
        big = np.arange(100_000, dtype=np.float32).reshape(100, 1000)
        zeros = np.zeros(3, np.float64)
        if world.rank == 1:
            big[[3, 99], [7, 999]] += np.array([0.5, -2], np.float32)
            zeros[2] = np.array(0x7FF8000000000001).view(np.float64)
        if world.rank in (0, 2, 3):
            zeros[2] = np.nan
        if world.rank == 3:
            big += 1
        mine = {"big": big, "zeros": zeros}
        allranks.verify(mine, world=world, on_mismatch=got.append if world.rank == 2 else len_of)

    assert allranks.SimulatedWorld(5).run(program).errors == {}
    big, zeros = got[0].differences
    of_1, of_3 = big.elements
    assert (of_1.group.ranks, of_1.count, of_1.least, of_1.largest) == ((1,), 2, False, 2.0)
    assert of_1.first == (((3, 7), "3007.0", "3007.5"), ((99, 999), "99999.0", "99997.0"))
    assert str(of_1) == "rank 1: 2 elements, first [3, 7]: 3007.5 for 3007.0, by at most 2"
    assert (of_3.group.ranks, of_3.count, of_3.least, of_3.largest) == ((3,), 16 * 1024, True, 1.0)
    assert zeros.elements[0].first == (((2,), "nan (0x7ff8000000000000)", "nan (0x7ff8000000000001)"),)
    assert zeros.elements[0].largest is None


def len_of(verdict: Verdict) -> int:
    return len(verdict.differences)


def test_the_minority_is_repaired_in_place() -> None:
    """What the majority holds, to the bit, also of large leaves and of values."""
    rng = np.random.default_rng(1)
    large = rng.integers(0, 256, 3 << 20, np.uint8)

    def program(world: allranks.World) -> Any:
        mine = {**state(), "large": large.copy()}
        arrays = dict(mine["model"])
        if world.rank == 2:
            for array in arrays.values():
                flip(array)
            mine["large"][-1] ^= 1
            mine["step"] = 99
            mine["rng"].random()
        if world.rank == 4:
            mine["large"][:] = 0
        verdict = allranks.verify(mine, world=world, on_mismatch="repair")
        assert verdict is not None
        back = verdict.state
        assert all(back["model"][name] is arrays[name] for name in arrays)
        return verdict.differing, verdict.ranks, back["step"], back["rng"].random(), back["large"].tobytes(), back

    found = allranks.SimulatedWorld(5).run(program).values()
    wanted = state()
    for differing, ranks, step, number, data, back in found:
        assert (differing, ranks, step) == (len(DTYPES) + 3, (2, 4), 7)
        assert number == np.random.default_rng(5).random()
        assert data == large.tobytes()
        assert all(back["model"][name].tobytes() == wanted["model"][name].tobytes() for name in DTYPES)


def test_other_trees_are_told_by_their_leaves() -> None:
    """A leaf more, another shape, another dtype: no votes, the first leaf that is not the same."""
    for spoil, says in (
        (lambda mine: mine.update(more=np.zeros(2)), r"leaf 'more' is missing on ranks 0, 2, float64\[2\] on rank 1"),
        (lambda mine: mine.update(none=np.zeros((1, 3))), r"leaf 'none' is .*float64\[1, 3\] on rank 1"),
        (lambda mine: mine.update(step=np.int64(7)), r"leaf 'step' is a value on ranks 0, 2, int64\[\] on rank 1"),
    ):
        _, errors = on_all(3, lambda mine, rank, spoil=spoil: spoil(mine) if rank == 1 else None)
        assert len(errors) == 3
        with pytest.raises(Mismatch, match=says) as caught:
            raise errors[2]
        assert caught.value.ranks == (1,)


def test_a_rank_that_cannot_is_named_by_all() -> None:
    """The others do not wait for it."""
    _, errors = on_all(3, lambda mine, rank: mine.update(odd={1, 2}) if rank == 1 else None)
    assert isinstance(errors[1], CannotStore)
    for rank in (0, 2):
        assert isinstance(errors[rank], AllranksError)
        assert f"rank {rank}: verify: rank 1 cannot: rank 1: a leaf of the state cannot be stored" in str(errors[rank])


def test_functions_are_compared_by_name() -> None:
    """A model may have them among its leaves; a repair leaves them alone."""

    def program(world: allranks.World) -> Any:
        chosen = str.__add__ if world.rank == 1 else len_of
        mine = {"activation": chosen if world.size == 2 else len_of, "w": np.zeros(2) + (world.rank == 1)}
        verdict = allranks.verify(mine, world=world, on_mismatch="repair")
        return verdict is not None and verdict.state["activation"] is len_of

    assert all(allranks.SimulatedWorld(3).run(program).values())
    errors = allranks.SimulatedWorld(2).run(program).errors
    assert "leaf 'activation' is \".str.__add__\" on rank 1 against " in str(errors[0])


def test_every_so_many_steps() -> None:
    """Steps between cost nothing and need no world; ranks at different steps are told so."""
    assert allranks.verify({1, 2}, 101, every=100) is None
    with pytest.raises(AllranksError, match="every=100 needs a step"):
        allranks.verify({}, every=100)
    world = allranks.SimulatedWorld(2)
    outcome = world.run(lambda world: allranks.verify({}, 100 * (1 + world.rank), every=100, world=world))
    assert all("state at step 200" in str(error) for error in outcome.errors.values())
    assert outcome.results == {}


def test_seventy_opinions_on_a_hundred_ranks() -> None:
    """Not all are heard, and no majority is claimed that could be none."""

    def program(world: allranks.World) -> Any:
        mine = {"odd": np.array(max(0, world.rank - 29)), "even": np.array(world.rank == 99)}
        return allranks.verify(mine, world=world, on_mismatch=len_of)

    verdict = allranks.SimulatedWorld(100).run(program).values()[0]
    assert [(one.path, one.decided, len(one.groups)) for one in verdict.differences] == [("odd", False, 64)]


@pytest.mark.soak
def test_a_thousand_leaves_on_64_ranks() -> None:
    """Where one bit is not as it should be on one of them."""
    leaves = {f"layer{n:04}": np.full(8, n, np.float32) for n in range(1000)}

    def program(world: allranks.World) -> Any:
        mine = dict(leaves)
        for step in (1, 2):
            if step == 2 and world.rank == 41:
                mine["layer0700"] = leaves["layer0700"].copy()
                flip(mine["layer0700"], bit=13, element=2)
            verdict = allranks.verify(mine, step, world=world, on_mismatch=len_of)
        return verdict

    verdicts = allranks.SimulatedWorld(64).run(program).values()
    for verdict in verdicts:
        assert str(verdict) == (
            "copies differ at step 2: leaf 'layer0700', float32[8], on rank 41 against ranks 0-40, 42-63 "
            "[rank 41: 1 element, first [2]: 700.5 for 700.0]"
        )
        assert verdict.ranks == (41,)
        assert verdict.leaves == 1000
