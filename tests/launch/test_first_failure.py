"""Who was first: stories of ends, in the order in which a busy machine may show them, and the one that began each."""

from __future__ import annotations

import itertools
import signal
from dataclasses import dataclass, field

import pytest

from allranks.evidence import CauseWeight, first_of, weight_of
from allranks.failure import Failure
from allranks.launch import crash
from allranks.launch.first_failure import Departure, FailureReport, RankExit, find_first_failure

KILLED, ABORTED, TERMINATED = -signal.SIGKILL, -signal.SIGABRT, -signal.SIGTERM
CLOSED = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:42638."
LATE = "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 4000ms for recv operation to complete"
MISMATCH = "  what():  [enforce fail at gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 8 vs 4"
TASK_DIED = (
    "F1128 20:00:00.000000  99 client.h:80] Terminating process because the JAX distributed service detected fatal "
    "errors. This most likely indicates that another task died"
)
LINES = ("Traceback (most recent call last):", CLOSED)


@dataclass
class Story:
    """What is known of a job: failures that were told, ends of processes, ranks that left in order."""

    told: list[FailureReport] = field(default_factory=list)
    ends: dict[int, RankExit] = field(default_factory=dict)
    left: dict[int, Departure] = field(default_factory=dict)

    def tells(self, rank: int, what: str, at: float, *, before: str = "", lines: tuple[str, ...] = ()) -> Story:
        self.told.append(FailureReport(Failure(rank, "a", what, at, before=before), lines))
        return self

    def ends_with(self, rank: int, code: int, at: float, *, lines: tuple[str, ...] = ()) -> Story:
        self.ends[rank] = RankExit(rank, code, at, lines=lines)
        return self

    def leaves(self, rank: int, at: float, *, lines: tuple[str, ...] = ()) -> Story:
        self.left[rank] = Departure(at, lines=lines)
        return self

    @property
    def first(self) -> tuple[int, str]:
        found = find_first_failure(self.told, self.ends, departures=self.left, host="a")
        assert found is not None
        return found.rank, found.failure.what


CAUSES = {
    "raises": Story().tells(1, "ValueError: bad row", 5.0),
    "raises, told late": Story().tells(1, "ValueError: bad row", 9.0),
    "killed": Story().ends_with(1, KILLED, 9.0),
    "crashes": Story().ends_with(1, -signal.SIGSEGV, 9.0),
    "terminated": Story().ends_with(1, TERMINATED, 9.0),
    "aborted by a mismatch": Story().ends_with(1, ABORTED, 9.0, lines=(MISMATCH,)),
    "os.abort": Story().tells(1, "killed by SIGABRT: os.abort() was called", 5.0),
    "exit code": Story().ends_with(1, 3, 9.0),
    "leaves in order": Story().leaves(1, 5.0),
    "exits with 0 without a word": Story().ends_with(1, 0, 9.0),
    "sys.exit(1) in a handler": Story().tells(
        1, "left with exit code 1 after ValueError: x", 5.0, before="ValueError: x"
    ),
    "out of memory": Story().tells(1, "MemoryError", 9.0),
    "data server resets": Story().tells(1, "ConnectionResetError: [Errno 104] Connection reset by peer", 5.0),
    "collective times out": Story().tells(1, LATE, 5.0),
}
VICTIMS = {
    "raises": Story().tells(0, CLOSED, 5.1),
    "raises of it": Story().tells(0, "StepFailed: step 3", 5.1, before=CLOSED),
    "sys.exit(1) in a handler": Story().tells(0, f"left with exit code 1 after {CLOSED}", 5.1, before=CLOSED),
    "prints, and sys.exit(1)": Story().tells(0, "left with exit code 1", 5.1, lines=LINES),
    "prints, and exits": Story().ends_with(0, 1, 5.2, lines=LINES),
    "RankDied": Story().tells(0, "allranks.errors.RankDied: rank 0: barrier 'x': a rank has ended", 5.1),
    "aborted by JAX": Story().ends_with(0, ABORTED, 5.2, lines=(TASK_DIED,)),
    "catches it and leaves": Story().leaves(0, 5.2, lines=LINES).tells(2, CLOSED, 5.1),
}


@pytest.mark.parametrize(("cause", "victim"), list(itertools.product(CAUSES, VICTIMS)))
def test_a_cause_is_first_whatever_the_clock_says_of_its_consequence(cause: str, victim: str) -> None:
    """The victim's error names no rank, and is seen before the end of the rank that it speaks of."""
    one, two = CAUSES[cause], VICTIMS[victim]
    story = Story(two.told + one.told, two.ends | one.ends, two.left | one.left)
    assert story.first[0] == 1
    assert Story(two.told, two.ends, two.left).first[0] in (0, 2), "alone, the victim is all that is known"


def test_a_timeout_is_first_of_the_errors_that_it_causes_and_the_consequence_of_who_left() -> None:
    waits = Story().tells(0, LATE, 30.0).tells(2, CLOSED, 30.0)
    assert waits.first == (0, LATE)
    assert waits.leaves(1, 3.0).first == (1, "left early (exit code 0) while ranks 0, 2 still needed it")
    assert waits.leaves(1, 31.0).first[0] == 0, "who leaves after the timeout has not caused it"


def test_ranks_that_jax_aborts_on_their_way_out_lost_the_one_that_left_before() -> None:
    """All have left in order, as far as they know; one of them by os._exit, past JAX's shutdown barrier."""
    story = Story().leaves(0, 5.2).leaves(1, 5.0).leaves(2, 5.2).ends_with(1, 0, 5.1)
    story.ends_with(0, ABORTED, 105.0, lines=(TASK_DIED,)).ends_with(2, ABORTED, 105.0, lines=(TASK_DIED,))
    assert story.first == (1, "left early (exit code 0) while ranks 0, 2 still needed it")


def test_sigterm_that_comes_after_a_failure_is_not_first() -> None:
    """Slurm and torchrun send it to the survivors."""
    assert Story().tells(0, "KeyError: 'x'", 5.0).ends_with(1, TERMINATED, 5.1).first[0] == 0


def test_a_size_mismatch_is_the_fault_of_the_rank_that_it_aborts() -> None:
    """Its peer catches the broken connection, says so, and leaves in order before the launcher sees the abort."""
    caught = ("shape mismatch -> RuntimeError " + CLOSED,)
    rank, what = (
        Story().leaves(1, 5.0, lines=caught).ends_with(1, 0, 5.1).ends_with(0, ABORTED, 5.4, lines=(MISMATCH,)).first
    )
    assert (rank, what.split(": ")[1][:17]) == (0, "killed by SIGABRT")


@pytest.mark.parametrize(
    ("what", "weight"),
    [
        ("ValueError: bad row", CauseWeight.CAUSE),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", CauseWeight.CAUSE),
        ("requests.exceptions.ConnectionError: ('Connection aborted.', RemoteDisconnected())", CauseWeight.UNCLEAR),
        (
            "ValueError: UNKNOWN: Gloo all-reduce failed: [pair.cc:538] Read error [::1]:1: Conn",
            CauseWeight.CONSEQUENCE,
        ),
        ("RuntimeError: [gloo/transport/tcp/pair.cc:517] Read timeout [127.0.0.1]:3333. This is", CauseWeight.WAITING),
        (
            "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed.",
            CauseWeight.CONSEQUENCE,
        ),
        (
            "jax.errors.JaxRuntimeError: UNAVAILABLE: Failed to send RPC to coordination service.",
            CauseWeight.CONSEQUENCE,
        ),
        ("allranks.errors.BarrierTimeout: rank 0: barrier 'x': rank 1 did not come", CauseWeight.WAITING),
        ("allranks.errors.RemoteError: rank 0: main_rank: rank 1 raised ValueError", CauseWeight.CONSEQUENCE),
        ("killed by SIGABRT", CauseWeight.UNCLEAR),
        ("killed by SIGTERM", CauseWeight.UNCLEAR),
        ("killed by SIGKILL", CauseWeight.CAUSE),
    ],
)
def test_what_an_error_says_has_a_weight(what: str, weight: CauseWeight) -> None:
    assert weight_of(Failure(0, "a", what, 0.0)) is weight


def test_the_first_of_failures_is_the_cause_then_the_earliest() -> None:
    early, late = Failure(0, "a", CLOSED, 1.0), Failure(1, "b", "KeyError: 1", 2.0)
    assert first_of([early, late]) is late
    assert first_of([early, Failure(2, "b", CLOSED, 0.5)]).rank == 2


DUMP = """\
Fatal Python error: Aborted

Thread 0x00007f0b04 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait

Current thread 0x00007f0b04 (most recent call first):
  File "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 9 in all_reduce
  File "/home/me/train.py", line 88 in step
  File "/home/me/train.py", line 99 in <module>

Extension modules: numpy._core (total: 1)
""".splitlines()


def test_a_stack_says_where_a_rank_was_and_its_last_words_why() -> None:
    """The innermost line of the user's; where a library's thread gave up, what the main thread did, which is last."""
    assert crash.place(DUMP, cwd="/home/me") == "train.py:88"
    other = [line.replace("Current thread", "Thread") for line in DUMP]
    assert crash.place(other, cwd="/srv") == "/home/me/train.py:88"
    assert crash.place(["Segmentation fault"], cwd="/") == ""
    assert crash.reason([*DUMP, MISMATCH]).startswith("[enforce fail at gloo")
    assert crash.reason([TASK_DIED, *DUMP]).startswith("Terminating process because the JAX")
    assert crash.reason(DUMP) == ""
