"""Calls that are told apart however many there are, and names that mean Python's own."""

from __future__ import annotations

import sys

import pytest

from allranks.check.engine import Settings, check
from allranks.check.tables.python import OWN_MODULES

JOIN = "import torch.distributed as dist\n\ndist.init_process_group('nccl')\n"
KEEPER = """\
def keep(data, path, everywhere=False):
    if path is None:
        return
    if is_first() or everywhere:
        with open(path, "w") as file:
            file.write(data)
"""
HELPERS = f"import torch.distributed as dist\n\n\ndef is_first():\n    return dist.get_rank() == 0\n\n\n{KEEPER}"


def _found(files: dict[str, str]) -> list[tuple[str, str, int]]:
    outcome = check({path: text.encode() for path, text in files.items()}, Settings())
    shown = [f for f in outcome.findings if f.confidence == "high"]
    return [(f.code, f.place.path, f.place.line) for f in shown]


def _program(last: str) -> dict[str, str]:
    calls = "".join(f"keep(str({at}), 'file{at}.txt')\n" for at in range(8))
    return {"helpers.py": HELPERS, "train.py": f"from helpers import keep\n{JOIN}{calls}{last}\n"}


@pytest.mark.parametrize("last", ["keep('', None, True)", "keep('', f'{dist.get_rank()}.txt', True)"])
def test_the_ninth_call_is_told_from_the_others_by_none_and_by_the_rank_in_a_name(last: str) -> None:
    assert _found(_program(last)) == []


def test_the_ninth_call_that_lets_every_rank_write_is_found() -> None:
    assert ("AR102", "helpers.py", 12) in _found(_program("keep('', 'all.txt', True)"))


SAVES_TO_MEMORY = f"import io\nimport torch\n{JOIN}\nmemory = io.BytesIO()\ntorch.save(1, memory)\n"


def test_a_module_of_the_name_of_one_of_pythons_in_another_folder_is_not_meant() -> None:
    others = {f"vision/{part}/io.py": "class BytesIO:\n    pass\n" for part in ("image", "video")}
    packages = dict.fromkeys(("vision/__init__.py", "vision/image/__init__.py", "vision/video/__init__.py"), "")
    assert _found({"train.py": SAVES_TO_MEMORY, **others, **packages}) == []


def test_a_module_beside_a_script_comes_before_pythons() -> None:
    beside = {"tools/queue.py": "import torch\n\n\ndef put(x):\n    torch.save(x, 'last.pt')\n"}
    text = f"import queue\n{JOIN}\nqueue.put(1)\n"
    assert _found({"tools/train.py": text, **beside}) == [("AR101", "tools/queue.py", 5)]
    in_package = {"tools/__init__.py": "", "run.py": "import tools.train\n"}
    assert _found({"tools/train.py": text, **beside, **in_package}) == []


GATED = """\
import torch.distributed as dist

dist.init_process_group("nccl")


class Net:
    def __init__(self, config):
        self.hparams.config = config

    def end(self):
        if self.hparams.config["loss"] > 0:
            dist.barrier()
        dist.all_reduce(self.total)
"""
KEEPS = """\
import os
from dataclasses import dataclass

import torch.distributed as dist


@dataclass
class Job:
    config: object


def start():
    return Job(config=[dist.get_rank(), os.path.exists("a")])


start()
"""


def test_a_list_that_holds_a_rank_says_not_who_is_here() -> None:
    assert _found({"net.py": GATED, "job.py": KEEPS}) == []


WRITES = "import torch\nimport torch.distributed as dist\n\ndist.init_process_group({})\ntorch.save(1, 'last.pt')\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [("'nccl', world_size=1, rank=0", []), ("'gloo', world_size=2, rank=rank", [("AR101", "train.py", 5)])],
)
def test_who_joins_a_world_of_one_has_it_for_itself(text: str, found: list[object]) -> None:
    assert _found({"train.py": WRITES.format(text)}) == found


@pytest.mark.parametrize(
    ("page", "sure"),
    [
        ("torchrun --nproc_per_node 1 train.py --small", False),
        ("torchrun --nproc_per_node 1 --nnodes 4 train.py", True),
        ("torchrun --nproc_per_node 1 train.py\n\n    torchrun --nproc_per_node 8 train.py", True),
        ("torchrun train.py", True),
    ],
)
def test_what_a_launcher_starts_once_is_alone(page: str, sure: bool) -> None:
    text = "import torch\nimport torch.distributed as dist\n\nif dist.is_initialized():\n    dist.barrier()\n"
    files = {"train.py": f"{text}torch.save(1, 'last.pt')\n", "README.md": f"# Run\n\n    {page}\n"}
    assert bool(_found(files)) is sure


@pytest.mark.parametrize(
    "name", ["hf2mcore_7b", "dcp_to_sfpt", "llama2hf", "x_to_hf", "transform_param", "tools/convert_weights"]
)
def test_a_program_that_turns_one_format_into_another_is_a_tool(name: str) -> None:
    assert _found({f"{name}.py": WRITES.format("'gloo'")}) == []


def test_the_names_of_pythons_own_modules_are_all_there() -> None:
    assert {name for name in sys.stdlib_module_names if name[0] != "_"} <= OWN_MODULES


LOGGED = """\
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.utilities.rank_zero import rank_zero_only


class Counts(Callback):
    @rank_zero_only
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        number = sum(p.numel() for p in pl_module.model.parameters())
        pl_module.log("parameters", float(number), sync_dist=True{more})
"""


@pytest.mark.parametrize(("more", "found"), [("", ["AR201"]), (", rank_zero_only=True", [])])
def test_what_one_rank_logs_for_itself_is_not_reduced(more: str, found: list[str]) -> None:
    assert [code for code, _, _ in _found({"counts.py": LOGGED.format(more=more)})] == found


SAVERS = """\
import torch
import torch.distributed as dist

dist.init_process_group("nccl")


class Saver:
    def save(self, model):
        torch.save(model, "last.pt")


class NoOp:
    def __getattr__(self, name):
        return lambda *args: None


saver = Saver() if dist.get_rank() == 0 else NoOp()
saver.save(1)
Saver.save(Saver(), 1) if {again} else None
"""


@pytest.mark.parametrize(("again", "found"), [("False", []), ("True", ["AR101"])])
def test_an_object_that_does_nothing_is_that_of_the_other_ranks(again: str, found: list[str]) -> None:
    assert [code for code, _, _ in _found({"train.py": SAVERS.format(again=again)})] == found


@pytest.mark.parametrize(("mode", "found"), [("r:xz", []), ("w:xz", ["AR102"]), ("r|*", []), ("x:gz", ["AR102"])])
def test_how_an_archive_is_packed_says_not_that_it_is_written(mode: str, found: list[str]) -> None:
    text = f"import tarfile\n{JOIN}\nwith tarfile.open('data.tar', '{mode}') as tar:\n    print(tar.getnames())\n"
    assert [code for code, _, _ in _found({"train.py": text})] == found


HOOK = """\
class Base:
    def __init__(self):
        self._rank, self._size = who()

    @property
    def rank(self):
        return self._rank


def dump(text):
    runner = Base()
    if runner.rank == 0:
        with open("log.txt", "w") as file:
            file.write(text)


dump("a")
"""


def test_a_property_called_rank_is_one_where_nothing_more_is_known() -> None:
    assert _found({"train.py": f"from elsewhere import who\n{JOIN}\n{HOOK}"}) == []
