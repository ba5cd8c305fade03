"""What a job says when it has ended."""

from __future__ import annotations

import pytest

from allranks.failure import Failure
from allranks.launch.result import JobResult, RankResult
from allranks.launch.summary import summary

TRACE = "Traceback (most recent call last):\n  File ...\nValueError: bad row\n"


def ranks(*, tail: tuple[str, ...]) -> tuple[RankResult, ...]:
    lost = [Failure(rank, "a", f"Gloo: closed by 127.0.0.1:{4000 + rank}", 2.0, where="train.py:9") for rank in (0, 2)]
    return (
        RankResult(0, "a", 2, 1, reported=lost[0], seconds=1.26, peak_bytes=100 << 20),
        RankResult(1, "a", 2, 1, seconds=1.0, peak_bytes=100 << 20, tail=tail),
        RankResult(2, "a", 2, 1, reported=lost[1], seconds=1.3, peak_bytes=100 << 20),
        RankResult(3, "a", 2, -9, stopped=True, seconds=2.0, peak_bytes=99 << 20),
        RankResult(4, "a", 2, None),
    )


def test_the_first_failure_is_on_top_then_what_it_brought_about_then_a_table() -> None:
    """The traceback once, its own lines before it, and one line for ranks that differ only by a port."""
    first = Failure(1, "a", "ValueError: bad row", 1.0, where="train.py:88", traceback=TRACE)
    tail = ("step 1", "allranks: HANG", "allranks:", "step 2", *TRACE.splitlines())
    assert summary(JobResult(1, ranks(tail=tail), first, seconds=2.34)) == [
        "first failure: rank 1 (host a) failed at train.py:88: ValueError: bad row",
        "  last lines of rank 1:",
        "    step 1",
        "    step 2",
        "  Traceback (most recent call last):",
        "    File ...",
        "  ValueError: bad row",
        "consequences: ranks 0, 2: Gloo: closed by 127.0.0.1:4000 (at train.py:9)",
        "consequences: rank 3: stopped by allranks",
        "consequences: rank 4: not started",
        "",
        "rank  host  devices  exit                         time  peak memory",
        "----  ----  -------  --------------------------  -----  -----------",
        "   0  a           2  1                           1.3 s       100 MB",
        "   1  a           2  1                           1.0 s       100 MB",
        "   2  a           2  1                           1.3 s       100 MB",
        "   3  a           2  stopped: killed by SIGKILL  2.0 s        99 MB",
        "   4  a           2  -                           0.0 s         0 MB",
        "exit code 1 after 2.3 s",
    ]


def test_an_explanation_that_has_just_been_shown_is_not_given_again() -> None:
    what = "killed by SIGABRT: op.preamble.length <= op.nbytes. 8 vs 4"
    result = JobResult(134, (RankResult(0, "a", None, 134),), Failure(0, "a", what, 1.0))
    (headline, title, *explained), table = summary(result)[:-5], 5
    assert "[gloo-size-mismatch]" in title
    assert summary(result, recent=["allranks: what rank 0 said above", *explained])[:-table] == [headline]


def test_what_has_just_been_shown_is_not_said_again() -> None:
    """Neither the traceback, nor the lines before it, nor what other ranks have said of the same error."""
    ours = [f"allranks.errors.Mismatch: rank {rank}: agree: 0 and 1" for rank in range(3)]
    first = Failure(0, "a", ours[0], 1.0, where="train.py:9", traceback=f"Traceback:\n{ours[0]}\n")
    said = [Failure(1, "a", ours[1], 1.0, where="train.py:9"), Failure(2, "a", "RemoteError: lost", 2.0)]
    shown = ["step 1", "Traceback:", "allranks.errors.Mismatch: agree: 0 and 1", "RemoteError: lost"]
    ended = (
        RankResult(0, "a", None, 1, reported=first, tail=tuple(shown[:3])),
        *(RankResult(one.rank, "a", None, 1, reported=one) for one in said),
    )
    assert summary(JobResult(1, ended, first), recent=shown, quiet=True) == [
        "first failure: rank 0 (host a) failed at train.py:9: allranks.errors.Mismatch: agree: 0 and 1",
        "  (its traceback is above)",
        "rank 1: the same",
        "consequences: rank 2: RemoteError",
    ]


def test_a_traceback_that_is_longer_than_what_is_kept_of_the_output_is_not_said_twice() -> None:
    """The last lines begin in its middle, and JAX and notes put more behind it."""
    frames = [line for n in range(3) for line in (f'  File "a.py", line {n}, in f', f"    f({n})", "    ^^^^")]
    trace = "\n".join(["Traceback (most recent call last):", *frames, "ValueError: bad row"])
    first = Failure(1, "a", "ValueError: bad row", 1.0, traceback=trace)
    tail = (*frames[2:], "ValueError: bad row", "a note")
    assert summary(JobResult(1, ranks(tail=tail), first))[1] == "  Traceback (most recent call last):"


def test_a_job_that_we_were_asked_to_stop_has_no_failure_on_top() -> None:
    lines = summary(JobResult(130, ranks(tail=()), cause="interrupted by Ctrl-C"))
    assert lines[0] == "job interrupted by Ctrl-C"
    assert not any("failure" in line or "consequences" in line for line in lines)


@pytest.mark.parametrize(
    ("unjoined", "join"), [("torch", "init_process_group()"), ("jax, torch", "initialize() or torch")]
)
def test_ranks_that_never_met_are_said_to_be_separate_programs(unjoined: str, join: str) -> None:
    """One line above the table, with what to do; nothing where they met."""
    ranks = (RankResult(0, "a", None, 0), RankResult(1, "a", None, 0))
    first, *_ = summary(JobResult(0, ranks, unjoined=unjoined))
    assert first.startswith("the 2 ranks never met: 2 separate programs?")
    assert join in first
    assert not any("never met" in line for line in summary(JobResult(0, ranks)))
