"""AR202: some ranks leave before a collective."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from allranks.check.program import PARALLEL, Divergence, Program
from allranks.check.rule import Example, ProgramRule
from allranks.findings import Finding

_NO_XLA = re.compile(r"(?i)(^| and )not [\w.]*(xla|tpu)\w*(\(\))?($| and )")
_COMPARES = re.compile(r"(?!.*\b(and|or)\b).*(==|!=|<|>).*")


class CollectiveAfterRankReturn(ProgramRule):
    """
    ## What it does
    Finds an early `return`, `break` or `continue` that depends on the rank, above a call that reaches a collective, in
    this function or in one that it calls. It also finds an end of the process that the others do not share:
    `sys.exit()`, `os._exit(0)`, `exit()`, `quit()`, `raise SystemExit`, also in a called function. An exit with an
    error ends the job and is not reported. With mpi4py it is: there Python waits for all ranks at its end, except after
    `os._exit`.

    ## Why is this bad
    A collective waits for every process of its group. Those that have left never reach it.

    ## What happens with N processes
    Rank 0 waits in the collective until a timeout. The others continue, and match it with another collective.

    ## Known problems
    As for AR201. If only Lightning's Trainer starts the other processes, they start when it begins to fit. If rank 0
    leaves before, it is the only process of its node, and confidence is low.

    Confidence is low, too, if the rank is one of several conditions, and it is not known which ranks leave. Often the
    same conditions decide whether there is a collective (`if not args.all_ranks and rank != 0: return`, and later
    `if args.all_ranks: gather(...)`).

    ## Use instead
    Call what all ranks must call first, then return on the ranks that have nothing to write.

    ## Fix safety
    There is no automatic fix: only the author knows which side is right.
    """

    code, name, severity, row = "AR202", "collective-after-rank-return", "error", "collectives"
    cluster = (
        "The ranks that stay wait for those that have left, or match their next collective and compute wrong numbers."
    )
    advice = "Move the collective above the return: every rank calls it, then those with nothing to write leave."
    bad = (
        Example(
            {
                "train.py": """\
import jax
from jax.experimental import multihost_utils

class Trainer:
    def params_for_host(self):
        return multihost_utils.process_allgather(self.params, tiled=True)

    def save(self):
        if jax.process_index() != 0:
            return
        params = self.params_for_host()
        print(params)
""",
            },
            at=(11,),
        ),
        Example(
            {
                "train.py": """\
import sys
import torch.distributed as dist

def first_alone(rank):
    if rank != 0:
        sys.exit(0)

dist.init_process_group("nccl")
first_alone(dist.get_rank())
dist.barrier()
""",
            },
            at=(10,),
        ),
        Example(
            {
                "train.py": """\
import torch_xla.core.xla_model as xm
import torch.distributed as dist

def save(state):
    if dist.get_rank() != 0:
        return
    xm.save(state, "last.pt")
""",
            },
            at=(7,),
        ),
    )
    good = (
        # Who leaves does so where there is no XLA.
        Example(
            {
                "train.py": """\
import torch_xla.core.xla_model as xm
from devices import is_xla
import torch.distributed as dist

def save(state):
    if dist.get_rank() != 0 and not is_xla():
        return
    if is_xla():
        xm.save(state, "last.pt")
""",
            },
        ),
        Example(
            {
                "train.py": """\
import jax
from jax.experimental import multihost_utils

class Trainer:
    def save(self):
        params = multihost_utils.process_allgather(self.params, tiled=True)
        if jax.process_index() != 0:
            return
        print(params)
""",
            },
        ),
    )

    def check(self, program: Program) -> Iterator[Finding]:
        for parting in program.divergences():
            if parting.cause != "return" or _leaves_without_xla(parting):
                continue
            if parting.op not in (*PARALLEL, "destroy_process_group"):
                found = self.found(
                    parting,
                    f"{parting.named} is not reached by every rank: some ranks leave at {parting.condition}",
                    notes=parting.sides(),
                )
                alone = program.started_at_fit and parting.op == "fit" and _leaves_first(parting)
                yield replace(found, confidence="low") if alone or _hangs_on_more(parting) else found


def _leaves_first(parting: Divergence) -> bool:
    """It is rank 0 that leaves, as far as the sides tell."""
    return not any("fit" in ops for who, ops in parting.traces if "rank 0" in who)


def _hangs_on_more(parting: Divergence) -> bool:
    """It is not known of the roles who leaves, and the rank is not all that is asked: it is no plain comparison."""
    known = not any("where it holds" in who for who, _ in parting.traces)
    return not known and _COMPARES.fullmatch(parting.condition) is None


def _leaves_without_xla(parting: Divergence) -> bool:
    """``if not is_master() and not is_xla(): return``: where a collective of XLA is met, nobody leaves."""
    return parting.collective.startswith("torch_xla.") and bool(_NO_XLA.search(parting.condition))
