"""AR613: what works on whole parameters is used with a model that is kept in parts."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.rule import Example, LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import reached
from allranks.check.tree.sharded_models import is_flat, made_too_early, models_of
from allranks.check.tree.syntax import name_of, rank_guard, tail_of
from allranks.findings import Finding, Note

_CLIPS = "torch.nn.utils.clip_grad_norm_"
_SAVES = "torch.save"
_DEAD = (
    "The optimizer holds the parameters that the model had before: nothing that the model uses is ever trained.",
    "Make the optimizer after the model is sharded.",
)
_CLIPPED = (
    "Each rank clips by the norm of its own shard: the shards of one gradient are scaled differently.",
    "Call model.clip_grad_norm_(...), which reduces the norm over all ranks.",
)
_SHARD = (
    "The file holds only the state of rank 0's shard; on resume all ranks use that, or fail to load it.",
    "Gather it on every rank with FSDP.optim_state_dict(model, optimizer) (or get_optimizer_state_dict), then save it.",
)


class WholeParametersOfShardedModel(LocalRule):
    """
    ## What it does
    Finds calls that use the parameters of a model before, or without, its sharding:

    - an optimizer that is made from a model's parameters before the model is sharded (`fully_shard(model)`, also in a
      function of the file; `FSDP(model)` without `use_orig_params=True`)
    - `torch.nn.utils.clip_grad_norm_` of the parameters of a model that `FullyShardedDataParallel` wraps
    - the `state_dict()` of the optimizer of such a model that only rank 0 saves

    ## Why is this bad
    A sharded model has other parameters than the model from which it was made, and each rank has a part of each.

    ## What happens with N processes
    The loss does not fall, without a message. Or it depends on the number of ranks. Or the run cannot be resumed with
    its optimizer.

    ## Known problems
    A model is followed within one file. With `fully_shard`, `torch.nn.utils.clip_grad_norm_` is right: parameters are
    DTensors. A wrapper that only a branch makes is not reported, nor is `NO_SHARD`.

    ## Use instead
    Wrap, then make the optimizer; `model.clip_grad_norm_`; `FSDP.optim_state_dict` or
    `torch.distributed.checkpoint.state_dict.get_optimizer_state_dict` on all ranks, above the guard.

    ## Fix safety
    There is no automatic fix.
    """

    code, name, severity, row = "AR613", "whole-parameters-of-sharded-model", "error", "sharding"
    words = ("fully_shard", "FullyShardedDataParallel")
    nodes = (ast.Call,)
    bad = (
        Example(
            {
                "train.py": """\
import torch
from torch.distributed.fsdp import fully_shard


def main(model, x):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    model(x).sum().backward()
    optimizer.step()
"""
            },
            at=(6,),
        ),
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def train(model, optimizer, data):
    for x in data:
        model(x).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    if dist.get_rank() == 0:
        torch.save({"optimizer": optimizer.state_dict()}, "last.pt")


def main(net, data):
    model = FSDP(net)
    train(model, torch.optim.AdamW(model.parameters()), data)
"""
            },
            at=(9, 12),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard


def two(model, x):
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model(x).sum().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def one(net, x):
    model = FSDP(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model(x).sum().backward()
    model.clip_grad_norm_(1.0)
    state = FSDP.optim_state_dict(model, optimizer)
    if dist.get_rank() == 0:
        torch.save({"optimizer": state}, "last.pt")
    torch.save(optimizer.state_dict(), f"shard{dist.get_rank()}.pt")


def either(net, x, sharded):
    model = net
    if sharded:
        model = FSDP(net)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
"""
            }
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call):
            return
        if (early := made_too_early(node, file)) is not None:
            note = Note("the model is sharded here", file.place(node))
            message = "the optimizer is made before the model is sharded"
            yield self.finding(
                file.place(early), file.symbol(early), message, cluster=_DEAD[0], advice=_DEAD[1], notes=[note]
            )
        name = name_of(node, file)
        if name == _CLIPS and (clipped := _model_clipped(node)) is not None and is_flat(clipped, file):
            message = "the norm of the gradients is that of this rank's shard"
            yield self.local(file, node, message, cluster=_CLIPPED[0], advice=_CLIPPED[1])
        guarded = name == _SAVES and node.args and rank_guard(node, file) is not None
        if guarded and (state := _state_of_shard(node.args[0], file)) is not None:
            message = "one rank saves the optimizer state of its own shard as that of all"
            yield self.local(file, state, message, cluster=_SHARD[0], advice=_SHARD[1])


def _model_clipped(call: ast.Call) -> ast.expr | None:
    """Return ``model`` of ``clip_grad_norm_(model.parameters(), ...)``."""
    given = call.args[0] if call.args else None
    asks = isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute) and given.func.attr == "parameters"
    return given.func.value if asks and isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute) else None


def _state_of_shard(saved: ast.expr, file: File) -> ast.Call | None:
    """Return ``optimizer.state_dict()`` in what is saved, if that optimizer is one of a model in parts."""
    for at in (at for part in reached(saved, file) for at in walk(part)):
        if isinstance(at, ast.Call) and tail_of(at) == "state_dict" and isinstance(at.func, ast.Attribute):
            models = list(models_of(at.func.value, file))
            if models and all(is_flat(model, file) for model in models):
                return at
    return None
