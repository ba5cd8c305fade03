"""What goes by its number, is one process by what it says, or is seen to be the same: nothing of it is shown."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check


def _told(code: str, text: str, **others: str) -> list[tuple[int, str]]:
    raw = {f"{name}.py": one.encode() for name, one in (("train", text), *others.items())}
    return [(f.place.line, f.confidence) for f in check(raw, Settings(select=(code,))).findings]


SPAWNED = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def work(rank, world):
    dist.init_process_group("nccl", rank=rank, world_size=world)
    model = DistributedDataParallel(Model().to(rank), device_ids=[rank])
    {then}

if __name__ == "__main__":
    torch.multiprocessing.spawn(work, args=(8,), nprocs=8)
"""


@pytest.mark.parametrize(
    ("then", "sure"),
    [
        ("dist.barrier()", "low"),
        ("x = torch.ones(1).to(rank)", "low"),
        ("x = torch.ones(1).cuda()", "high"),
        ("x = torch.ones(1, device='cuda')", "high"),
        ("dist.all_gather_object(told, 1)", "high"),
        ("torch.cuda.synchronize()", "high"),
    ],
)
def test_who_names_its_gpu_by_number_wherever_it_puts_something(then: str, sure: str) -> None:
    assert _told("AR605", SPAWNED.format(then=then)) == [(6, sure)]


IN_JOB = """\
# {how}
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
"""


def test_a_file_that_says_that_it_is_started_on_one_host() -> None:
    assert _told("AR605", IN_JOB.format(how="torchrun --nproc_per_node=8 train.py")) == [(6, "low")]
    assert _told("AR605", IN_JOB.format(how="torchrun --nnodes 2 --nproc_per_node=8 train.py")) == [(6, "high")]
    assert _told("AR605", IN_JOB.format(how="Trains.")) == [(6, "high")]


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


TRAINER = """\
import torch
import torch.distributed as dist

class Trainer:
    def __init__(self, args):
        {first}
        self.model = torch.nn.Linear(2, 2)

    def step(self):
        for p in self.model.parameters():
            dist.all_reduce(p.grad)
"""


def test_a_class_that_refuses_to_be_one_of_several_averages_nothing() -> None:
    refuses = "if args.world_size > 1:\n            raise NotImplementedError('one process')"
    assert _told("AR702", TRAINER.format(first=refuses)) == []
    assert _told("AR702", TRAINER.format(first="self.size = args.world_size")) == [(11, "high")]


SEED = """\
import os
import jax
import numpy as np

jax.distributed.initialize()

def make_seed():
    seed = np.int64(int.from_bytes(os.urandom(4), "big"))
    return {made}

key = jax.random.PRNGKey(make_seed())
"""


def test_a_seed_that_is_added_up_over_all_is_the_same_on_all() -> None:
    assert _told("AR702", SEED.format(made="jax.shard_map(lambda x: jax.lax.psum(x, 'd'), mesh=mesh)(seed)")) == []
    assert _told("AR702", SEED.format(made="seed")) == [(11, "high")]


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


LOADED = """\
import torch
import torch.distributed as dist
from data import load_{what}

def main(path):
    dist.init_process_group("nccl")
    model = torch.nn.Linear(2, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters())
    state = load_{what}(path)
    optimizer.load_state_dict(torch.load("last.pt", map_location="cpu"))
    return state

if __name__ == "__main__":
    main("a.pkl")
"""


def test_what_is_read_as_data_goes_to_no_optimizer() -> None:
    def found(what: str, helps: str = "") -> list[tuple[int, str]]:
        data = f"import torch\n{helps}\ndef load_{what}(path):\n    return torch.load(path)\n"
        return _told("AR504", LOADED.format(what=what), data=data)

    assert found("dataset") == []
    assert found("last") == [(4, "high")]
    assert found("last", "import adaptdl.torch\n") == []


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
