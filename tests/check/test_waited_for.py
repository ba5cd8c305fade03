"""Between two uses of a file the processes wait for each other by a function of the project; a folder is made by who
fills it."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

PARTS = """\
import json
import jax
import tools

jax.distributed.initialize()


def write(rows, path):
    with open(path + f".p{jax.process_index()}", "w") as part:
        part.write(json.dumps(rows))
    WAITS
    if jax.process_index() == 0:
        for at in range(jax.process_count()):
            with open(path + f".p{at}") as part:
                rows += json.loads(part.read())
    return rows


write([], "rows")
"""
TOOLS = """\
import jax
import jax.numpy as jnp


def sync():
    jax.jit(jnp.sum)(jnp.ones(jax.device_count())).block_until_ready()


def tell():
    print("written")
"""
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


@pytest.mark.parametrize(("waits", "found"), [("tools.sync()", 0), ("tools.tell()", 1), ("torch.cuda.sync()", 1)])
def test_all_wait_in_what_the_project_calls_so(waits: str, found: int) -> None:
    files = {"train.py": PARTS.replace("WAITS", waits).encode(), "tools.py": TOOLS.encode()}
    assert [f.code for f in check(files, Settings()).findings].count("AR405") == found


@pytest.mark.parametrize(
    ("saves", "found"), [("model.save_pretrained(out + '/step')", 0), ("torch.save({}, out + '/step.pt')", 1)]
)
def test_what_is_saved_with_its_folder_waits_for_none(saves: str, found: int) -> None:
    findings = check({"train.py": FOLDER.replace("SAVES", saves).encode()}, Settings()).findings
    assert [f.code for f in findings].count("AR405") == found
