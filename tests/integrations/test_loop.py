"""What the callbacks for all frameworks share, without a framework."""

from __future__ import annotations

from pathlib import Path

import pytest

from allranks import Checkpointer
from allranks.errors import AllranksError
from allranks.integrations.loop import TrainingLoop
from allranks.world import sigterm
from allranks.world.detect import single_world


def test_sigterm_is_answered_by_one_part_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Checkpointer and Ranks would have all ranks leave at calls of their own: whoever comes second is refused."""
    monkeypatch.setattr(sigterm, "_start_listening", lambda: None)
    monkeypatch.setattr(
        sigterm, "_answer", sigterm._SigtermAction()
    )  # other tests of this process may have left theirs
    ranks = TrainingLoop(verify_every=0, save_on_preemption=True)
    advice = r"Checkpointer\(on_sigterm=False\).* Ranks|Ranks.* Checkpointer\(on_sigterm=False\)"
    with Checkpointer(tmp_path / "a", single_world()), pytest.raises(AllranksError, match=advice):
        ranks.begin_training(single_world(), {}, 0, save_state=lambda _: "")
    undo = sigterm.handle_with(lambda: None, who="Ranks(save_on_preemption=True)")
    with pytest.raises(AllranksError, match=advice):
        Checkpointer(tmp_path / "b", single_world())
    assert not (tmp_path / "b").exists()
    Checkpointer(tmp_path / "b", single_world(), on_sigterm=False).close()
    undo()
    Checkpointer(tmp_path / "b", single_world()).close()
