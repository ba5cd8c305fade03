"""How sure a finding is: the same write in a function that nobody is seen to call, and where somebody is."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from allranks.check.config import Config
from allranks.check.engine import Settings, check
from allranks.check.judge import judge

# Every rank saves; one place of the file asks for the rank, so that the class is known to be one of several.
LIBRARY = """\
import torch
import torch.distributed as dist

class Runner:
    def say(self, text):
        if dist.get_rank() == 0:
            print(text)

    def save(self, path):
        torch.save(self.state, path)
"""
STARTS = {
    "ignite": "import ignite.distributed as idist\nidist.initialize('nccl')\ntorch.save({}, 'a.pt')\n",
    "tensorflow": "import tensorflow as tf\ntf.distribute.MultiWorkerMirroredStrategy()\ntorch.save({}, 'a.pt')\n",
    "a callback of transformers": (
        "from transformers.trainer_callback import TrainerCallback\nclass Mine(TrainerCallback):\n"
        "    def on_save(self, *args):\n        torch.save({}, 'a.pt')\n"
    ),
    "a heir of a callback": (
        "from pytorch_lightning.callbacks import EarlyStopping\nclass Mine(EarlyStopping):\n"
        "    def on_validation_end(self, *args):\n        torch.save({}, 'a.pt')\n"
    ),
    "an evaluator": (
        "from detectron2.evaluation import DatasetEvaluator\nclass Mine(DatasetEvaluator):\n"
        "    def evaluate(self):\n        torch.save({}, 'a.pt')\n"
    ),
    "transformers": (
        "from transformers import Trainer\nclass Mine(Trainer):\n    def evaluation_loop(self):\n"
        "        torch.save({}, 'a.pt')\n"
    ),
}
JOINING = "import torch.distributed as dist\n\ndist.init_process_group('nccl')\n"
PROGRAM = """\
import torch.distributed as dist
from runner import Runner

dist.init_process_group('nccl')
Runner().save('last.pt')
"""
SPAWNED = """\
import torch.multiprocessing as mp
from runner import Runner

def work(rank, size):
    Runner().save('last.pt')

def launch():
    mp.spawn(work, args=(2,), nprocs=2)
"""
GATED = (
    "import torch.distributed as dist\nfrom runner import Runner\n\nif dist.get_rank() == 0:\n    Runner().save('a')\n"
)
JOINS = LIBRARY.replace("        torch.save", "        dist.init_process_group('nccl')\n        torch.save")
ASKS = """\
import jax
import pickle

if jax.process_index() == 0:
    print('begin')
pickle.dump({}, open('last.pkl', 'wb'))
"""
MEETS = ASKS.replace("    print('begin')", "    print('begin')\nmultihost_utils.sync_global_devices('begin')").replace(
    "import jax\n", "import jax\nfrom jax.experimental import multihost_utils\n"
)
SAYS_SO = "import torch\nimport utils\n\nutils.init_distributed_mode(None)\ntorch.save({}, 'last.pt')\n"
GPU = """\
import os
import torch

torch.cuda.set_device(int(os.environ['LOCAL_RANK']))
torch.save({}, 'last.pt')
"""
COUNTS = """\
import jax
import pickle

def main(state):
    hosts = jax.device_count() // jax.local_device_count()
    if jax.process_index() == 0:
        print(hosts)
    pickle.dump(state, open('last.pkl', 'wb'))

if __name__ == '__main__':
    main({})
"""
# A class that joins the processes when it is made; nobody here does that.
JOINED = """\
import torch
from accelerate import Accelerator

class Trainer:
    def __init__(self):
        self.accelerator = Accelerator()

    def save(self, path):
        torch.save({}, path)

    def run(self):
        self.accelerator.wait_for_everyone()
        self.save('last.pt')
"""
LIGHTNING = """\
import lightning.pytorch as pl

def fit_model(model):
    pl.Trainer(strategy='ddp').fit(model)
"""
AROUND = """\
import torch
from fitting import fit_model

def main():
    torch.save({}, 'first.pt')
    fit_model(None)

if __name__ == '__main__':
    main()
"""
TRAINED = """\
import torch
from transformers import Trainer, TrainingArguments

def main(options):
    trainer = Trainer(model=None, args=TrainingArguments('out'))
    trainer.train()
    torch.save({}, 'last.pt')

if __name__ == '__main__':
    main(None)
"""
# A demo whose options come from the program that trains.
DEMO = """\
import torch
from train import options

def main():
    state = options()
    torch.save(state, 'shown.pt')

if __name__ == '__main__':
    main()
"""
TRAINS = """\
from start import join_all

def options():
    join_all()
    return {}

def main():
    options()

if __name__ == '__main__':
    main()
"""
START = "import torch.distributed as dist\n\ndef join_all():\n    dist.init_process_group('nccl')\n"
HOOK = """\
import lightning.pytorch as pl
import torch

class Keeper(pl.Callback):
    def {}(self, trainer, module):
        torch.save(module.state_dict(), 'last.pt')
"""


def confidences(files: Mapping[str, str], **more) -> list[str]:
    found = check({path: text.encode() for path, text in files.items()}, Settings(select=("AR101",), **more)).findings
    return [one.confidence for one in found]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"runner.py": LIBRARY, "other.py": JOINING}, ["low"]),
        ({"runner.py": LIBRARY}, ["high"]),
        ({"runner.py": LIBRARY, "train.py": PROGRAM}, ["high"]),
        ({"runner.py": LIBRARY, "start.py": SPAWNED}, ["high"]),
        ({"runner.py": LIBRARY, "train.py": GATED}, []),
        ({"runner.py": JOINS}, ["high"]),
        ({"train.py": ASKS}, ["low"]),
        ({"train.py": MEETS}, ["high"]),
        ({"train.py": COUNTS}, ["high"]),
        ({"trainer.py": JOINED}, ["high"]),
        ({"trainer.py": JOINED.replace("        self.accelerator.wait_for_everyone()\n", "")}, ["low"]),
        ({"fitting.py": LIGHTNING, "train.py": AROUND}, ["high"]),
        ({"fitting.py": LIGHTNING.replace("'ddp'", "'auto'"), "train.py": AROUND}, []),
        ({"train.py": GPU}, ["high"]),
        ({"train.py": SAYS_SO}, ["high"]),
        ({"train.py": TRAINED}, ["low"]),
        ({"train.py": TRAINED.replace("options)", "local_rank)").replace("(None)", "(-1)")}, ["low"]),
        (
            {"train.py": TRAINED.replace("    trainer.train", "    print(options.local_rank)\n    trainer.train")},
            ["high"],
        ),
        ({"train.py": TRAINED, "README.md": "```\ntorchrun --nproc_per_node 8 train.py\n```\n"}, ["high"]),
        ({"demo.py": DEMO, "train.py": TRAINS, "start.py": START}, []),
        ({"show.py": DEMO, "train.py": TRAINS, "start.py": START}, ["high"]),
        ({"keep.py": HOOK.format("on_train_epoch_end")}, ["high"]),
        ({"keep.py": HOOK.format("dump")}, ["low"]),
    ],
    ids=[
        "nobody calls it",
        "its program is out of sight",
        "a program",
        "spawned",
        "a program on rank 0",
        "it joins",
        "asks jax",
        "meets",
        "counts the hosts",
        "a class that joins and meets",
        "a class that joins",
        "a trainer of several in another file",
        "a trainer of one in another file",
        "asks",
        "a function of a stranger says that it joins",
        "only a trainer of transformers",
        "only a trainer, in a function with such a parameter",
        "a trainer, and it asks for the rank",
        "a trainer that a page launches",
        "a demo with the options of the training",
        "the same, called as nothing else",
        "a hook",
        "no hook",
    ],
)
def test_confidence_is_high_where_somebody_is_seen_to_run_it(files: Mapping[str, str], expected: list[str]) -> None:
    assert confidences(files) == expected


def test_who_says_that_all_runs_as_several_is_believed() -> None:
    assert confidences({"runner.py": LIBRARY, "other.py": JOINING}, assume="multi-host") == ["high"]


def test_what_is_of_low_confidence_is_counted_and_shown_when_asked_for() -> None:
    """Its row of the readiness report says nothing of it either; a comment about it is used all the same."""
    files = {"runner.py": LIBRARY.encode(), "other.py": JOINING.encode()}
    hidden = judge(files, Config(select=("AR1", "AR9")))
    shown = judge(files, Config(select=("AR1", "AR9"), confidence="low"))
    assert (hidden.findings, hidden.withheld) == ((), 1)
    assert ([one.code for one in shown.findings], shown.withheld) == (["AR101"], 0)
    verdicts = [{row.topic: row.verdict for row in judged.rows}["checkpoint save"] for judged in (hidden, shown)]
    assert verdicts[0] != "error"
    assert verdicts[1] == "error"
    left = {
        **files,
        "runner.py": LIBRARY.replace("self.state, path)", "self.state, path)  # allranks: ignore[AR101] x").encode(),
    }
    assert judge(left, Config(select=("AR1", "AR9"))).findings == ()


LIGHTNING = """
import lightning as L
from lightning.pytorch.callbacks import ModelCheckpoint
class Model(L.LightningModule):
    def validation_step(self, batch, index):
        self.log("val_loss", self(batch))
trainer = L.Trainer({several}, callbacks=[ModelCheckpoint(monitor="{monitor}")])
"""


@pytest.mark.parametrize(
    ("several", "monitor", "confidence"),
    [
        ("devices=8, num_nodes=2", "val_loss", "high"),
        ("strategy='ddp'", "val_loss", "high"),
        ("devices=8", "train_loss", "high"),
    ],
)
def test_a_score_that_several_log_is_sure(several: str, monitor: str, confidence: str) -> None:
    """Where the program shows the trainer of several processes, whether or not it chooses by what each has logged."""
    text = LIGHTNING.format(several=several, monitor=monitor)
    outcome = check({"train.py": text.encode()}, Settings())
    assert [one.confidence for one in outcome.findings if one.code == "AR310"] == [confidence]


@pytest.mark.parametrize("library", STARTS)
def test_what_joins_the_processes_or_is_called_on_all_of_them(library: str) -> None:
    sources = {"train.py": f"import torch\n{STARTS[library]}".encode()}
    assert [one.confidence for one in check(sources, Settings(select=("AR101",))).findings] == ["high"]


HANDLED = """\
import torch.distributed as dist


def work(steps):
    for step in steps:
        try:
            dist.all_reduce(step)
        except KIND:
            MEETS
            break
"""


@pytest.mark.parametrize(
    ("kind", "meets", "confidence"),
    [
        ("StopIteration", "dist.barrier()", "high"),
        ("Exception", "dist.broadcast(step, 0)", "high"),
        ("RuntimeError", "dist.reduce(step, 0)", "low"),  # another way to do the same
        ("KeyboardInterrupt", "dist.barrier()", "low"),  # it comes to all
    ],
)
def test_who_fails_meets_in_something_else_than_the_others(kind: str, meets: str, confidence: str) -> None:
    text = HANDLED.replace("KIND", kind).replace("MEETS", meets)
    found = check({"work.py": text.encode()}, Settings(select=("AR210",))).findings
    assert [(one.place.line, one.confidence) for one in found] == [(9, confidence)]


def test_all_mostly_come_to_the_end_of_what_is_tried() -> None:
    text = "import torch.distributed as dist\n\ntry:\n    train()\nfinally:\n    dist.barrier()\n"
    found = check({"work.py": text.encode()}, Settings(select=("AR210",))).findings
    assert [one.confidence for one in found] == ["low"]


@pytest.mark.parametrize(
    ("name", "others", "expected"),
    [
        pytest.param("tools/dense_retriever.py", {}, "low", id="retrieves"),
        pytest.param("run_stats.py", {}, "low", id="counts"),
        pytest.param("train_and_eval.py", {}, "high", id="trains too"),
        pytest.param("evaluate_ddp.py", {}, "high", id="says that there are several"),
        pytest.param("finetune.py", {}, "high", id="trains"),
        pytest.param("evaluate.py", {"README.md": "torchrun --nproc_per_node=8 evaluate.py"}, "high", id="is launched"),
    ],
)
def test_what_a_program_that_trains_nothing_writes_is_sure_where_something_starts_several(
    name: str, others: dict[str, str], expected: str
) -> None:
    files = {name: PROGRAM.replace("from runner", "from tools.runner"), "tools/runner.py": LIBRARY, **others}
    assert confidences(files) == [expected]


def test_a_program_that_evaluates_and_starts_the_others_is_sure() -> None:
    starts = SPAWNED + "\nif __name__ == '__main__':\n    launch()\n"
    assert confidences({"runner.py": LIBRARY, "evaluate.py": starts}) == ["high"]
    assert confidences({"runner.py": LIBRARY, "evaluate.py": PROGRAM}, assume="multi-host") == ["high"]


@pytest.mark.parametrize(
    ("opens", "expected"),
    [
        ("open('log.txt', 'a')", "low"),
        ("open('log.txt', mode='a+')", "low"),
        ("open('log.txt', '+a')", "low"),
        ("open('log.txt', 'w')", "high"),
        ("logging.FileHandler('log.txt')", "low"),
        ("logging.FileHandler('log.txt', mode='w')", "high"),
        ("logging.basicConfig(filename='log.txt', filemode='w')", "high"),
        ("shutil.copyfile('last.json', 'all.json')", "high"),
    ],
)
def test_what_all_append_to_may_be_meant_so(opens: str, expected: str) -> None:
    source = (
        f"import logging\nimport shutil\nimport torch.distributed as dist\n\ndist.init_process_group('nccl')\n{opens}\n"
    )
    found = check({"train.py": source.encode()}, Settings(select=("AR102",))).findings
    assert [one.confidence for one in found] == [expected]


@pytest.mark.parametrize(
    ("removes", "sure"),
    [("os.system('rm -rf out')", "low"), ("os.system('rm -r out')", "high"), ("shutil.rmtree('out')", "high")],
)
def test_what_is_removed_whether_or_not_it_is_there_is_of_low_confidence(removes: str, sure: str) -> None:
    """Nobody fails for another one; whoever has written it anew since loses it."""
    source = f"import os\nimport shutil\nimport torch.distributed as dist\ndist.init_process_group('nccl')\n{removes}\n"
    findings = check({"train.py": source.encode()}, Settings(select=("AR109",))).findings
    assert [finding.confidence for finding in findings] == [sure]


@pytest.mark.parametrize(
    ("body", "sure"),
    [
        ("if args.dump:\n    open('config.toml', 'w')\n    sys.exit(0)\ndist.init_process_group('gloo')", "low"),
        ("if args.dump:\n    open('config.toml', 'w')\ndist.init_process_group('gloo')", "high"),
        ("dist.init_process_group('gloo')\nif args.dump:\n    open('config.toml', 'w')\n    sys.exit(0)", "high"),
        ("dist.init_process_group('gloo')\nopen(path + '.lock', 'w').close()", "low"),
        ("dist.init_process_group('gloo')\nopen(path + '.txt', 'w').close()", "high"),
    ],
)
def test_a_lock_and_what_a_program_writes_and_ends_are_of_low_confidence(body: str, sure: str) -> None:
    source = f"import sys\nimport torch.distributed as dist\n{body}\n"
    findings = check({"train.py": source.encode()}, Settings(select=("AR102",))).findings
    assert [finding.confidence for finding in findings] == [sure]
