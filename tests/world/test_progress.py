"""What a rank is in is known to whoever looks, and what it was in before is back when that ends."""

from __future__ import annotations

from allranks.world.progress import PYTHON, Progress


def test_what_was_entered_is_told_until_it_is_left() -> None:
    """Calls inside of calls: the innermost is told; leaving brings back the outer one, counted from then on."""
    here = Progress()
    begun = here.mark[2]
    outer = here.enter("save", "step 3")
    inner = here.enter("meeting", "barrier 'save'")
    assert here.mark[:2] == ("meeting", "barrier 'save'")
    here.leave(inner)
    assert here.mark[:2] == ("save", "step 3")
    assert here.mark[2] >= inner[2]
    here.leave(outer)
    assert here.mark[:2] == (PYTHON, "")
    assert here.mark[2] >= begun
    assert here.calls == 2


def test_what_the_program_says_that_it_does_is_told_outside_of_all_calls() -> None:
    """A call in it does not end it; saying it again is a sign of progress."""
    here = Progress()
    here.doing("validation", step=7)
    assert (here.mark[:2], here.step, here.calls) == ((PYTHON, "validation"), 7, 1)
    with here.inside("meeting", "barrier 'a'"):
        assert here.mark[0] == "meeting"
    assert here.mark[:2] == (PYTHON, "validation")
    assert here.last[:2] == ("meeting", "barrier 'a'")
