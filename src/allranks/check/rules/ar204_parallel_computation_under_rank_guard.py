"""AR204: some ranks alone run a model that all ranks share."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.check.program import PARALLEL, Divergence, Program
from allranks.check.rule import Example, ProgramRule
from allranks.check.tables.arrays import COMPUTATION, EAGER
from allranks.check.tree.asked_there import Files
from allranks.check.tree.syntax import function_at, tail_of
from allranks.findings import Finding

_OF_JAX = "Run it on every rank, and guard what is done with the result: print or save what it returned."


class ParallelComputationUnderRankGuard(ProgramRule):
    """
    ## What it does
    Finds the forward or backward pass, or the construction, of a wrapped model (DDP, FSDP, a DeepSpeed engine) that
    only some ranks reach. They are behind a rank guard, or the others have returned early. With JAX it finds:

    - a compiled function for all devices (`in_shardings`, `out_shardings`, `pmap` with an axis name), or one with an
      array over all processes as argument
    - a single operation on an array that is sharded over processes: `jnp.mean(x)`, `x.sum()`, `x * 2`, `x[:4]`

    ## Why is this bad
    A wrapped model communicates whenever it runs: it gathers parameters, sends buffers, reduces gradients. A JAX
    computation on the devices of all processes starts when all of them call it.

    ## What happens with N processes
    With FSDP and DeepSpeed, rank 0 waits for parameters that no rank sends. With DDP it waits for the buffers, or its
    pass matches the next step of the others: measured, a training loss that is silently wrong. So it is with JAX.

    ## Known problems
    DDP's forward pass sends buffers (for example those of BatchNorm) if gradients are on. With `no_grad` only the first
    pass after a training pass sends them, and it matches the others' next pass. All continue, until the last such pass
    has no partner. A model without buffers sends nothing in forward. Therefore DDP under `no_grad` is not reported;
    with gradients it is, with and without buffers.

    - Accelerate counts as sharding a model if the file imports its `FullyShardedDataParallelPlugin`. A file of
      `accelerate config` is not read, and DeepSpeed need not shard.
    - A model that a `cached_property` wraps is not reported: mostly all ranks make it long before.
    - In JAX, an array counts as sharded if it is made by `make_array_from_process_local_data` and the like, or by
      `device_put` or a compiled function with a sharding over a mesh axis. Arrays that are computed from it element by
      element count, too. Other arrays are not known: results of a compiled function with a model, arrays sharded by a
      tree of shardings, arrays from a checkpoint.
    - AR609 covers an array that is fetched to one host.
    - A mesh counts as one of this process' own devices if `jax.local_devices()`, or a variable of that name, is in the
      call that makes it.

    ## Use instead
    Run it on all ranks and guard what is done with the result: gather above the guard, write below it; reduce above the
    guard, print below it. With DDP, run the module inside (`model.module`).

    ## Fix safety
    There is no automatic fix: `model.module` is right for DDP only.
    """

    code, name, severity, row = "AR204", "parallel-computation-under-rank-guard", "error", "collectives"
    cluster = "The ranks that run it wait for the others, or match their next step and compute wrong numbers."
    advice = "Run it on every rank; for DDP in evaluation, model.module may run on one rank."
    bad = (
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def main(loader):
    dist.init_process_group("nccl")
    model = DDP(torch.nn.Linear(2, 2))
    if dist.get_rank() == 0:
        evaluate(model, loader)

def evaluate(model, loader):
    for x in loader:
        print(model(x))
""",
            },
            at=(9,),
        ),
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def main(x):
    model = FSDP(torch.nn.Linear(2, 2))
    if dist.get_rank() != 0:
        return
    model(x)
""",
            },
            at=(9,),
        ),
        Example(
            {
                "train.py": """\
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.distributed.initialize()


class Trainer:
    def __init__(self, params):
        mesh = Mesh(np.array(jax.devices()), ("data",))
        self.params = jax.device_put(params, NamedSharding(mesh, P("data")))
        self._whole = jax.jit(lambda tree: tree, out_shardings=NamedSharding(mesh, P()))

    def params_for_host(self):
        return jax.device_get(self._whole(self.params))

    def save(self, step):
        if jax.process_index() != 0:
            return
        np.save(f"step{step}.npy", self.params_for_host())
"""
            },
            at=(20,),
        ),
        Example(
            {
                "train.py": """\
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P

jax.distributed.initialize()
rows = NamedSharding(jax.make_mesh((jax.device_count(),), ("data",)), P("data"))


def train(loader):
    for step, batch in enumerate(loader):
        x = jax.make_array_from_process_local_data(rows, batch)
        if jax.process_index() == 0:
            print(step, float(jnp.mean(x)))


train([])
"""
            },
            at=(13,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
from functools import cached_property
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    @cached_property
    def model(self):
        return DDP(torch.nn.Linear(2, 2))

    def count(self):
        if dist.get_rank() == 0:
            print(len(list(self.model.parameters())))


dist.init_process_group("nccl")
Trainer().count()
""",
            },
        ),
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def main(x):
    dist.init_process_group("nccl")
    model = DDP(torch.nn.Linear(2, 2))
    y = model(x)
    if dist.get_rank() == 0:
        print(y, model.module(x))
""",
            },
        ),
        Example(
            {
                "train.py": """\
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.distributed.initialize()


class Trainer:
    def __init__(self, params):
        mesh = Mesh(np.array(jax.devices()), ("data",))
        self.params = jax.device_put(params, NamedSharding(mesh, P("data")))
        self._whole = jax.jit(lambda tree: tree, out_shardings=NamedSharding(mesh, P()))

    def params_for_host(self):
        return jax.device_get(self._whole(self.params))

    def save(self, step):
        params = self.params_for_host()
        if jax.process_index() == 0:
            np.save(f"step{step}.npy", params)
"""
            },
        ),
        Example(
            {
                "train.py": """\
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P

jax.distributed.initialize()
rows = NamedSharding(jax.make_mesh((jax.device_count(),), ("data",)), P("data"))


def train(loader):
    for step, batch in enumerate(loader):
        x = jax.make_array_from_process_local_data(rows, batch)
        mean = jnp.mean(x)
        if jax.process_index() == 0:
            print(step, float(mean), x.shape, x.addressable_data(0).mean())


train([])
"""
            },
        ),
        Example(
            {
                "train.py": """\
import jax
from jax.sharding import SingleDeviceSharding

jax.distributed.initialize()


def on_cpu(function):
    own = SingleDeviceSharding(jax.local_devices(backend="cpu")[0])
    return jax.jit(function, out_shardings=own)


def train(schedule, steps):
    rate = on_cpu(schedule)
    for step in range(steps):
        if jax.process_index() == 0:
            print(step, rate(step))


train(lambda step: 1 / (step + 1), 9)
"""
            },
        ),
    )

    def check(self, program: Program) -> Iterator[Finding]:
        files = Files(program.facts.lines)
        for parting in program.divergences():
            apart = parting.cause in ("rank", "return") and parting.op in PARALLEL and not _roles_by_design(parting)
            if apart and not _is_made_once(parting, files):
                yield self.found(
                    parting,
                    f"{parting.named} is not reached by every rank: it depends on {parting.condition}",
                    advice=_OF_JAX if parting.op in (COMPUTATION, EAGER) else self.advice,
                    notes=parting.sides(),
                )


def _is_made_once(parting: Divergence, files: Files) -> bool:
    """Whether it stands in the body of a property that is kept."""
    last = parting.inside[-1] if parting.inside else parting.place
    if not parting.op.endswith("construction") or (file := files.file(last.path)) is None:
        return False
    function = function_at(last.line, file)
    return function is not None and any("cached" in tail_of(one) for one in function.decorator_list)


def _roles_by_design(parting: Divergence) -> bool:
    """Processes that answer each other with computations: a controller and its workers."""
    return parting.answered and all(not {COMPUTATION, EAGER}.isdisjoint(ops) for _, ops in parting.traces)
