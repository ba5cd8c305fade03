"""Sends and receives are compared as pairs: forms that differ are found, ranks that wait for each other are named."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest
import threads

from allranks.errors import Mismatch
from allranks.gate.lockstep import monitor as monitor_module
from allranks.gate.lockstep import transfers as transfers_module
from allranks.gate.lockstep.monitor import LockstepMonitor


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers_module, "_PATIENCE", 0.02)
    monkeypatch.setattr(transfers_module, "_INTERVAL", 0.01)
    monkeypatch.setattr(monitor_module, "_GRACE_OF_TRANSFERS", 60.0)  # these ranks end when the test does


class Wire:
    """What was sent, by way: a receive waits for it."""

    def __init__(self) -> None:
        self.sent: dict[tuple[int, int, int], int] = {}
        self.changed = threading.Condition()

    def send(self, monitor: LockstepMonitor, to: int, form: str, tag: int = 0) -> None:
        me = monitor.world.rank
        monitor.transfers.post_transfer(("0", me, to, tag), form, "train.py:3", sends=True)
        with self.changed:
            self.sent[me, to, tag] = self.sent.get((me, to, tag), 0) + 1
            self.changed.notify_all()

    def receive(self, monitor: LockstepMonitor, source: int, form: str, tag: int = 0) -> None:
        channel = source, monitor.world.rank, tag
        post = monitor.transfers.post_transfer(("0", *channel), form, "train.py:5", sends=False)
        sequence = monitor.call_sequence(range(monitor.world.size))
        with monitor.transfers.record_waiting(post), self.changed:
            while self.sent.get(channel, 0) < post.number:
                self.changed.wait(0.01)
                if sequence.pending_error is not None:
                    sequence.error_raised = True
                    raise sequence.pending_error
        monitor.transfers.compare_receive(post)


def program(steps: Sequence[Sequence[tuple[str, int, str]]], wire: Wire) -> Any:
    """Each rank's steps: (send or receive, peer, form)."""

    def run(monitor: LockstepMonitor) -> None:
        for what, peer, form in steps[monitor.world.rank]:
            getattr(wire, what)(monitor, peer, form)

    return run


def test_ranks_that_send_what_is_received_hear_nothing() -> None:
    """Whatever the order of pairs, the changes of forms, and who is late."""
    forms = [f"{k % 3 + k // 20} x float32" for k in range(60)]
    first = [step for form in forms for step in (("send", 1, form), ("receive", 1, form))]
    second = [step for form in forms for step in (("send", 0, form), ("receive", 0, form))]
    assert threads.run(2, program([first, second], Wire())) == [None, None]


@pytest.mark.parametrize(("sent", "received"), [("abab", "abac"), ("aaaa", "aaab"), ("aaab", "aaaa"), ("a", "b")])
def test_a_form_that_differs_is_found_at_the_receiver(sent: str, received: str) -> None:
    """Whichever side, or both, did not foretell it."""

    def run(monitor: LockstepMonitor) -> None:
        if monitor.world.rank == 0:
            for form in sent:
                wire.send(monitor, 1, form)
        else:
            for form in received:
                wire.receive(monitor, 0, form)
            monitor.call_sequence((0, 1)).check_transfers()

    wire = Wire()
    error = threads.run(2, run)[1]
    assert isinstance(error, Mismatch), error
    number = next(i for i, (a, b) in enumerate(zip(sent, received, strict=True), 1) if a != b)
    assert f"transfer {number} from rank 0 to rank 1 (tag 0) differs: rank 0 sends {sent[number - 1]}" in str(error)
    assert error.ranks == (0, 1)


def test_ranks_that_wait_for_each_other_in_a_ring_are_named() -> None:
    """Three ranks, each for the one before; a fourth waits for one of them, and is in no ring."""
    steps = [[("receive", 2, "x")], [("receive", 0, "x")], [("receive", 1, "x")], [("send", 0, "y")]]
    found = threads.run(4, program(steps, Wire()))
    for error in found[:3]:
        assert isinstance(error, Mismatch), error
        assert error.ranks == (0, 1, 2)
        assert "rank 1 receives x from rank 0 (number 1, train.py:5)" in str(error)
    assert found[3] is None


def test_a_receive_more_than_sends_faces_a_receive() -> None:
    steps = [[("send", 1, "x")] * 3 + [("receive", 1, "x")], [("receive", 0, "x")] * 4]
    for error in threads.run(2, program(steps, Wire())):
        assert isinstance(error, Mismatch), error
        assert "rank 0 receives x from rank 1 (number 1, train.py:5); rank 1 receives x from rank 0 (number 4," in str(
            error
        )
