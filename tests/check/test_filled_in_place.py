"""What libraries fill on the other ranks is one answer for all."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

RESUMES = """\
import os
from accelerate import Accelerator
SEND


def newest(accelerator, out):
    found = [None]
    if accelerator.is_main_process and os.path.isdir(out):
        found = [sorted(os.listdir(out))[-1]]
    SENDS
    return found[0]


def main(out, model, loader):
    accelerator = Accelerator()
    model, loader = accelerator.prepare(model, loader)
    first, state = 0, newest(accelerator, out)
    if state is not None:
        first = int(state.split("-")[1]) + 1
    for epoch in range(first, 9):
        for batch in loader:
            accelerator.backward(model(batch))


main("out", None, None)
"""


@pytest.mark.parametrize(
    ("send", "sends", "lines"),
    [
        ("from accelerate.utils import broadcast_object_list", "broadcast_object_list(found, from_process=0)", []),
        ("import mmengine.dist as far", "far.broadcast_object_list(found)", []),
        ("from torch import distributed as far", "far.broadcast_object_list(found, 0)", []),
        ("import far", "far.touch(found)", [22]),
    ],
)
def test_what_rank_0_has_found_is_sent_in_a_list(send: str, sends: str, lines: list[int]) -> None:
    text = RESUMES.replace("SENDS", sends).replace("SEND", send)
    found = check({"train.py": text.encode()}, Settings(select=("AR201", "AR203"))).findings
    assert [one.place.line for one in found] == lines
