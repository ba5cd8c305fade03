"""What a rank does at SIGTERM while its program adds and removes what acts on it."""

from __future__ import annotations

from allranks.world.sigterm import _SigtermAction


def test_an_action_that_is_removed_while_the_signal_arrives_still_runs() -> None:
    """A Checkpointer is closed in the main thread: whoever looked at the list before and after found two lists."""
    ran: list[str] = []
    action = _SigtermAction(end=lambda: ran.append("end"))
    action.instead.append(("a Checkpointer", lambda: ran.append("save")))

    def is_doomed() -> bool:
        action.instead.clear()
        return False

    action.doomed = is_doomed
    action.give()
    assert ran == ["save"]


def test_a_failed_job_does_not_act() -> None:
    ran: list[str] = []
    action = _SigtermAction(end=lambda: ran.append("end"), doomed=lambda: not ran)
    action.instead.append(("a Checkpointer", lambda: ran.append("save")))
    action.give()
    assert ran[0] == "end"
