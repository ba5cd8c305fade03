"""AR601: a program that needs the other processes and never joins them."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.check.program import Event, Program
from allranks.check.rule import Example, ProgramRule
from allranks.check.survey.joining import may_join
from allranks.check.tables.collectives import Collective
from allranks.check.tables.data import LOADERS, WRAPPERS
from allranks.findings import Finding

_JAX = "jax.experimental.multihost_utils."
_BESIDE = "N processes train N models beside each other, and write over one another's files."
_WRAP = "Join the processes first thing in main, wrap the model, and give the loader a DistributedSampler."


class MissingDistributedInit(ProgramRule):
    """
    ## What it does
    Finds a program that wraps its model for several processes, or calls a collective, if nothing in the project joins
    the processes: no `init_process_group`, no `jax.distributed.initialize`, no framework that does it. With
    `--assume multi-host`, also a program that trains (reads a loader that shuffles) and joins nothing.

    ## Why is this bad
    Without it, torch raises an error at the first such call. JAX gives no message: each process sees only its own
    devices, and is rank 0 of one.

    ## What happens with N processes
    With torch, every rank stops at the call. With JAX on GPUs or CPUs, N programs train beside each other and write the
    same files. On TPUs the devices are found, but checkpoints and preemption lack the coordinator.

    ## Known problems
    A library that joins the processes under an unknown name is not recognised.

    No fault of this kind has been seen in real code yet.

    ## Use instead
    `allranks.init()`, `jax.distributed.initialize()` or `torch.distributed.init_process_group()` first thing in `main`.
    """

    code, name, severity, row = "AR601", "missing-distributed-init", "error", "initialisation"
    cluster = "torch stops every rank at this call; with JAX, every process trains alone as rank 0."
    advice = "Call allranks.init(), jax.distributed.initialize() or init_process_group() first thing in main."
    bad = (
        Example(
            {
                "train.py": """\
import torch
from torch.nn.parallel import DistributedDataParallel

def main():
    model = DistributedDataParallel(torch.nn.Linear(2, 2))
    model(torch.zeros(1, 2)).sum().backward()

if __name__ == "__main__":
    main()
"""
            },
            at=(5,),
        ),
        Example(
            {
                "train.py": """\
import torch
from torch.utils.data import DataLoader

def main(data):
    model = torch.nn.Linear(2, 2)
    for x in DataLoader(data, batch_size=8, shuffle=True):
        model(x).sum().backward()

if __name__ == "__main__":
    main([])
"""
            },
            at=(6,),
            assume="multi-host",
        ),
        Example(
            {
                "train.py": """\
import jax
from jax.experimental import multihost_utils
from lib import save

def main(state):
    if jax.process_index() == 0:
        save(state)
    multihost_utils.sync_global_devices("saved")

main({})
""",
                "lib.py": "def save(state):\n    print(state)\n",
            },
            at=(8,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import torch
from torch.nn.parallel import DistributedDataParallel
from lib import join

def main():
    join()
    model = DistributedDataParallel(torch.nn.Linear(2, 2))

if __name__ == "__main__":
    main()
""",
                "lib.py": "import torch.distributed as dist\n\ndef join():\n    dist.init_process_group('nccl')\n",
            }
        ),
        # allranks.init() joins torch's processes, too.
        Example(
            {
                "train.py": """\
import allranks
import torch
import torch.distributed as dist

def main():
    world = allranks.init()
    x = torch.ones(1)
    dist.all_reduce(x)

if __name__ == "__main__":
    main()
"""
            }
        ),
        # A library: who calls it joins the processes.
        Example(
            {
                "lib.py": """\
import torch.distributed as dist

def mean(x):
    dist.all_reduce(x)
    return x / dist.get_world_size()
"""
            }
        ),
        # It asks first.
        Example(
            {
                "decode.py": """\
import torch.distributed as dist

def several():
    return dist.is_initialized() and dist.get_world_size() > 1

def total(x):
    if several():
        dist.all_reduce(x)
    return x

print(total(1))
"""
            }
        ),
        # One process, as far as anybody says.
        Example(
            {
                "train.py": """\
from torch.utils.data import DataLoader

for x in DataLoader([], shuffle=True):
    print(x)
"""
            }
        ),
        # Somebody else's function.
        Example(
            {
                "train.py": """\
import torch.distributed as dist
from cluster import setup_distributed

setup_distributed()
dist.barrier()
"""
            }
        ),
    )

    def check(self, program: Program) -> Iterator[Finding]:
        if may_join(program.packages, program.names):
            return
        told: set[str] = set()
        for event in sorted(program.events, key=lambda event: event.name not in WRAPPERS):
            what = _needs_others(event)
            start = event.start.place.path
            if what and event.active and event.from_the_top and start not in told:
                if what == "jax" and "initialize" in program.names:
                    continue
                if event.name not in WRAPPERS and "is_initialized" in program.names:
                    continue  # a library that asks whether somebody has joined them
                told.add(start)
                yield self.found(event, f"{event.name} needs the other processes, and nothing here joins them")
        if program.assumed and not told:
            yield from self._apart(program)

    def _apart(self, program: Program) -> Iterator[Finding]:
        """Programs that train, of which the user says that they run as several processes."""
        told: set[str] = set()
        for event in program.calls(*LOADERS):
            start = event.start.place.path
            shuffles = event.argument(2, "shuffle")
            trains = shuffles is not None and shuffles.constant is True
            if trains and event.active and event.everyone and event.from_the_top and start not in told:
                told.add(start)
                message = "nothing here joins the processes: each trains a separate model, on all of the data"
                yield self.found(event, message, cluster=_BESIDE, advice=_WRAP)


def _needs_others(event: Event) -> str:
    if event.name in WRAPPERS:
        return "torch"
    if isinstance(event.entry, Collective) and event.name.startswith("torch.distributed.") and not event.entry.hidden:
        return "torch"
    return "jax" if event.name.startswith(_JAX) else ""
