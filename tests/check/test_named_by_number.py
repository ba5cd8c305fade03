"""What goes by its number, is one process by what it says, or is seen to be the same: nothing of it is shown."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check


def _told(code: str, text: str, **others: str) -> list[tuple[int, str]]:
    raw = {f"{name}.py": one.encode() for name, one in (("train", text), *others.items())}
    return [(f.place.line, f.confidence) for f in check(raw, Settings(select=(code,))).findings]


def test_devices_that_jax_only_simulates_are_of_one_process() -> None:
    head = "import os\nimport jax.numpy as jnp\n\ndef main(args):\n    os.environ['JAX_PLATFORMS'] = 'cpu'\n"
    many = "    os.environ['XLA_FLAGS'] = f'--xla_force_host_platform_device_count={args.devices}'\n"
    assert _told("AR603", f"{head}    convert(args)\n") == [(5, "high")]
    assert _told("AR603", f"{head}{many}    convert(args)\n") == []


LOADER = """\
import torch
from data import Rows
from torch.utils.data import DataLoader, DistributedSampler

def loader(rows):
    g = torch.Generator()
    g.manual_seed(0)
    sampler = DistributedSampler(Rows(rows))
    return DataLoader(Rows(rows), batch_size=8, sampler=sampler, num_workers=8, generator=g)
"""
ROWS = "import random\n\nclass Rows:\n    def __getitem__(self, at):\n        return {}\n"


def test_workers_that_draw_nothing_draw_nothing_alike() -> None:
    assert _told("AR701", LOADER, data=ROWS.format("self.rows[at]")) == []
    assert _told("AR701", LOADER, data=ROWS.format("random.choice(self.rows[at])")) == [(7, "high")]


SAVED = """\
import torch.distributed as dist
from transformers import AutoModel


dist.init_process_group("nccl")
model = AutoModel.from_pretrained("m")
model.save_pretrained("out"{how})
"""


@pytest.mark.parametrize(
    ("how", "found"), [("", [(7, "high")]), (", save_function=accelerator.save", []), (", optimizer=optimizer", [])]
)
def test_a_model_whose_weights_another_saves_or_whose_ranks_have_shards(how: str, found: list[tuple[int, str]]) -> None:
    assert _told("AR101", SAVED.format(how=how)) == found


WRITES = """\
import json
import pickle
import sys
import torch
import torch.distributed as dist

def dump(what, path, mode):
    if mode == "json":
        with open(path, "w") as f:
            json.dump(what, f)
    else:
        with open(path, "wb") as f:
            pickle.dump(what, f)

def {name}(model, step, args):
    {body}

dist.init_process_group("nccl")
{name}(torch.nn.Linear(2, 2), 1, sys.argv)
"""


@pytest.mark.parametrize(
    ("name", "body", "sure"),
    [
        ("save", "torch.save(model.state_dict(), 'last.pt')", "high"),
        ("save", "torch.save(model.state_dict(), args.expert_path)", "low"),
        ("save", "dump(model, f'{step}.json', args.mode)", "low"),
        ("save", "dump(model, f'{step}.pkl', args.mode)", "high"),
        ("export_onnx", "torch.onnx.export(model, step, args.path)", "low"),
        ("train", "torch.onnx.export(model, step, args.path)", "high"),
    ],
)
def test_what_is_written_by_one_process_as_its_name_says(name: str, body: str, sure: str) -> None:
    assert [found[1] for found in _told("AR101", WRITES.format(name=name, body=body))] == [sure]


def test_a_private_function_that_nobody_calls_writes_nothing() -> None:
    """It is told of where somebody does call it."""
    mine = "import torch\nfrom transformers import Trainer\n\nclass Mine(Trainer):\n"
    mine += "    def _save_all(self):\n        torch.save(self.state, 'last.pt')\n"
    for call, sure in (("train()", "low"), ("_save_all()", "high")):
        main = "import torch.distributed as dist\nfrom mine import Mine\n\ndist.init_process_group('nccl')\n"
        main += f"Mine(1).{call}\n"
        files = {"mine.py": mine.encode(), "train.py": main.encode()}
        assert [f.confidence for f in check(files, Settings(select=("AR101",))).findings] == [sure]


def test_a_program_that_talks_with_somebody_is_one_process() -> None:
    text = SAVED.format(how="")
    for name, sure in (("train", "high"), ("vis_chatbot", "low")):
        found = check({f"{name}.py": text.encode()}, Settings(select=("AR101",))).findings
        assert [f.confidence for f in found] == [sure]


def test_a_file_that_is_shown_while_it_is_written_is_that_file() -> None:
    head = "import tempfile\nimport torch\nimport torch.distributed as dist\nimport sys\n"
    head += "if sys.argv:\n    from tqdm import tqdm_notebook as bar\nelse:\n    from tqdm import tqdm as bar\n"
    head += "dist.init_process_group('nccl')\n"
    for name, found in (("tempfile.NamedTemporaryFile(dir='out')", []), ("open('out.pt', 'wb')", [(12, "high")])):
        text = f"{head}file = {name}\nwith bar.wrapattr(file, 'write') as f:\n    torch.save(state, f)\n"
        assert _told("AR101", text) == found
