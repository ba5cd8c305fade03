"""Calls that only some ranks make, waits without an end, and ranks that never joined each other."""

from __future__ import annotations

import pytest
from traces import Script

from allranks.failure import Failure
from allranks.launch.result import JobResult
from allranks.rehearse.judge import all_findings, failures
from allranks.rehearse.judge.partial import partial_calls

HUNG = "HANG: rank 0 waits for rank 1 (host a), since 26 s: at train.py:5 in <module>, in clock_nanosleep"


def call(script: Script, rank: int, kind: str, key: str, line: int, **more: object) -> Script:
    data = {"name": "barrier", "way": "all", "root": None, "members": [], **more}
    return script.add(rank, kind, line, key=key, **data)


def matched(script: Script, key: str, line: int) -> Script:
    for kind in ("enter", "leave"):
        for rank in range(script.ranks):
            call(script, rank, kind, key, line)
    return script


CALLS = {
    "one rank enters a barrier": (call(Script(2), 0, "enter", "1", 3), [(0, 3)]),
    "two of three ranks enter it": (
        call(call(Script(3), 0, "enter", "1", 3), 2, "enter", "1", 3),
        [(0, 3), (2, 3)],
    ),
    "all ranks enter it, at lines of their own": (call(call(Script(2), 0, "enter", "1", 3), 1, "enter", "1", 5), []),
    "one rank is one call ahead in a loop": (call(matched(Script(2), "1", 3), 0, "enter", "2", 3), []),
    "the other is in the next call, which all make": (
        call(call(matched(Script(2), "1", 7), 0, "enter", "2", 3), 1, "enter", "2", 7),
        [(0, 3)],
    ),
    "a collective of the ranks that make it": (call(Script(3), 1, "enter", "1", 3, members=[1]), []),
    "a rank receives, and nobody sends": (
        call(call(Script(2), 0, "enter", "1", 9), 1, "enter", "pair 0, 1, 0/1", 4, name="recv", members=[0, 1]),
        [(1, 4)],
    ),
    "a program of both processes that one runs": (
        Script(2).add(0, "program", 6, name="jit(evaluate)", processes=[0, 1]),
        [(0, 6)],
    ),
    "a program of one process": (Script(2).add(0, "program", 6, name="jit(evaluate)", processes=[0]), []),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_first_call_that_only_some_ranks_make(name: str) -> None:
    script, expected = CALLS[name]
    found = partial_calls(script.trace())
    assert [(event.rank, event.where and event.where.line) for event in found] == expected


def ended(script: Script, what: str) -> list[tuple[str, int]]:
    failed = Failure(0, "a", what, 0.0, where="/p/train.py:5")
    result = JobResult(exit_code=1, ranks=(), first_failure=failed)
    return [(one.code, one.place.line) for one in failures.collectives(result, script.trace())]


def test_a_hang_is_found_where_the_call_of_some_ranks_is() -> None:
    script = call(call(matched(Script(2), "1", 7), 0, "enter", "2", 3), 1, "enter", "2", 7)
    assert ended(script, "Mismatch: call 2 differs") == [("AR201", 3)]
    assert ended(matched(Script(2), "1", 7), "Mismatch: call 2 differs") == [("AR211", 5)]
    only = "CollectiveOnOneRank: rank 1: evaluate (train.py:8); rank 0: step (train.py:5): only rank 1 makes the call"
    assert ended(matched(Script(2), "1", 7), only) == [("AR201", 8)]


def test_a_rank_that_checks_for_a_file_until_the_job_hangs() -> None:
    script = call(Script(2), 1, "enter", "1", 9)
    for _ in range(8):
        script.file(0, "exists", "ready", line=4, existed=False)
    assert ended(script, HUNG) == [("AR013", 4)]
    assert ended(script.file(0, "exists", "ready", line=4, existed=True), HUNG) == [("AR209", 5)]


def test_a_call_that_some_ranks_have_missed_when_they_ended() -> None:
    script = call(Script(2), 0, "enter", "new_group/1", 3, name="new_group")
    assert list(all_findings(script.case())) == []
    found = list(all_findings(script.add(1, "left", 9).case()))
    assert [(one.code, one.message) for one in found] == [
        ("AR201", "only rank 0 calls new_group here; rank 1 does not")
    ]


def single(queried: bool, *ranks: int) -> Script:
    script = Script(2)
    for rank in ranks:
        script.add(rank, "single", 2, framework="jax", what="jax.process_index()", queried=queried)
    return script


def test_ranks_that_have_not_joined_each_other_are_the_cause_of_what_follows() -> None:
    script = single(False, 0, 1).file(0, "create", "m.pt", line=3).file(1, "create", "m.pt", line=3)
    found = list(all_findings(script.case()))
    assert [(one.code, one.severity) for one in found] == [("AR601", "error"), ("AR101", "info")]
    assert [one.code for one in all_findings(single(True, 0, 1).case())] == ["AR601"]


@pytest.mark.parametrize("script", [single(False, 0, 1), single(True, 0), matched(single(True, 0, 1), "1", 7)])
def test_ranks_that_share_nothing_or_have_joined_are_no_fault(script: Script) -> None:
    assert list(all_findings(script.case())) == []
