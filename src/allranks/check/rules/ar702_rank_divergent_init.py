"""AR702: the parameters begin differently on every process."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from allranks.check.interpret.values import CLOCK, IDENTITY
from allranks.check.program import Program
from allranks.check.rule import Example, LocalRule, ProgramRule
from allranks.check.sources.source import File
from allranks.check.tables.data import WRAPPERS
from allranks.check.tables.seeds import KEYS
from allranks.check.tree.asked_there import Files, call_at
from allranks.check.tree.copied_early import COPIES, copied_early
from allranks.check.tree.on_meta import SEEDED, TO_SYNC, filled_apart
from allranks.check.tree.origins import RANK_KINDS, origins, values
from allranks.check.tree.same_start import CHANCE, is_sent, same_start
from allranks.check.tree.syntax import distributed, keyword, name_of, rank_guard, tail_of
from allranks.findings import Finding, Note

_CHANGES = ("half", "float", "double", "bfloat16", "apply", "reset_parameters")
_INITIALIZERS = ("init", "init_with_output", "lazy_init")
_ON_ALL = "Change the model on every rank, before it is wrapped."
_OF_COPY = (
    "The averages of the ranks begin with different values; a validation with them scores no single model.",
    "Take the copy after the wrapper (of `model.module`), or make the model under one seed on all ranks.",
)
_FSDP = "torch.distributed.fsdp.FullyShardedDataParallel"


class RankDivergentInit(LocalRule, ProgramRule):
    """
    ## What it does
    Finds models whose parameters differ by process:

    - a JAX key from a clock, a random number or the process id; a key that depends on the rank and initialises
      parameters
    - gradients that are averaged by hand (`all_reduce(p.grad)`) for a torch model that was neither seeded nor broadcast
    - a model in DDP that one rank changes (`if rank == 0: model.half().float()`), or of which it replaces a layer
    - a copy or average of the model from before DDP wraps it, under a seed that depends on the rank
    - FSDP without `sync_module_states=True` that fills a model of the meta device under such a seed, or not at all

    ## Why is this bad
    All processes must begin with the same parameters. Averaged gradients never remove a difference.

    ## What happens with N processes
    N different models are trained with averaged gradients, and no assertion sees it: JAX's check of replicated arrays
    passes. Rank 0's model is saved.

    ## Known problems
    `DistributedDataParallel` broadcasts the parameters of rank 0, so torch code that wraps with it is not reported.
    FSDP takes each shard from one rank: different seeds harm only replicas (`HYBRID_SHARD`, `NO_SHARD`), so confidence
    is low there.

    ## Use instead
    One seed for the parameters of all processes; `jax.random.fold_in(key, jax.process_index())` only for keys of data
    and dropout.

    ## Fix safety
    There is no automatic fix.
    """

    code, name, severity, row = "AR702", "rank-divergent-init", "error", "randomness"
    cluster = "Every process begins with different parameters; averaging gradients never makes them equal."
    advice = "Give all processes the same seed for the parameters, or broadcast them once before the first step."
    words = (
        "PRNGKey",
        "random.key",
        "all_reduce",
        "DistributedDataParallel",
        "DDP",
        "is_main_process",
        "rank",
        "master",
    )
    nodes = (ast.Call, ast.Assign)
    calls = (*_CHANGES, *KEYS, "torch.distributed.all_reduce", *_INITIALIZERS, *COPIES, _FSDP)
    bad = (
        Example(
            {
                "train.py": """\
import copy
import torch
from timm.utils import ModelEmaV2
from torch.nn.parallel import DistributedDataParallel

def main(args):
    torch.manual_seed(args.seed + args.rank)
    model = create_model(args)
    averaged = ModelEmaV2(model, decay=0.99)
    teacher = copy.deepcopy(model)
    model = DistributedDataParallel(model)
    teacher.load_state_dict(model.module.state_dict())
"""
            },
            at=(9,),
        ),
        Example(
            {
                "train.py": """\
import time
import jax

jax.distributed.initialize()
seed = int(time.time() * 1000)
key = jax.random.PRNGKey(seed)
"""
            },
            at=(6,),
        ),
        Example(
            {
                "train.py": """\
import jax
from model import Model

key = jax.random.fold_in(jax.random.key(0), jax.process_index())
params = Model().init(key, None)
"""
            },
            at=(5,),
        ),
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist

model = torch.nn.Linear(2, 2)


def average():
    for p in model.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
"""
            },
            at=(9,),
        ),
        Example(
            {
                "train.py": """\
import torch
from torch.nn.parallel import DistributedDataParallel


def main(rank, model):
    model = DistributedDataParallel(model)
    if rank in (-1, 0):
        model.half().float()
"""
            },
            at=(8,),
        ),
        Example(
            {
                "train.py": """\
from accelerate import Accelerator
from torch import nn


def main(model):
    accelerator = Accelerator()
    if accelerator.is_main_process:
        wider = nn.Conv2d(8, model.conv_in.out_channels, 3)
        model.conv_in = wider
    model = accelerator.prepare(model)
"""
            },
            at=(9,),
        ),
        Example(
            {
                "train.py": """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from model import Model


def main(args):
    torch.manual_seed(args.seed)
    with torch.device("meta"):
        model = Model()
    torch.manual_seed(args.seed + args.rank)
    model = FSDP(model, device_id=args.device)
"""
            },
            at=(11,),
        ),
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from model import Model


def main(args):
    rank = dist.get_rank()
    if rank == 0:
        model = Model()
    else:
        with torch.device("meta"):
            model = Model()
    fill = lambda module: module.to_empty(device="cuda", recurse=False)
    return FSDP(model, param_init_fn=fill if rank != 0 else None)


def widen(args, model):
    return FSDP(model, sync_module_states=False, param_init_fn=args.to_empty if dist.get_rank() else None)
"""
            },
            at=(15, 19),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import time
import jax
from jax.experimental.multihost_utils import broadcast_one_to_all
from model import Model

jax.distributed.initialize()
key = jax.random.PRNGKey(broadcast_one_to_all(int(time.time())))
params = Model().init(key, None)
dropout = jax.random.fold_in(key, jax.process_index())
own = broadcast_one_to_all(jax.random.PRNGKey(int(time.time())))
"""
            }
        ),
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist

torch.manual_seed(1)
model = torch.nn.Linear(2, 2)
for p in model.parameters():
    dist.all_reduce(p.grad)
"""
            }
        ),
        Example(
            {
                "train.py": """\
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from model import Model


class Trainer:
    def __init__(self, args):
        if args.rank == 0:
            self.criterion = nn.CrossEntropyLoss()
        torch.manual_seed(args.seed + args.rank)
        with torch.device("meta"):
            model = Model()
        self.model = FSDP(model, sync_module_states=True)


def main(rank, args, options):
    if rank == 0:
        model = Model()
    else:
        with torch.device("meta"):
            model = Model()
    fill = (lambda module: module.to_empty(device="cuda")) if rank else None
    other = FSDP(model, param_init_fn=fill, **options)
    return FSDP(model, param_init_fn=fill, sync_module_states=args.from_one)
"""
            }
        ),
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist


def train(layout):
    torch.manual_seed(dist.get_rank(layout.tp_group))
    model = torch.nn.Linear(2, 2)
    for p in model.parameters():
        dist.all_reduce(p.grad, group=layout.dp_group)
"""
            }
        ),
        Example(
            {
                "train.py": """\
import copy
import torch
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModel

class Run:
    def __init__(self, args):
        torch.manual_seed(args.seed)
        net = create_model(args)
        self.average = copy.deepcopy(net)
        self.net = DistributedDataParallel(net)
        torch.manual_seed(args.seed + args.rank)

def main(args):
    torch.manual_seed(args.seed + args.rank)
    model = create_model(args)
    average = copy.deepcopy(model) if args.rank == 0 else None
    model = DistributedDataParallel(model)

def tune(args):
    torch.manual_seed(args.seed + args.rank)
    model = AutoModel.from_pretrained("gpt2").cuda()
    before = copy.deepcopy(model).eval()
    model = DistributedDataParallel(model)
"""
            }
        ),
        Example({"alone.py": "import jax\nimport time\n\nkey = jax.random.PRNGKey(int(time.time()))\n"}),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if isinstance(node, ast.Assign):
            stored = isinstance(node.targets[0], ast.Attribute) and isinstance(node.value, ast.Call | ast.Name)
            if stored and rank_guard(node, file) is not None and _is_layer(node, file) and distributed(file):
                yield self.local(file, node, "only one rank replaces a layer of the model", advice=_ON_ALL)
            return
        if not isinstance(node, ast.Call):
            return
        name, last = name_of(node, file), tail_of(node)
        if last in _CHANGES and _wrapped_before(node, file) and rank_guard(node, file) is not None:
            yield self.local(file, node, "the wrapped model is changed on one rank only", advice=_ON_ALL)
        if last in COPIES and not file.is_test and (wraps := copied_early(node, file)) is not None:
            note = Note("the ranks' models are made equal here", file.place(wraps))
            what = "each rank copies a different model: DDP makes them equal only afterwards"
            yield replace(
                self.local(file, node, what, cluster=_OF_COPY[0], advice=_OF_COPY[1]), severity="warning", notes=(note,)
            )
        if name == _FSDP and (wrong := filled_apart(node, file)) is not None:
            found = self.local(file, node, wrong, advice=TO_SYNC)
            yield replace(found, confidence="low") if wrong == SEEDED else found
        elif name in KEYS:
            apart = node.args and origins(node.args[0], file) & CHANCE and distributed(file)
            if apart and not is_sent(node, file):
                yield self.local(file, node, "this key is made of something that differs from process to process")
        elif name == "torch.distributed.all_reduce":
            if _of_gradient(node) and not same_start(node, file):
                message = "gradients are averaged, and nothing makes the parameters equal at the start"
                yield self.local(file, node, message)
        elif last in _INITIALIZERS and isinstance(node.func, ast.Attribute):
            key = node.args[0] if node.args else keyword(node, "rngs")
            if key is not None and _is_key(key, file) and origins(key, file) & RANK_KINDS:
                yield self.local(file, node, "parameters are initialised with a key that depends on the rank")

    def check(self, program: Program) -> Iterator[Finding]:
        """Look at seeds that come from elsewhere: through parameters, attributes, other files."""
        files = Files(program.facts.lines)
        for event in program.calls(*KEYS):
            seed = event.argument(0, "seed")
            if event.active and event.everyone and seed is not None and seed.taint & (CLOCK | IDENTITY):
                there = call_at(event.place, files)
                if there is None or not is_sent(*there):
                    yield self.found(event, "this key is made of something that differs from process to process")


def _wrapped_before(call: ast.Call, file: File) -> bool:
    """A statement of its own that changes a model, above which that model was wrapped."""
    if not isinstance(next(file.parents(call)), ast.Expr):
        return False
    model: ast.expr = call
    while isinstance(model, ast.Call) and isinstance(model.func, ast.Attribute) and tail_of(model) in _CHANGES:
        model = model.func.value
    made = values(model, file) if isinstance(model, ast.Name) else []
    return any(name_of(one, file) in WRAPPERS and one.lineno < call.lineno for one in made)


def _is_layer(assign: ast.Assign, file: File) -> bool:
    """``model.head = nn.Linear(...)``: a layer of something that another function, or another process, also has."""
    target = assign.targets[0]
    if not isinstance(target, ast.Attribute) or ast.unparse(target.value) in ("self", "cls"):
        return False
    made = [assign.value, *values(assign.value, file)]
    return any(name_of(one, file).startswith("torch.nn.") for one in made if isinstance(one, ast.Call))


def _is_key(node: ast.expr, file: File) -> bool:
    text = ast.unparse(node)
    return any(word in text for word in ("key", "rng", "PRNG")) and "jax" in file.text


def _of_gradient(call: ast.Call) -> bool:
    tensor = call.args[0] if call.args else None
    while isinstance(tensor, ast.Attribute) and tensor.attr == "data":
        tensor = tensor.value
    return isinstance(tensor, ast.Attribute) and tensor.attr == "grad"
