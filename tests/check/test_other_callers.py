"""What others say of a place: who calls a store, what a launcher sets, who is asked over the web, who joins nobody."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check
from allranks.check.interpret.state import Result
from allranks.check.interpret.truth import EVERY
from allranks.check.summaries.summary import FunctionFacts
from allranks.check.survey.byname import ByName

JOIN = "import os\nimport shutil\nimport torch.distributed as dist\n\ndist.init_process_group('nccl')\n"
STORE = """\
import os
import shutil

def upload(source, target):
    shutil.copyfile(source, target)

def remove(path):
    os.remove(path)
"""
USES = JOIN.replace("import os", "import os\nfrom {0} import remove, upload") + "upload('a', 'b')\nremove('b')\n"
NODES = "torchrun --nnodes 2 train.py\n"
EACH_NODE = "if int(os.environ['LOCAL_RANK']) == 0:\n    open(os.path.join(local_out_path, 'a'), 'w')\n"
WRITES = """\
from elsewhere import make

class Data:
    def read(self):
        make().write("row")

    def write(self, path):
        open(path, "w")
"""
SILENT = """\
import os
import state
import torch.distributed as dist

class Model:
    def __init__(self):
        self.silent = False
        self.join()
        if not self.silent and not os.path.isdir("runs"):
            os.makedirs("runs")

    def join(self):
        dist.init_process_group("nccl")
        self.silent = state.LOCAL_RANK > 0

Model()
"""
HOSTS = """\
import os
import jax

jax.distributed.initialize()
if not os.path.exists("runs"):
    os.makedirs("runs")
"""
ORBAX = """\
import time
import deepspeed
import jax
import orbax.checkpoint as ocp

jax.distributed.initialize()
{}(f"runs/{{time.time()}}", {{}})
"""
REGISTERED = """\
import os
import torch.distributed as dist
from registry import Workspace

dist.init_process_group("nccl")

@Workspace.register("local")
class Local:
    def __init__(self):
        os.remove("old.db")
"""
MODULE = """\
import lightning as L
import torch.distributed as dist

class Crops(L.LightningModule):
    def training_step(self, batch, index):
        print(self.global_rank)

    def write_crops(self):
        open("a.png", "wb")
"""
MODEL = """\
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

class Model:
    def __init__(self, net):
        self.net = DistributedDataParallel(net)

    def old_fit(self):
        dist.barrier()
        open("best.txt", "w")
"""
ITEMS = """\
import jax

jax.distributed.initialize()

class Handler:
    def save(self, folder, item):
        def one(item, process_index):
            (folder / f"{process_index}.json").write_text(item)

        if isinstance(item, list):
            for it, process_index in item:
                one(it, process_index)
        else:
            process_index = jax.process_index()
            one(item, process_index)

def main(folder, item):
    Handler().save(folder, item)

main(None, None)
"""
SETTINGS = """\
import os
import torch.distributed as dist

def set_up(rank=-1):
    if rank == -1:
        return
    dist.init_process_group('nccl', rank=rank)
"""
JOINS = "from devices import set_up\nfrom sampling import deal\n\nset_up({})\ndeal([])\nopen('metrics.json', 'w')\n"
DEALS = "from torch.utils.data import DistributedSampler\n\ndef deal(data):\n    return DistributedSampler(data)\n"
SERVES = """\
import os
import fastapi
import torch.distributed as dist

def serve():
    dist.init_process_group('nccl')
    app = fastapi.FastAPI()

    @app.delete("/files/{path}")
    def forget():
        print(dist.get_rank())
        os.remove("cache.bin")

    return app

serve()
"""
MIXED = """\
import torch.distributed as dist
from transformers import Trainer

class _OnOtherTrainer:
    def push_to_hub(self):
        return super().push_to_hub("done")

class OtherTrainer(_OnOtherTrainer, Trainer):
    def on_end(self):
        self.push_to_hub()

def main():
    dist.init_process_group("nccl")
    OtherTrainer().on_end()

if __name__ == "__main__":
    main()
"""
# The files of a program, what is found in it; what is put into the first file of the bug next to it, and what is found.
PROGRAMS: dict[str, tuple[dict[str, str], list[str], str, str, list[str]]] = {
    "a layer over file systems": (
        {"train.py": USES.format("storage.io"), "storage/io.py": STORE, "storage/files.py": STORE},
        [],
        "storage.io",
        "storage.files",
        ["AR102", "AR109"],
    ),
    "a path that the launcher sets": (
        {"train.py": JOIN + "shutil.copyfile('a', os.environ['REPLY_FILE'])\n"},
        [],
        "os.environ['REPLY_FILE']",
        "'reply'",
        ["AR102"],
    ),
    "a folder that is called local": (
        {"train.py": JOIN + "def dump(cfg):\n    open(os.path.join(cfg.dump_local_dir, 'x'), 'w')\n\ndump(None)\n"},
        [],
        "dump_local_dir",
        "dump_dir",
        ["AR102"],
    ),
    "a folder of the node that is called local": (
        {"train.py": f"{JOIN}\nif dist.get_rank() == 0:\n    open('a.json', 'w')\n{EACH_NODE}", "run.sh": NODES},
        [],
        "local_out_path",
        "out_path",
        ["AR105"],
    ),
    "a program that merges": (
        {"trace_merger.py": f"{JOIN}\nif __name__ == '__main__':\n    open('merged.json', 'w')\n"},
        [],
        "import os",
        "import os  # as a module of `train.py`",
        [],
    ),
    "a method as files have it": (
        {"train.py": JOIN + "from data import Data\n\nData().read()\n", "data.py": WRITES},
        [],
        "Data().read()",
        "Data().write('map.json')",
        ["AR102"],
    ),
    "what a method sets after the rank of another module": (
        {"train.py": SILENT, "state.py": "LOCAL_RANK = -1\n"},
        [],
        "self.silent = state.LOCAL_RANK > 0",
        "self.loud = state.LOCAL_RANK > 0",
        ["AR108"],
    ),
    "a folder of each host of JAX": (
        {"train.py": HOSTS},
        [],
        "import os",
        "import os, torch",
        ["AR108"],
    ),
    "a folder that Orbax writes to": (
        {"train.py": ORBAX.format("ocp.StandardCheckpointer().save")},
        [],
        "ocp.StandardCheckpointer().save",
        "deepspeed.initialize(model=None)[0].save_checkpoint",
        ["AR107"],
    ),
    "what is for one device alone": (
        {
            "train.py": JOIN
            + "def graph(trainer):\n    if trainer.n_devices == 1:\n        open('a', 'w')\n\ngraph(0)\n"
        },
        [],
        "n_devices == 1",
        "n_devices != 1",
        ["AR102"],
    ),
    "what a driver makes of a registry": (
        {"train.py": REGISTERED, "registry.py": "class Workspace(dict): ...\n\nclass Model(dict): ...\n"},
        [],
        "Workspace",
        "Model",
        ["AR109"],
    ),
    "a method that nobody calls, as a module has many": (
        {"model.py": MODULE},
        [],
        "def write_crops",
        "def on_train_end",
        ["AR102"],
    ),
    "a method that has been before": (
        {"model.py": MODEL},
        [],
        "def old_fit",
        "def fit_all",
        ["AR102"],
    ),
    "a rank that comes with an item": (
        {"train.py": ITEMS},
        [],
        "else:\n            process_index = jax.process_index()",
        "else:\n            process_index = 0",
        ["AR102"],
    ),
    "a program that leaves the rank out": (
        {"train.py": JOINS.format(""), "devices.py": SETTINGS, "sampling.py": DEALS},
        [],
        "set_up()",
        "set_up(int(__import__('os').environ['RANK']))",
        ["AR102"],
    ),
    "a function that answers requests": (
        {"serve.py": SERVES},
        [],
        "return app",
        "forget()",
        ["AR109"],
    ),
    "what is mixed into a trainer of a library": (
        {"train.py": MIXED},
        [],
        "super().push_to_hub",
        "self.model.push_to_hub",
        ["AR102"],
    ),
}


def _found(files: dict[str, str]) -> list[str]:
    found = check({path: text.encode() for path, text in files.items()}, Settings()).findings
    return [finding.code for finding in found if finding.code.startswith("AR10") and finding.confidence == "high"]


@pytest.mark.parametrize("case", PROGRAMS)
def test_what_others_say_is_heard(case: str) -> None:
    """Nothing is said of a place that others make their own; it is where they do not."""
    files, none, instead, by, some = PROGRAMS[case]
    first = next(iter(files))
    assert instead in files[first]
    other = {**files, first: files[first].replace(instead, by)}
    assert (_found(files), _found(other)) == (none, some)


class _Project:
    """A project of two methods: one calls the other by its name on rank 0."""

    def function(self, reference: str) -> FunctionFacts:
        name = reference.rpartition(".")[2]
        return FunctionFacts(name, "Kept", *((), (), ("", "")), (), (), (), (1, 0, 1, 0), (), (), b"")


def test_who_is_asked_for_later_knows_who_has_called_it_since() -> None:
    """A method that another one calls by its name is gone down to for the ranks that call it."""
    link, run = (Result(f"a.py::Kept.{name}") for name in ("link", "run"))
    run.loose.append(("link", 1, ()))
    by_name, gone = ByName(_Project(), lambda name: (name,)), list[tuple[str, int]]()  # type: ignore[arg-type]
    by_name.make("a.py::Kept", EVERY, sure=True)

    def down(root: Result, roles: int) -> None:
        gone.append((root.reference, roles))
        by_name.note(root, roles, sure=True)

    by_name.come_to([run, link], down)
    assert gone == [("a.py::Kept.run", EVERY), ("a.py::Kept.link", 1)]
