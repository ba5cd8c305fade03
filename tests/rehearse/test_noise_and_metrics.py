"""Random numbers that are equal on all ranks, logged values that are one rank's, and other faults of small judges."""

from __future__ import annotations

import pytest
from traces import Script

from allranks.rehearse.checkpoint_names import is_temporary
from allranks.rehearse.judge import all_findings
from allranks.rehearse.trace import Event, Frame


def codes(script: Script) -> list[tuple[str, int]]:
    return [(one.code, one.place.line) for one in all_findings(script.case())]


def drawn(digests: tuple[str, str], *, a_step: int, function: str = "<module>", worker: int = -1) -> Script:
    """Return three steps of two ranks that draw single numbers, ``a_step`` in each, for four samples."""
    script = Script(2)
    count = 0
    for step in range(3):
        script.steps = {0: step, 1: step}
        for _ in range(a_step):
            count += 1
            for rank in (0, 1):
                data = {"name": "uniform", "count": count, "shape": [], "digest": f"{digests[rank]}{count}"}
                script.add(rank, "draw", 4, **data, worker=worker)
                event = script.events[-1]
                script.events[-1] = Event(
                    rank, "draw", 0, event.time, step, (Frame("/p/train.py", 4, function),), 1, 1, event.data
                )
        for rank in (0, 1):
            script.add(rank, "input", 6, module="Net", samples=[f"{rank}{step}{row}" for row in range(4)])
    return script


NOISE = {
    "one for each sample": (drawn(("a", "a"), a_step=4), [("AR701", 4)]),
    "another one on each rank": (drawn(("a", "b"), a_step=4), []),
    "one for each step: a scale that all ranks choose": (drawn(("a", "a"), a_step=1), []),
    "one where a sample is made": (drawn(("a", "a"), a_step=3, function="__getitem__"), [("AR701", 4)]),
    "the same in a worker": (drawn(("a", "a"), a_step=3, function="__getitem__", worker=0), [("AR701", 4)]),
}


@pytest.mark.parametrize("name", NOISE)
def test_single_numbers_that_all_ranks_draw(name: str) -> None:
    script, expected = NOISE[name]
    assert codes(script) == expected


def logged(values: list[float], *, ranks: tuple[int, ...] = (0,), is_file: bool = True, differ: bool = True) -> Script:
    """Return two epochs of three losses; after each, some ranks log one of the values."""
    script = Script(2)
    for epoch in range(2):
        for number in range(3):
            for rank in (0, 1):
                count = 1 + 3 * epoch + number
                script.add(rank, "value", 3, value=count + 0.25 + (10 * rank if differ else 0), count=count)
        for rank in ranks:
            script.add(rank, "logged", 5, name="loss", value=values[epoch], is_file=is_file)
    return script


METRICS = {
    "the last value": (logged([3.25, 6.25]), [("AR310", 5)]),
    "the mean of an epoch": (logged([2.25, 5.25]), [("AR310", 5)]),
    "the sum of an epoch": (logged([6.75, 15.75]), [("AR310", 5)]),
    "the mean over the ranks": (logged([7.25, 10.25]), []),
    "one value that is a rank's by chance": (logged([2.25, 10.25]), []),
    "a number of an epoch": (logged([3.0, 6.0]), []),
    "values that all ranks have": (logged([2.25, 5.25], differ=False), []),
    "each rank in a file of its own": (logged([3.25, 6.25], ranks=(0, 1)), []),
    "each rank to a tracker": (logged([3.25, 6.25], ranks=(0, 1), is_file=False), [("AR310", 5)]),
}


@pytest.mark.parametrize("name", METRICS)
def test_logged_values_of_one_rank(name: str) -> None:
    script, expected = METRICS[name]
    assert codes(script) == expected


def weights(gradients: list[tuple[str, str]], values: list[tuple[str, str]]) -> Script:
    script = Script(2)
    for number, (gradient, value) in enumerate(zip(gradients, values, strict=True)):
        for rank in (0, 1):
            row = ["w", 0, "float32[4]", "", value[rank], gradient[rank], True]
            script.add(rank, "weights", 8, optimizer=0, number=number, rows=[row], rates=[0.1], random="r", dropout="")
    return script


REDUCED = {
    "reduced no more from the second step on": (
        weights([("a", "a"), ("b", "c"), ("d", "e"), ("f", "g")], [("1", "1"), ("2", "2"), ("3", "4"), ("5", "6")]),
        [("AR705", 8)],
    ),
    "averaged weights after each local step (local SGD)": (
        weights([("a", "a"), ("b", "c"), ("d", "d"), ("f", "f")], [("1", "1"), ("2", "2"), ("3", "4"), ("5", "5")]),
        [],
    ),
}


@pytest.mark.parametrize("name", REDUCED)
def test_gradients_that_are_reduced_no_more(name: str) -> None:
    script, expected = REDUCED[name]
    assert codes(script) == expected


def written(*left: str, read: bool = False) -> Script:
    script = Script(2)
    for rank, digest in enumerate(left):
        script.file(rank, "create", "c.yaml", line=3, content_after=digest)
    return script.barrier().file(0, "read", "c.yaml", line=9) if read else script


@pytest.mark.parametrize(
    ("script", "severity"),
    [
        (written("a", "a"), "warning"),
        (written("a", "b"), "error"),
        (written("", ""), "error"),
        (written("a", "a", read=True), "error"),
    ],
)
def test_equal_bytes_that_nobody_reads_are_a_warning(script: Script, severity: str) -> None:
    assert [(one.code, one.severity) for one in all_findings(script.case())] == [("AR102", severity)]


def test_two_threads_with_collectives_of_one_group() -> None:
    def calls(*threads: int, group: str = "0") -> Script:
        script = Script(2)
        for number, thread in enumerate(threads):
            for kind in ("enter", "leave"):
                for rank in (0, 1):
                    key = f"{group if thread else '0'}/{number}"
                    script.add(rank, kind, 3 + thread, key=key, name="all_reduce", way="all", root=None, members=[])
                    event = script.events[-1]
                    script.events[-1] = Event(
                        rank, kind, 0, event.time, 0, event.place, 100 + rank, 100 + rank + 50 * thread, event.data
                    )
        return script

    assert codes(calls(1, 0, 1)) == [("AR211", 4)]
    assert codes(calls(1, 1, 0)) == []
    assert codes(calls(1, 0, 1, group="1")) == []


def compiled(*times: int) -> Script:
    script = Script(2)
    for rank, number in enumerate(times):
        for count in range(number):
            script.add(rank, "compiled", 4, name="jit(step)", count=count + 1)
    return script


@pytest.mark.parametrize(("times", "expected"), [((1, 5), ["AR014"]), ((1, 2), []), ((0, 5), []), ((5, 5), [])])
def test_functions_that_one_rank_compiles_again(times: tuple[int, int], expected: list[str]) -> None:
    assert [code for code, _ in codes(compiled(*times))] == expected


def daemon(path: str, operation: str = "create") -> Script:
    script = Script(2).file(0, operation, path, line=3)
    return script.add(0, "daemon", 7, name="save", native=100, files=["/p/last.pt", "/p/log.csv"])


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (daemon("last.pt"), [("AR015", "error")]),
        (daemon("log.csv"), [("AR015", "warning")]),
        (daemon("log.csv", "append"), []),
        (daemon("closed.pt"), []),
    ],
)
def test_files_that_daemon_threads_have_open_at_the_end(script: Script, expected: list[tuple[str, str]]) -> None:
    assert [(one.code, one.severity) for one in all_findings(script.case())] == expected


def test_tied_weights_that_were_lost() -> None:
    script = Script(2)
    for rank in (0, 1):
        script.add(rank, "untied", 9, names=["emb.weight", "head.weight"], function="load_state_dict")
    assert codes(script) == [("AR016", 9)]


@pytest.mark.parametrize("path", ["m.pt.tmp", ".tmp12/m.pt", "7.orbax-checkpoint-tmp/state", "tmp_1/m.pt", "m.pt.part"])
def test_names_that_a_checkpoint_has_only_until_it_is_complete(path: str) -> None:
    assert is_temporary(f"/runs/{path}")
    assert not is_temporary(f"/{path}/ckpt/m.pt")
    assert not is_temporary("/tmp/template.pt")
