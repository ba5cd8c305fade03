"""What rank 0 alone puts into a folder, and all ranks look at."""

from __future__ import annotations

from allranks.check.engine import Settings, check

PROGRAM = """\
import logging, os, shutil
import torch
import torch.distributed as dist
import torchvision
from metrics import calculate_fid
from models import Model

def main(args, images, model, adapter_dir, run_dir, out_dir):
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    if rank == 0:
        {makes}
    {between}
    {reads}
"""


def test_one_file_is_not_what_others_look_for() -> None:
    makes = "torch.save(args, os.path.join(out_dir, 'args.pt'))"
    assert _found(makes, "pass", "steps = os.listdir(out_dir)") == []


def test_the_source_of_a_copy_was_there_before() -> None:
    assert _found("shutil.copytree(data_dir, out_dir)", "pass", "data = RowDataset(data_dir)") == []


def _found(makes: str, between: str, reads: str) -> list[int]:
    return _lines(PROGRAM.format(makes=makes, between=between, reads=reads))


def _lines(text: str) -> list[int]:
    return [one.place.line for one in check({"train.py": text.encode()}, Settings(select=("AR405",))).findings]
