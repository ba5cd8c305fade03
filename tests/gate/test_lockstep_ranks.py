"""Lockstep with real processes: every way to part is one error on every rank, and programs that agree hear nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import harness
import pytest

PROGRAMS = Path(__file__).parent / "programs"
SIZES = [2, pytest.param(4, marks=pytest.mark.soak), pytest.param(8, marks=pytest.mark.soak)]
ABORTED = -6
# What the last rank does otherwise, and how both are told. All ranks are still before the call.
JAX = {
    "first_order": ("call 1 differs: {most}: jit(add) (", "; {odd}: jit(largest) ("),
    "first_shape": ("jit(add): {most}: argument 1 is float32[", "; {odd}: argument 1 is float32["),
    "first_dtype": ("jit(add): {most}: argument 1 is float32[", "; {odd}: argument 1 is int32["),
    "first_op": ("{most}: jit(add) (", "; {odd}: jit(gather) ("),
    "first_reduce_op": ("{most}: jit(add) (", "; {odd}: jit(largest) ("),
    "first_constant": ("jit(add)", " is not one program", "{most}: ", "; {odd}: "),
    "first_array": ("jit(weighted)", " is not one program", "{most}: ", "; {odd}: "),
    "first_scan": ("jit(train)", " is not one program", "{most}: ", "; {odd}: "),
    "first_extra": ("jit(add) starts from different lines: {most}: ", "; {odd}: "),
    "order": ("call 13 differs: {most}: jit(add) (", "; {odd}: jit(largest) ("),
    "known_shape": ("jit(add): {most}: argument 1 is float32[", "; {odd}: argument 1 is float32["),
    "extra": ("jit(add) starts from different lines: {most}: ", "; {odd}: "),
    "static": ("jit(<lambda>)", " is not one program", "{most}: ", "; {odd}: "),
    "value": (" is given different values: argument 2['rate']: {most}: 0.5; {odd}: 0.25. JAX takes",),
    "pmap_static": (" is not one program", "{most}: ", "; {odd}: "),
    "setting": ("jit(<lambda>)", " is not one program", "{most}: ", "; {odd}: "),
}
TORCH = {
    "shape": ("call 1 differs: {most}: all_reduce sum float32[17] (", "; {odd}: all_reduce sum float32[5] ("),
    "dtype": ("{most}: all_reduce sum float32[17] (", "; {odd}: all_reduce sum int32[17] ("),
    "reduce_op": ("{most}: all_reduce sum float32[17] (", "; {odd}: all_reduce max float32[17] ("),
    "op": ("{most}: all_reduce sum float32[17] (", "; {odd}: all_gather float32[17], "),
    "order": ("call 14 differs: {most}: all_reduce sum float32[17] (", "; {odd}: all_reduce max float32[17] ("),
    "extra": ("all_reduce sum float32[17] starts from different lines: {most}: ", "; {odd}: "),
    "groups": (
        "{most}: all_reduce sum float32[4] in group 1 (ranks 0-",
        "; {odd}: all_reduce sum float32[4] in group 2 (",
    ),
    "dict_order": ("is made for different elements in the loop at ", "{most}: 'bias'; {odd}: 'weight'."),
    "functional_op": ("{most}: all_reduce sum float32[8] (", "; {odd}: all_reduce max float32[8] ("),
}
# Some go on as ever, into the collective, where others part from them: they are told from there.
STUCK = {
    ("jax", "shape"): ("jit(add): {most}: argument 1 is float32[", "; {odd}: argument 1 is float32["),
    ("jax", "unwrapped_shape"): (
        "jit(<lambda>): {most}: argument 1 is float32[",
        "; {odd}: argument 1 is float32[",
    ),
    ("jax", "branch"): ("{most}: jit(largest) (", "; {odd}: no more calls, the region ends ("),
    ("jax", "early"): ("{most}: jit(add) (", "; {odd}: no more calls, the region ends ("),
    ("torch", "early"): ("{most}: all_reduce sum float32[17] (", "; {odd}: no more calls, the region ends ("),
    ("jax", "meets_in_loop"): ("{most}: barrier 'save' (", "; {odd}: lockstep 'jit(add)' ("),
    ("torch", "meets_in_loop"): ("{most}: barrier 'save' (", "; {odd}: lockstep 'all_reduce sum float32[17]' ("),
    ("jax", "skipped"): ("{most}: jit(add) (", " step = 3 in the loop ", "; {odd}: ", " without a call at step = 3."),
    ("jax", "epochs"): ("; {odd}: jit(add) (", ", epoch = 1 in the loop ", " which was 0 at the call before."),
    ("torch", "skipped"): ("{most}: ", " step = 3 in the loop ", "; {odd}: ", " without a call at step = 3."),
    ("torch", "epochs"): ("; {odd}: all_reduce sum", ", epoch = 1 in the loop ", " which was 0 at the call before."),
    ("torch", "threads"): (
        "in other threads, group 1': call 11 differs: {most}: all_reduce sum ",
        "; {odd}: all_reduce max ",
    ),
    ("torch", "both_receive"): (" receives 3 x float32 from rank ", " (number 4, ", " (number 1, "),
    ("torch", "ddp"): ("{most}: all_reduce sum float32[20] (", "; {odd}: all_reduce sum float32[1] ("),
}
# A rank that ends early in each framework tells the way; DDP's own meets the others' in tests/examples, too.
TELLING = [("jax", "early"), ("jax", "unwrapped_shape"), ("torch", "skipped")]


def run(framework: str, cases: str, how: str = "", *, size: int = 2, **variables: str) -> harness.Job:
    def environ(rank: int, size: int, port: int) -> Mapping[str, str]:
        return {**harness.torchrun_environ(rank, size, port), **variables}

    return harness.run(size, [str(PROGRAMS / f"lockstep_{framework}.py"), cases, how], environ=environ)


def results(job: harness.Job) -> list[dict[str, Any]]:
    """What each rank printed last after RESULT."""
    reports = [[line for line in rank.out.splitlines() if line.startswith("RESULT ")] for rank in job.ranks]
    assert all(reports), job
    return [json.loads(lines[-1].removeprefix("RESULT ")) for lines in reports]


def named(words: str, size: int) -> str:
    most = "rank 0" if size == 2 else f"ranks 0-{size - 2}"
    return words.format(most=most, odd=f"rank {size - 1}")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("framework", "how", "cases"),
    [
        pytest.param("jax", "", JAX, marks=pytest.mark.needs("jax")),
        pytest.param("jax", "unknown", JAX, marks=pytest.mark.needs("jax")),
        pytest.param("torch", "", TORCH, marks=pytest.mark.needs("torch")),
    ],
)
def test_ranks_that_are_about_to_part_all_raise_one_mismatch(
    framework: str, how: str, cases: dict[str, tuple[str, ...]], size: int
) -> None:
    """Before they enter, at any of their calls; and the same ranks then do all that they may, in step, unharmed."""
    job = run(framework, ",".join([*cases, "meets", "healthy"]), how, size=size)
    assert job.codes == [0] * size, job
    found = results(job)
    for rank, result in enumerate(found):
        for case, words in cases.items():
            error = result[case]["error"]
            assert error.startswith(f"Mismatch: rank {rank}: lockstep 'all ranks'"), (case, error)
            assert f"tests/gate/programs/lockstep_{framework}.py:" in error, (case, error)
            for each in words:
                assert named(each, size) in error, (case, error)
            if size > 2 and framework == "jax":
                assert result[case]["ranks"] == [size - 1], (case, error)
        met = result["meets"]["error"]
        assert named("{most}: barrier 'save' (tests/gate/programs/", size) in met, met
        assert named("; {odd}: lockstep '", size) in met, met
    assert found[0]["healthy"]["numbers"] == found[-1]["healthy"]["numbers"], job
    if how == "unknown":
        assert "does not know the internals of jax" in job.ranks[0].err, job


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("framework", "case"),
    [
        pytest.param(*key, marks=[pytest.mark.needs(key[0])] + [pytest.mark.soak] * (key not in TELLING))
        for key in STUCK
    ],
)
def test_ranks_that_stand_in_their_call_are_told_who_does_not_join_it(framework: str, case: str, size: int) -> None:
    """One rank asks, the others have gone on as foretold; all end, none by an abort, and all say the same."""
    job = run(framework, case, size=size)
    for rank in job.ranks:
        assert rank.code not in (0, None, ABORTED), job
        assert "Mismatch: rank " in rank.err, job
        assert "threading.py:" not in rank.err, job
        for each in STUCK[framework, case]:
            assert named(each, size) in rank.err, job


@pytest.mark.needs("torch")
def test_a_receive_of_another_form_is_found_when_the_data_has_come() -> None:
    job = run("torch", "received")
    assert 0 not in job.codes, job
    assert (
        "transfer 1 from rank 0 to rank 1 (tag 0) differs: rank 0 sends 3 x float32; rank 1 receives"
        in job.ranks[1].err
    )


@pytest.mark.needs("torch")
def test_calls_of_one_line_and_form_in_another_order_are_told_apart() -> None:
    """By the keys of a dict as soon as ranks ask, by parameters where content is looked at; and all is well after."""
    job = run("torch", "dict_order,parameter_order,transfers,warm", "content")
    assert job.codes == [0, 0], job
    found = results(job)
    assert "rank 0: 'bias'; rank 1: 'weight'. A set, or a dict" in found[0]["dict_order"]["error"]
    assert "rank 1: a parameter of [3] with " in found[1]["parameter_order"]["error"]
    assert "numbers" in found[0]["warm"]


@pytest.mark.parametrize(
    ("framework", "cases"),
    [
        pytest.param("jax", ("first_order", "order", "static"), marks=[pytest.mark.needs("jax"), pytest.mark.soak]),
        pytest.param("torch", ("shape", "order", "groups"), marks=pytest.mark.needs("torch")),
    ],
)
def test_a_program_that_wraps_nothing_is_compared_to_its_end(framework: str, cases: Sequence[str]) -> None:
    """Each of its calls; and the same ranks go on, in step, unharmed."""
    job = run(framework, ",".join([*cases, "warm"]), "process")
    assert job.codes == [0, 0], job
    for result in results(job):
        for case in cases:
            assert "Mismatch: rank " in result[case]["error"], case
            assert " differs: " in result[case]["error"], case
        assert "numbers" in result["warm"], job


@pytest.mark.needs("jax")
def test_a_program_that_ends_early_is_named() -> None:
    """Wrapped functions, and no block whose end would be seen."""
    job = run("jax", "ended", "bare")
    assert job.ranks[0].code not in (0, None, ABORTED), job
    assert "rank 1 has ended after 14 calls; rank 0 is in call 15, jit(add)" in job.ranks[0].err, job


@pytest.mark.needs("jax")
def test_a_rank_that_does_not_come_is_named_with_its_line() -> None:
    """In time, on the rank that waits and on that which comes too late."""
    job = run("jax", "absent")
    for rank in job.ranks:
        assert "rank 0: lockstep 'all ranks' (tests/gate/programs/lockstep_jax.py:" in rank.err, job
        assert "rank 1 did not come within 3 s. rank 1 (host " in rank.err, job
        assert "at tests/gate/programs/lockstep_jax.py:" in rank.err, job


@pytest.mark.parametrize(
    ("framework", "case", "debug", "numbers"),
    [
        pytest.param("jax", "order", "OFF", [12.0, 8.0], marks=pytest.mark.needs("jax")),
        # 24 with the one constant, 36 with the other.
        pytest.param("jax", "static", "OFF", [32.0], marks=[pytest.mark.needs("jax"), pytest.mark.soak]),
        # Each rank's part of the sum is scaled by its own.
        pytest.param("jax", "value", "OFF", [4.0], marks=[pytest.mark.needs("jax"), pytest.mark.soak]),
        # At step 3 the one rank adds what the other one has at step 4.
        pytest.param(
            "torch", "skipped", "OFF", [0, 2, 4, 7, 9, 11], marks=[pytest.mark.needs("torch"), pytest.mark.soak]
        ),
        # Each gradient is the sum of one's and the other's.
        pytest.param("torch", "dict_order", "OFF", [1, 1], marks=[pytest.mark.needs("torch"), pytest.mark.soak]),
        # With DETAIL torch looks for more, and says nothing either.
        pytest.param("torch", "order", "OFF", [3.0, 2.0], marks=[pytest.mark.needs("torch"), pytest.mark.soak]),
        pytest.param("torch", "order", "DETAIL", [3.0, 2.0], marks=pytest.mark.needs("torch")),
    ],
)
def test_without_us_what_differs_is_wrong_numbers(framework: str, case: str, debug: str, numbers: list[float]) -> None:
    """Two collectives swapped, or another constant; nobody notices, TORCH_DISTRIBUTED_DEBUG either."""
    job = run(framework, case, "without", TORCH_DISTRIBUTED_DEBUG=debug)
    assert job.codes == [0, 0], job
    assert [result[case]["numbers"] for result in results(job)] == [numbers] * 2
