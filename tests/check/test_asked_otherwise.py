"""Other ways to ask whether there are other processes, and facts about libraries that few projects use."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

MESH = """\
import torch.distributed as dist
import wandb
from torch.distributed.device_mesh import init_device_mesh

def mesh_rank(mesh):
    return 0 if mesh is None else mesh.get_coordinate()[0]

def train(config):
    mesh = init_device_mesh("cuda", (config.size,)) if config.size > 1 else None
    run = wandb.init() if {asked} else None
"""
SPAWNED = """\
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from config import load

def is_main():
    return not args.multiprocessing_distributed or (args.multiprocessing_distributed and args.rank % args.gpus == 0)

def main():
    args = load("config.yaml")
    if len(args.devices) == 1:
        args.multiprocessing_distributed = False
        args.distributed = False
    if args.multiprocessing_distributed:
        mp.spawn(work, nprocs=args.gpus, args=(args,))
    else:
        work(0, args)

def work(gpu, arguments):
    global args
    args = arguments
    if args.distributed:
        args.rank = args.rank * args.gpus + gpu
        dist.init_process_group("nccl", rank=args.rank)
    if {asked}:
        torch.save(args.state, "last.pt")

main()
"""
CONFIG = """\
class Node(dict):
    def __getattr__(self, name):
        return self[name]

def load(path):
    return Node(open(path).read())
"""


def codes(files: dict[str, str]) -> list[str]:
    outcome = check({path: text.encode() for path, text in files.items()}, Settings())
    return [f.code for f in outcome.findings if f.confidence == "high"]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("mesh is None or mesh_rank(mesh) == 0", []),
        ("mesh is None or mesh.get_rank() == 0", []),
        ("mesh is None or config.logs", ["AR103"]),
    ],
)
def test_where_there_are_several_there_is_a_mesh(asked: str, expected: list[str]) -> None:
    assert codes({"train.py": MESH.format(asked=asked)}) == expected


@pytest.mark.parametrize(("asked", "expected"), [("is_main()", []), ("args.saves", ["AR101"])])
def test_settings_that_start_processes_are_on_where_there_are_several(asked: str, expected: list[str]) -> None:
    """The example of torch for ImageNet, with settings from a file; one that is switched off somewhere is not off."""
    assert codes({"train.py": SPAWNED.format(asked=asked), "config.py": CONFIG}) == expected


@pytest.mark.parametrize(("package", "expected"), [("elements", []), ("pathlib", ["AR108"])])
def test_paths_of_elements_may_be_there(package: str, expected: list[str]) -> None:
    text = f'import {package}\nimport jax\n\njax.distributed.initialize()\n{package}.Path("dump").mkdir()\n'
    assert codes({"train.py": text}) == expected


@pytest.mark.parametrize(("where", "expected"), [("", []), (', cache_dir="/shared"', ["AR106"])])
def test_in_jax_each_host_has_a_home(where: str, expected: list[str]) -> None:
    text = f"import jax\nimport keras\n\njax.distributed.initialize()\nkeras.utils.get_file('w', 'x'{where})\n"
    assert codes({"train.py": text}) == expected


@pytest.mark.parametrize(("name", "expected"), [("_demo", []), ("_main", ["AR109"])])
def test_what_a_module_shows_when_it_is_run(name: str, expected: list[str]) -> None:
    text = (
        "import shutil\nfrom mpi4py import MPI\n\n\ndef log():\n    return MPI.COMM_WORLD.rank\n\n\n"
        f"def {name}():\n    log()\n    shutil.rmtree('/data/logs')\n\n\nif __name__ == '__main__':\n    {name}()\n"
    )
    assert codes({"logger.py": text}) == expected


@pytest.mark.parametrize(("told", "expected"), [("report_to", []), ("output_dir", ["AR108"])])
def test_where_transformers_reports_to_is_a_list(told: str, expected: list[str]) -> None:
    text = f"""\
import os
import torch.distributed as dist
import transformers

dist.init_process_group("nccl")
parser = transformers.HfArgumentParser((transformers.TrainingArguments,))
(training_args,) = parser.parse_args_into_dataclasses()
if training_args.{told} == "wandb":
    os.makedirs("logs")
"""
    assert codes({"train.py": text}) == expected


@pytest.mark.parametrize(
    ("begins", "expected"),
    [
        ("pass", []),
        ("print(accelerator.num_processes)", ["AR101"]),
        ("accelerator.wait_for_everyone()", ["AR101"]),
        ("accelerator.unwrap_model(net)", ["AR101"]),
        ("start_logs()", ["AR101"]),
    ],
)
def test_a_program_that_has_accelerate_for_its_precision_mostly_runs_alone(begins: str, expected: list[str]) -> None:
    text = f"""\
import torch
from accelerate import Accelerator
from logs import start_logs

def main(net):
    accelerator = Accelerator(mixed_precision="bf16")
    net = accelerator.prepare(net)
    {begins}
    torch.save(net.state_dict(), "last.pt")

if __name__ == "__main__":
    main(torch.nn.Linear(2, 2))
"""
    logs = "import torch.distributed as dist\n\ndef start_logs():\n    return dist.get_rank()\n"
    assert codes({"train.py": text, "logs.py": logs}) == expected


ENCODES = """\
import torch
import torch.distributed as dist
{begins}

def encode(data, out):
    if USE_HOROVOD:
        torch.save(data, f"{{out}}_{{hvd.rank()}}")
        hvd.join()
    else:
        torch.save(data, out)

if __name__ == "__main__":
    dist.init_process_group("gloo")
    encode([], "x")
"""
TRIES = """\
try:
    import horovod.torch as hvd
    USE_HOROVOD = True
except ImportError:
    USE_HOROVOD = False
"""


@pytest.mark.parametrize(
    ("begins", "expected"), [(TRIES, []), (TRIES.replace("True", "False"), ["AR101"]), ("USE_HOROVOD = 0", ["AR101"])]
)
def test_what_joins_several_processes_could_be_imported(begins: str, expected: list[str]) -> None:
    assert codes({"train.py": ENCODES.format(begins=begins)}) == expected


@pytest.mark.parametrize(
    ("given", "expected"), [("monai.data.DataLoader(monai.data.Dataset(data=files))", []), ("files", ["AR101"])]
)
def test_a_batch_on_another_device_has_the_names_of_its_samples(given: str, expected: list[str]) -> None:
    text = f"""\
import monai
import torch
import torch.distributed as dist
from names import files

dist.init_process_group("gloo")
for batch in {given}:
    image = batch["image"].to("cuda:1")
    torch.save(image, image.meta["name"].replace(".nii", ".pt"))
"""
    assert codes({"train.py": text}) == expected
