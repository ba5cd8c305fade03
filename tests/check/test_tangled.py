"""Files where very many ways lead from name to name: a rule says that it gave up."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check
from allranks.check.sources import source

PROGRAM = b"""
import os
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = int(os.environ["LOCAL_RANK"])
local = rank
mine = sorted(os.listdir("data"))[local :: dist.get_world_size()]
torch.save({}, "last.pt")
"""


def test_a_rule_that_would_take_too_many_steps_gives_up_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others have looked at the file nevertheless."""
    monkeypatch.setattr(source, "MOST_STEPS", 1)
    findings = check({"train.py": PROGRAM}, Settings()).findings
    gave_up = [finding for finding in findings if finding.code == "AR903"]
    assert gave_up
    assert all("it takes more than 1 steps from name to name" in finding.message for finding in gave_up)
    assert {finding.severity for finding in gave_up} == {"info"}
    assert "AR101" in {finding.code for finding in findings}
