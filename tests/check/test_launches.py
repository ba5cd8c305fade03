"""How scripts and pages of a project start its programs: as one process, as several, on several nodes."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check
from allranks.check.sources.launches import Launches

TRAIN = """\
import torch
import torch.distributed as dist

dist.init_process_group('nccl')
torch.save({}, 'last.pt')
"""
SPAWNS = """\
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def work(rank):
    dist.init_process_group('nccl', rank=rank)
    torch.save({}, 'last.pt')

mp.spawn(work, nprocs=2)
"""
SHELL = "import os\nos.system"
FITS = """\
import lightning as L
import torch

L.Trainer(devices=8).fit(None)
torch.save({}, 'last.pt')
"""


@pytest.mark.parametrize(
    ("scripts", "as_one"),
    [
        ({}, False),
        ({"run.sh": "python tools/train.py --lr 0.1\n"}, True),
        ({"run.sh": "CUDA_VISIBLE_DEVICES=0 python3 -u \\\n  tools/train.py \\\n  --lr 0.1\n"}, True),
        ({"tools/run.sh": "cd .. && python ./train.py\n"}, True),
        ({"run.sh": "for seed in 1 2; do\n  python tools/train.py --seed $seed\ndone\n"}, True),
        ({"run.sh": "torchrun --nproc_per_node 8 tools/train.py\n"}, False),
        ({"run.sh": "accelerate launch \\\n  tools/train.py\n"}, False),
        ({"run.sh": "#SBATCH --ntasks=8\npython tools/train.py\n"}, False),
        ({"run.sh": "export MASTER_ADDR=localhost\npython tools/train.py\n"}, False),
        ({"run.sh": "$LAUNCH tools/train.py\n"}, False),
        ({"run.sh": "python tools/train.py\n", "big.sh": "torchrun tools/train.py\n"}, False),
        ({"run.sh": "# python tools/train.py\n"}, False),
        ({"run.sh": "python tools/other.py\n"}, False),
        ({"run.sh": "SCRIPT=${HOME}/tools/train.py\npython ${SCRIPT} --lr 0.1\n"}, True),
        ({"run.sh": 'case $1 in\n a) RUN=o.py;;\n *) RUN=$D/tools/train.py;;\nesac\npython "$RUN" -v\n'}, True),
        ({"run.sh": "SCRIPT=tools/train.py\ntorchrun $SCRIPT\n"}, False),
        ({"run.sh": "python -m tools.train --lr 0.1\n"}, True),
        ({"run.sh": "python tools/train.py\n", "README.md": "torchrun \\\n  tools/train.py\n"}, False),
        ({"run.sh": "python tools/train.py\n", "docs/start.rst": "torchrun tools/other.py\n"}, True),
        ({"run.sh": "N=1\ntorchrun --nproc_per_node=$N tools/train.py\n"}, True),
        ({"run.sh": "N=8\ntorchrun --nproc_per_node=$N tools/train.py\n"}, False),
        ({"run.sh": "N=1\nif $BIG; then N=8; fi\ntorchrun --nproc_per_node=${N} tools/train.py\n"}, False),
        ({"run.sh": "python -m tools.train", "job.sh": "torchrun --nproc_per_node=$GPUS -m tools.train"}, False),
        ({"README.md": "python tools/train.py\n"}, False),
        ({"run.py": f"{SHELL}('python -m torch.distributed.launch --nproc_per_node 1 \\\n  tools/train.py')\n"}, True),
        ({"run.py": f"{SHELL}('torchrun --nproc_per_node 4 tools/train.py')\n"}, False),
        ({"run.py": f"{SHELL}('torchrun --nproc_per_node 1 tools/other.py')\n"}, False),
    ],
)
def test_what_scripts_say(scripts: dict[str, str], *, as_one: bool) -> None:
    sources = {"tools/train.py": b"", **{path: text.encode() for path, text in scripts.items()}}
    assert Launches(sources).alone == ({"tools/train.py"} if as_one else set())


@pytest.mark.parametrize(("program", "expected"), [(TRAIN, "low"), (SPAWNS, "high"), (FITS, "high")])
def test_confidence_is_low_where_all_scripts_start_one_process(program: str, expected: str) -> None:
    """But not in a program that starts processes itself, nor where no script starts it."""
    sources = {"train.py": program.encode()}
    script = {"run.sh": b"python train.py\n"}
    settings = Settings(select=("AR101",))
    assert [one.confidence for one in check(sources, settings).findings] == ["high"]
    assert [one.confidence for one in check({**sources, **script}, settings).findings] == [expected]
    everywhere = Settings(select=("AR101",), assume="multi-host")
    assert [one.confidence for one in check({**sources, **script}, everywhere).findings] == ["high"]


LOCAL = """\
import os
import torch.distributed as dist
from torch.utils.data import DistributedSampler

dist.init_process_group('nccl')
DistributedSampler(rows, num_replicas=dist.get_world_size(), rank=int(os.environ['LOCAL_RANK']))
"""


@pytest.mark.parametrize(
    ("beside", "expected"),
    [
        ({}, "low"),
        ({"run.sh": b"torchrun --standalone --nproc_per_node 8 train.py"}, "low"),
        ({"run.sh": b"torchrun --nnodes 2 --nproc_per_node 8 train.py"}, "high"),
        ({"run.sh": b"torchrun --nnodes=1 --node_rank 0 --nproc_per_node 8 train.py"}, "low"),
        ({"job.sh": b"#SBATCH --nodes=1\n#SBATCH -N 1\nsrun -N1 -n 8 --nodes=1 python train.py"}, "low"),
        ({"run.sh": b"torchrun --nnodes=1:4 train.py"}, "high"),
        ({"run.sh": b"torchrun --nnodes=$NNODES --node_rank 0 train.py"}, "high"),
        ({"run.sh": b"torchrun --nnodes 1 --node_rank=$RANK train.py"}, "high"),
        ({"run.sh": b"srun -N 2 python train.py"}, "high"),
        ({"args.py": b"if num_nodes == 1: pass"}, "high"),
        ({"README.md": b"For multi-node training see below."}, "high"),
        ({"job.sbatch": b"#SBATCH --nodes=4"}, "high"),
        ({"args.py": b"parser.add_argument('--node_rank', type=int)"}, "high"),
    ],
)
def test_a_fault_of_several_nodes_is_sure_where_there_are_several(beside: dict[str, bytes], expected: str) -> None:
    """The local rank is the rank where nothing speaks of several nodes."""
    settings = Settings(select=("AR306",))
    found = check({"train.py": LOCAL.encode(), **beside}, settings).findings
    assert [finding.confidence for finding in found] == [expected]


LISTS = """
import glob
import torch.distributed as dist

mine = glob.glob('*.wav')[dist.get_rank() :: dist.get_world_size()]
"""


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("README.md", "srun -N4 --ntasks-per-node=8 python train.py --lr 1", "high"),
        ("run.sh", "#SBATCH --nodes=4\nsrun python \\\n  train.py", "high"),
        ("README.md", "torchrun --nnodes 2 --nproc_per_node 8 train.py", "high"),
        ("run.sh", "torchrun --nnodes 1 --nproc_per_node 8 train.py  # no hostfile", "low"),
    ],
)
def test_a_gate_of_each_node_in_a_program_that_starts_on_several(path: str, text: str, expected: str) -> None:
    """The program has no other gate: a script or a page says that it runs on several nodes."""
    program = b"""\
import os
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
if int(os.environ["LOCAL_RANK"]) == 0:
    torch.save({}, "last.pt")
"""
    sources = {"train.py": program, "other.py": b"", path: text.encode()}
    findings = check(sources, Settings(select=("AR105",), confidence="low")).findings
    assert [finding.confidence for finding in findings] == [expected]


@pytest.mark.parametrize(
    ("joins", "expected"),
    [
        ("os.environ['MASTER_ADDR'] = 'localhost'", 0),
        ("if 'MASTER_ADDR' not in os.environ: os.environ['MASTER_ADDR'] = 'localhost'", 1),
        ("os.environ['MASTER_ADDR'] = host", 1),
    ],
)
def test_processes_of_one_host_see_one_order_of_files(joins: str, expected: int) -> None:
    """All of them see one order of the files."""
    joined = f"import os\nimport torch.distributed as dist\n{joins}\ndist.init_process_group('nccl', rank=rank)\n"
    sources = {"data.py": LISTS, "join.py": joined, "start.py": "import argparse\nspawn(work, nprocs=8)\n"}
    settings = Settings(select=("AR307",))
    assert len(check({p: text.encode() for p, text in sources.items()}, settings).findings) == expected


@pytest.mark.parametrize(
    ("text", "as_several"),
    [
        ("accelerate launch \\\n  tools/train.py --lr 0.1\n", True),
        ("    $ python -m torch.distributed.launch --nproc_per_node=4 tools/train.py\n", True),
        ("torchrun --nproc-per-node 8 -m tools.train\n", True),
        ("python ../xla_spawn.py --num_cores 8 tools/train.py\n", True),
        ("RUN=tools/train.py\ndeepspeed $RUN\n", True),
        ("mpirun -np 1 python tools/train.py\n", False),
        ("python tools/train.py\n", False),
        ("pip install deepspeed; python tools/train.py\n", False),
    ],
)
def test_programs_of_which_a_launcher_starts_several_processes(text: str, as_several: bool) -> None:
    """They need not say so themselves; of one process, nothing is shown."""
    program = "import torch\n\ntorch.save({}, 'last.pt')\n"
    sources = {"tools/train.py": program.encode(), "README.md": text.encode()}
    assert Launches(sources).together == ({"tools/train.py"} if as_several else set())
    assert [f.code for f in check(sources, Settings(select=("AR101",))).findings] == (["AR101"] if as_several else [])


@pytest.mark.parametrize(("processes", "confidence"), [(1, "low"), (2, "high")])
def test_a_hang_is_sure_where_scripts_start_several_processes(processes: int, confidence: str) -> None:
    text = "import torch.distributed as dist\n\ndist.init_process_group('nccl')\n"
    text += "if dist.get_rank() == 0:\n    dist.barrier()\n"
    files = {"train.py": text, "run.sh": f"torchrun --nproc_per_node {processes} train.py\n"}
    outcome = check({path: text.encode() for path, text in files.items()}, Settings(select=("AR201",)))
    assert [f.confidence for f in outcome.findings] == [confidence]
