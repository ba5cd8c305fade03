"""One rank against N: what is compared, what is found, and what cannot be compared."""

from __future__ import annotations

from typing import Any

import pytest

from allranks.launch.job import Call, Script
from allranks.rehearse.judge import worlds
from allranks.rehearse.plan import with_batch
from allranks.rehearse.trace import Event, Frame, Trace
from allranks.settings import ConfigWrong

LINE = (Frame("/p/train.py", 9, "<module>"),)


def trace(ranks: int, gradients: list[float], *, later: float = 3.0, **changes: Any) -> Trace:
    norms = {"weights": [1.0, 2.0], "gradients": gradients, "rates": [0.1], "random": [], "parts": False} | changes
    second = norms | {"number": 1, "weights": [1.0, later]}
    samples = [f"sample {i}" for i in range(4)]
    events = [Event(rank, "input", 0, 0.0, 0, LINE, data={"samples": samples[rank::ranks]}) for rank in range(ranks)]
    events += [Event(0, "norms", 0, 1.0, 0, LINE, data=norms | {"number": 0})]
    events += [Event(0, "norms", 0, 2.0, 1, LINE, data=second)]
    return Trace(ranks, tuple(events))


def judged(one: Trace, many: Trace) -> list[str]:
    return [f"{found.code} {found.message}" for found in worlds.judge(one, many)]


def test_equal_gradients_and_weights_are_right() -> None:
    assert judged(trace(1, [0.3, 0.4]), trace(2, [0.3, 0.4001])) == []


@pytest.mark.parametrize(("factor", "words"), [(2.0, "2 times those of one: they are summed"), (0.5, "0.5 times")])
def test_gradients_that_the_world_scales_are_found(factor: float, words: str) -> None:
    [found] = judged(trace(1, [0.3, 0.4]), trace(2, [0.3 * factor, 0.4 * factor]))
    assert found.startswith("AR024 at step 1, with the same samples,")
    assert words in found


def test_other_gradients_are_found() -> None:
    assert judged(trace(1, [0.3, 0.4]), trace(2, [0.3, 0.5])) == [
        "AR025 at step 1, with the same samples, 2 ranks have other gradients than one rank"
    ]


def test_other_weights_after_equal_gradients_are_found() -> None:
    [found] = judged(trace(1, [0.3]), trace(2, [0.3], later=4.0))
    assert found.startswith("AR025 with 2 ranks the weights after step 1 are others than with one rank")


@pytest.mark.parametrize(
    ("one", "many", "words"),
    [
        (trace(1, [0.3], weights=[5.0]), trace(2, [0.6]), "the ranks hold parts of the model"),
        (trace(1, [0.3]), trace(2, [0.6], parts=True), "the ranks hold parts of the model"),
        (trace(1, [0.3]), trace(2, [0.6], random=["Dropout"]), "Dropout makes results depend on the number of ranks"),
        (trace(1, [0.3], weights=[1.0, 9.0]), trace(2, [0.6]), "the first weights depend on the number of ranks"),
        (Trace(1, trace(1, [0.3]).events[1:]), trace(2, [0.6]), "one rank gets other samples in its first step"),
        (Trace(1, ()), trace(2, [0.6]), "no step of a torch optimizer was seen"),
    ],
)
def test_what_cannot_be_compared_is_said_and_not_judged(one: Trace, many: Trace, words: str) -> None:
    assert worlds.unseen(one, many).startswith(words)
    assert judged(one, many) == []


def test_one_rank_gets_the_batch_of_all() -> None:
    assert with_batch(Script("t.py", ("--batch", "8", "-x")), "--batch", 4).arguments == ("--batch", "32", "-x")  # type: ignore[union-attr]
    assert with_batch(Script("t.py", ("batch=8",)), "batch", 2).arguments == ("batch=16",)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (Script("t.py", ("--steps", "8")), "the program's arguments have no --batch with a value"),
        (Script("t.py", ("--batch",)), "the program's arguments have no --batch with a value"),
        (Script("t.py", ("--batch", "auto")), "--batch is 'auto', and a whole number is needed"),
        (Call("a:b"), "a function has no command line"),
    ],
)
def test_a_batch_that_cannot_be_changed_is_refused(target: Any, words: str) -> None:
    with pytest.raises(ConfigWrong, match=words):
        with_batch(target, "--batch", 2)
