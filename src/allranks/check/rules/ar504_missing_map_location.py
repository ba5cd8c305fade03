"""AR504: torch.load puts the tensors of all ranks onto the device that saved them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from allranks.check.program import Event, Program
from allranks.check.rule import Example, LocalRule, ProgramRule
from allranks.check.sources.source import File
from allranks.check.survey.visible import sees_own_gpu
from allranks.check.tree.beside import BESIDE, is_beside, named
from allranks.check.tree.from_cpu import saves_from_cpu
from allranks.check.tree.origins import function_called
from allranks.check.tree.resumed import OPTIMIZER, feeds_optimizer, is_saved_here
from allranks.check.tree.syntax import (
    asks_rank,
    distributed,
    function_of,
    given,
    has_stars,
    keyword,
    name_of,
    own,
    rank_guard,
    speaks_of,
)
from allranks.findings import Edit, Finding, Fix, Place

# A file of each worker's, which has saved it from its own device.
_OWN_FILE = re.compile(r"(?i)worker_?(id|num|index)|process_?(id|num|index)")
_WHAT = "torch.load without map_location: every rank loads onto the device that saved it"
# What was saved from a device, by the names that people give it.
_CHECKPOINT = re.compile(r"ckpt|checkpoint|snapshot|resume|weights|state_dict|pretrained|finetune|model", re.IGNORECASE)
_IMPORTS = re.compile(
    r"import torch\.distributed|from torch(\.distributed\S*)? import distributed|from torch\.distributed"
)
# Programs that one process runs.
_ALONE = re.compile(
    r"infer|demo|eval|sampl|generat|export|convert|predict|gradio|web_?ui|merge|prune|quantiz|scoring|"
    r"(^|[/_.])(tests?|api|app)([/_.]|$)|_(to|2)_|challenge",
    re.IGNORECASE,
)
_PUBLISHED = re.compile(r"(?i)pre_?train|(^|_)init_(?!_)|backbone")
_DATA = re.compile(r"(?i)data(sets?)?$")
_SHARDS = re.compile(r"shard", re.IGNORECASE)
# The file gives each process its own GPU.
_DEVICES = (
    "LOCAL_RANK",
    "local_rank",
    "set_device(",
    "DistributedDataParallel",
    "init_process_group",
    "Accelerator(",
)
_ACCELERATED = frozenset({"accelerate", "lightning", "deepspeed"})
_GPU = re.compile(r"cuda|gpu|nccl|accelerator", re.IGNORECASE)
# A program for one GPU, whatever it may ask of several.
_ONE_GPU = re.compile(r"set_device\(\s*0\s*\)")
_JOINS = ("torch.distributed.init_process_group", "deepspeed.init_distributed", "accelerate.Accelerator")
# What is saved has been brought to the CPU before.
_OFFLOADED = re.compile(r"(offload_to_cpu|cpu_offload)\s*=\s*True")


class MissingMapLocation(LocalRule, ProgramRule):
    """
    ## What it does
    Finds `torch.load` of a checkpoint without `map_location`, on every rank of a program with a GPU per rank. Also in a
    function that they call, if the result goes into a model or an optimizer.

    ## Why is this bad
    Tensors are restored onto the device from which they were saved: for a file of rank 0, `cuda:0`.

    ## What happens with N processes
    All ranks of a host load onto the same GPU. It runs out of memory at the resume, but not at the start. Each process
    keeps a CUDA context there.

    ## Known problems
    A file that was saved from the CPU is loaded to the CPU. Names decide that these are not reported: weights that the
    project moves to the CPU before it saves, published (*pretrained*) weights, and files beside the weights.

    ## Use instead
    `torch.load(path, map_location="cpu")`, or the rank's own device.

    ## Fix safety
    Unsafe: the code that uses the tensors may expect them on a GPU.
    """

    code, name, severity, row = "AR504", "missing-map-location", "warning", "checkpoint load"
    cluster = "All ranks of a host load onto the GPU from which the file was saved, and it runs out of memory."
    advice = 'Pass map_location="cpu" (or the rank\'s own device).'
    words = ("torch.load", "import load")
    nodes = (ast.Call,)
    calls = ("torch.load",)
    bad = (
        Example(
            {
                "train.py": """\
import os
import torch


def resume(model, checkpoint_path):
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    model.load_state_dict(torch.load(checkpoint_path))
"""
            },
            at=(8,),
        ),
        # The network is saved from the CPU, the optimizer is not.
        Example(
            {
                "job.py": """\
import torch
import torch.distributed as dist


class Job:
    def __init__(self):
        dist.init_process_group("nccl")
        self.net = torch.nn.Linear(2, 2).cuda()

    def save_net(self, path):
        torch.save(self.net.cpu().state_dict(), path)

    def save_optimizer(self, path):
        print(self.loss.cpu())
        torch.save(self.optimizer.state_dict(), path)

    def load_optimizer(self, checkpoint):
        self.optimizer.load_state_dict(torch.load(checkpoint))
"""
            },
            at=(18,),
        ),
        Example(
            {
                "files.py": """\
import fsspec
import torch


def pt_load(name):
    with fsspec.open(name, "rb") as f:
        return torch.load(f)
""",
                "train.py": """\
import torch
import torch.distributed as dist
from files import pt_load

dist.init_process_group("nccl")
model = torch.nn.Linear(2, 2).cuda()
model.load_state_dict(pt_load("last"))
""",
            },
            at=(7,),
        ),
    )
    good = (
        # Each worker has saved its own file, from its own device.
        Example(
            {
                "train.py": """\
import os
import torch


def resume(model, checkpoint_path, worker_id):
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    model.load_state_dict(torch.load(checkpoint_path / f"worker{worker_id}_model.pt"))
"""
            }
        ),
        Example(
            {
                "train.py": """\
import os
import torch


def resume(model, checkpoint_path, rows):
    rank = int(os.environ["LOCAL_RANK"])
    model.load_state_dict(torch.load(checkpoint_path, map_location=f"cuda:{rank}"))
    model.load_state_dict(torch.load(checkpoint_path, "cpu"))
    return torch.load(rows)
"""
            }
        ),
        Example(
            {
                "train.py": """\
import os
import torch
from torch.distributed.fsdp import FullStateDictConfig

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
config = FullStateDictConfig(offload_to_cpu=True)
state = torch.load("checkpoint.pt")
"""
            }
        ),
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist


def read(checkpoint):
    return torch.load(checkpoint)


def main(model):
    dist.init_process_group("nccl")
    if dist.get_rank() == 0:
        model.load_state_dict(read("model.pt"))
"""
            }
        ),
        Example({"eval.py": "import torch\n\nmodel = torch.load('checkpoint.pt')\n"}),
        # What was saved from the CPU, and what holds no weights.
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist
from arrays import weights_to_cpu

dist.init_process_group("nccl")


def save(optimizer, path):
    torch.save(weights_to_cpu(optimizer.state_dict()), path)


def load(optimizer, path):
    optimizer.load_state_dict(torch.load(path))
"""
            }
        ),
        Example(
            {
                "store.py": """\
import os
import torch


class Store:
    def save_weights(self, net, path):
        torch.save({name: value.cpu() for name, value in net.state_dict().items()}, path)

    def load_weights(self, net, model_path):
        net.load_state_dict(torch.load(model_path))
        self.schedule.load_state_dict(torch.load(os.path.join(model_path, "schedule.pt")))
""",
                "train.py": """\
import torch
import torch.distributed as dist
from store import Store

dist.init_process_group("nccl")
net = torch.nn.Linear(2, 2).cuda()
store = Store()
store.load_weights(net, "last.pt")
store.save_weights(net, "last.pt")
""",
            }
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call) or name_of(node, file) != "torch.load" or not node.args or has_stars(node):
            return
        if given(node, 1, "map_location") is not None or keyword(node, "mmap") is not None:
            return
        program = ("__main__" in file.text and distributed(file)) or _IMPORTS.search(file.text)
        if not program and not any(word in file.text for word in _DEVICES):
            return
        elsewhere = _OFFLOADED.search(file.text) or _ONE_GPU.search(file.text) or not _GPU.search(file.text)
        elsewhere = elsewhere or sees_own_gpu(file.text)
        sure = feeds_optimizer(node, file) or is_saved_here(node, file)
        if elsewhere or not (sure or _is_checkpoint(node, file)) or rank_guard(node, file) is not None:
            return
        if _is_of_one_process(node, file) or saves_from_cpu(node, file) or is_beside(node, file):
            return
        if (
            asks_rank(node.args[0])
            or _OWN_FILE.search(ast.unparse(node.args[0]))
            or _is_mapped_elsewhere(node, file)
            or _is_called_on_one_rank(node, file)
        ):
            return
        whole = file.place(node)
        end = Place(whole.path, whole.end_line, whole.end_column - 1, whole.end_line, whole.end_column - 1)
        fix = Fix("map_location", (Edit(end, ', map_location="cpu"'),), safe=False)
        yield self.finding(whole, file.symbol(node), _WHAT, fix=fix, confidence="high" if sure else "low")

    def stands(self, finding: Finding, program: Program) -> bool:
        """Whether it is not in a program that is known to be started as one process, or whose processes are pods with a
        GPU each, as AdaptDL starts them."""
        if "adaptdl" in program.packages:
            return False
        here = [event for event in program.effects("load") if event.place == finding.place]
        return not here or any(event.sure or not event.from_the_top for event in here)

    def check(self, program: Program) -> Iterator[Finding]:
        """Look at loads in functions that other files call."""
        if "adaptdl" in program.packages:
            return
        if not program.packages & _ACCELERATED and not any("cuda" in name for name in program.names):
            return
        restores = {event.symbol for event in program.effects("restore")}
        optimizers = {event.symbol for event in program.effects("restore") if OPTIMIZER.search(event.target)}
        saving = {
            event.place.path for event in program.effects("checkpoint") if event.name == "torch.save" and event.active
        }
        joined = {event.start.place.path for event in program.calls(*_JOINS) if event.active}
        for event in program.effects("load"):
            if event.name != "torch.load" or event.argument(1, "map_location", "mmap", "**") is not None:
                continue
            way = (event.place.path, event.symbol, *(step.symbol for step in event.chain))
            mine = event.per_process or _OWN_FILE.search(event.target) is not None
            alone = event.start.place.path not in joined and any(map(_ALONE.search, (event.start.place.path, *way)))
            if mine or alone or any(map(BESIDE.search, named(event.target))):
                continue
            others = len(event.may - {"first"}) > 1
            own_gpu = not program.facts.own_gpus.isdisjoint({event.place.path, *(s.place.path for s in event.chain)})
            own_gpu = own_gpu or any(map(_OFFLOADED.search, program.facts.lines[event.place.path]))
            if own_gpu or _is_saved_from_cpu(event, program.offloads):
                continue
            if event.active and others and _feeds(event, restores):
                found, told = self.found(event, _WHAT), f"{event.symbol} {event.target}"
                own = event.place.path in saving and event.symbol in restores and not _PUBLISHED.search(told)
                sure = (own or _feeds(event, optimizers)) and not _is_published(event, program.facts.lines)
                yield found if sure else replace(found, confidence="low")


def _is_published(event: Event, lines: Mapping[str, list[str]]) -> bool:
    """Whether whatever its file stores under the name of the path speaks of weights that somebody has published."""
    stores = re.compile(rf"^\s*{re.escape(event.target)}\s*=(?!=)(.*)") if event.target.isidentifier() else None
    said = [at[1] for line in lines.get(event.place.path, []) if stores is not None and (at := stores.search(line))]
    return bool(said) and all(map(_PUBLISHED.search, said))


def _is_of_one_process(call: ast.Call, file: File) -> bool:
    """It stands in a file or function that, by its name, one process runs."""
    function = function_of(call, file)
    return bool(_ALONE.search(file.path) or (function is not None and _ALONE.search(function.name)) or file.is_test)


def _is_saved_from_cpu(event: Event, offloads: frozenset[str]) -> bool:
    """As `saves_from_cpu`: ``save_x`` in the whole project for ``load_x``, or any that saves in its file."""
    path, _, name = event.function.partition("::")
    what = name.rpartition(".")[2].partition("load")[2]
    pair = what and any(one.endswith((f".save{what}", f"::save{what}")) for one in offloads)
    return bool(pair) or (not what and any(one.startswith(f"{path}::") for one in offloads))


def _feeds(event: Event, restores: set[str]) -> bool:
    """The function it stands in, or the one that calls it for anything but data, loads what it reads into something."""
    callers = event.chain[-1:] if _DATA.search(event.symbol) is None else ()
    return not restores.isdisjoint({event.symbol, *(step.symbol for step in callers)})


def _is_checkpoint(call: ast.Call, file: File) -> bool:
    """What is loaded, or where it goes, is called a checkpoint; shards of published weights lie on the CPU."""
    above = next(file.parents(call), None)
    if speaks_of(call.args[0], _SHARDS) or (isinstance(above, ast.Assign) and speaks_of(above.targets[0], BESIDE)):
        return False
    if speaks_of(call.args[0], _CHECKPOINT):
        return True
    if isinstance(above, ast.Assign):
        return any(speaks_of(target, _CHECKPOINT) for target in above.targets)
    return isinstance(above, ast.Call) and speaks_of(above.func, _CHECKPOINT)


def _is_mapped_elsewhere(call: ast.Call, file: File) -> bool:
    """The same function loads the same file with map_location, or makes a path of this rank's own."""
    scope = function_of(call, file) or file.tree
    path = call.args[0]
    if isinstance(path, ast.Name) and any(isinstance(at, ast.Assign) and _is_own(at, path.id) for at in own(scope)):
        return True
    loads = [at for at in own(scope) if isinstance(at, ast.Call) and name_of(at, file) == "torch.load" and at.args]
    mapped = (at for at in loads if given(at, 1, "map_location") is not None)
    return any(ast.dump(at.args[0]) == ast.dump(call.args[0]) for at in mapped)


def _is_called_on_one_rank(load: ast.Call, file: File) -> bool:
    """All calls in this file of the function it stands in are behind a guard on the rank."""
    function = function_of(load, file)
    calls = [at for at in file.nodes if isinstance(at, ast.Call) and function_called(at, file) is function]
    return function is not None and bool(calls) and all(rank_guard(at, file) is not None for at in calls)


def _is_own(assign: ast.Assign, name: str) -> bool:
    return any(isinstance(t, ast.Name) and t.id == name for t in assign.targets) and asks_rank(assign.value)
