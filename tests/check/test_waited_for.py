"""Between two uses of a file the processes wait for each other by a function of the project; a folder is made by who
fills it."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

FOLDER = """\
import os
import torch
import torch.distributed as dist
from transformers import AutoModel


def main(model: AutoModel, out):
    dist.init_process_group("nccl")
    if dist.get_rank() == 0:
        os.makedirs(out)
    SAVES


main(None, "out")
"""


@pytest.mark.parametrize(
    ("saves", "found"), [("model.save_pretrained(out + '/step')", 0), ("torch.save({}, out + '/step.pt')", 1)]
)
def test_what_is_saved_with_its_folder_waits_for_none(saves: str, found: int) -> None:
    findings = check({"train.py": FOLDER.replace("SAVES", saves).encode()}, Settings()).findings
    assert [f.code for f in findings].count("AR405") == found
