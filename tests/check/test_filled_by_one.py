"""What rank 0 alone puts into a folder, and all ranks look at."""

from __future__ import annotations

import pytest

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
IMAGES = "for i, g in enumerate(images): torchvision.utils.save_image(g, os.path.join(out_dir, str(i)))"
MODEL = "kept = adapter_dir if args.lora else run_dir; model.save_pretrained(kept)"


@pytest.mark.parametrize(
    ("makes", "reads"),
    [
        pytest.param(IMAGES, "score = calculate_fid([args.real, out_dir], 64)", id="all images of a folder"),
        pytest.param(
            "for i, g in enumerate(images): path = f'{out_dir}/{i}.png'; torchvision.utils.save_image(g, path)",
            "data = torchvision.datasets.ImageFolder(out_dir)",
            id="under a name",
        ),
        pytest.param(MODEL, "Model.from_pretrained(args.base, adapter_dir)", id="a path with two names"),
        pytest.param(
            "words = train(args.files); words.save('out_dir/words.json')",
            "words = Tokenizer.from_file('out_dir/words.json')",
            id="a file whose name is written down",
        ),
        pytest.param("shutil.copytree(args.source, out_dir)", "data = RowDataset(out_dir)", id="a folder is copied"),
        pytest.param(
            "os.makedirs(out_dir, exist_ok=True)",
            "logging.basicConfig(level=20, filename=f'{out_dir}/{rank}.log')",
            id="a log of each in a folder",
        ),
        pytest.param("os.makedirs(out_dir)", "names = os.listdir(out_dir)", id="a folder that is not there yet"),
    ],
)
def test_all_look_at_what_one_makes(makes: str, reads: str) -> None:
    """A meeting between, or another folder, and nothing is wrong."""
    assert _found(makes, "pass", reads) == [14]
    assert _found(makes, "dist.barrier()", reads) == []
    other = reads.replace("out_dir", "args.data").replace("adapter_dir", "args.adapter")
    assert _found(makes, "pass", other) == []


def test_a_folder_that_every_rank_makes_is_there() -> None:
    assert (
        _found("os.makedirs(out_dir, exist_ok=True)", "os.makedirs(out_dir, exist_ok=True)", "os.listdir(out_dir)")
        == []
    )


def test_one_file_is_not_what_others_look_for() -> None:
    makes = "torch.save(args, os.path.join(out_dir, 'args.pt'))"
    assert _found(makes, "pass", "steps = os.listdir(out_dir)") == []


RENEWED = """\
from tokenizers import Tokenizer, words
import torch.distributed as dist
import files

def load(args, rows):
    cache_path = files.of(args.train)
    if dist.get_rank() == 0:
        words(rows).save(cache_path)
    {between}
    return Tokenizer.from_file(cache_path)
"""


def test_a_name_may_be_that_of_another_path_by_then() -> None:
    assert _lines(RENEWED.format(between="pass")) == [10]
    assert _lines(RENEWED.format(between="cache_path = files.of(args.held_out)")) == []


def test_the_source_of_a_copy_was_there_before() -> None:
    assert _found("shutil.copytree(data_dir, out_dir)", "pass", "data = RowDataset(data_dir)") == []


OWN = """\
import os
import numpy as np
import torch.distributed as dist
from PIL import Image

def main(args, images, folder):
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    for i, image in enumerate(images):
        Image.fromarray(image).save(f"{{folder}}/{{i * world + rank:06d}}.png")
    {between}
    if rank == 0:
        {looks}
"""


def test_one_looks_at_what_all_fill() -> None:
    """A meeting between, or a look at what is its own, and nothing is wrong."""
    looks = "create_npz_from_folder(folder, len(images))"
    assert _lines(OWN.format(between="pass", looks=looks)) == [13]
    assert _lines(OWN.format(between="dist.barrier()", looks=looks)) == []
    assert _lines(OWN.format(between="pass", looks="create_npz_from_folder(args.other, 8)")) == []
    assert _lines(OWN.format(between="mine = merge_files(folder, rank)", looks="pass")) == []


def _found(makes: str, between: str, reads: str) -> list[int]:
    return _lines(PROGRAM.format(makes=makes, between=between, reads=reads))


def _lines(text: str) -> list[int]:
    return [one.place.line for one in check({"train.py": text.encode()}, Settings(select=("AR405",))).findings]
