"""AR614: a method or attribute of a model is asked of the wrapper of DistributedDataParallel."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.knowledge.tables import load
from allranks.check.program import Program
from allranks.check.rule import LocalRule
from allranks.check.sources.source import File
from allranks.check.tree.origins import latest, values
from allranks.check.tree.syntax import class_of, function_of, inside, name_of, own, tail_of
from allranks.check.tree.words import mentions, says
from allranks.findings import Finding, Note

_WRAPPER = "torch.nn.parallel.DistributedDataParallel"
_PREPARES = ("prepare", "prepare_model")
_IN_PARTS = ("fsdp", "FSDP", "deepspeed", "DeepSpeed", "fully_shard", "zero_stage")
_UNWRAP = "Use the model inside: accelerator.unwrap_model(model)."


class DdpHidesAttribute(LocalRule):
    """
    ## What it does
    Finds a method or an attribute of a model that is used on its `DistributedDataParallel` wrapper:
    `model = DistributedDataParallel(model)`, and later `model.generate(...)` or `model.config`, in the same function or
    class. Also if Accelerate wraps the model, `model = accelerator.prepare(model)`, in a program that mentions neither
    FSDP nor DeepSpeed.

    ## Why is this bad
    The wrapper is a separate module. It passes on the call, and nothing else. It has the attributes of every
    `torch.nn.Module`, a few of its own, and the model as `module`. (FSDP and the engine of DeepSpeed do pass on
    attributes.)

    ## What happens with N processes
    An AttributeError, with several processes only: a single process does not wrap its model. If only rank 0 reaches it,
    to save or to draw samples, it dies, and the others wait for it in the next step.

    ## Known problems
    What DeepSpeed's engine and FSDP have themselves (`backward`, `clip_grad_norm_`) is not reported, because the same
    variables hold them. A condition that asks how the program runs hides it.

    ## Use instead
    `model.module.generate(...)`, or `getattr(model, "module", model)` if it may be unwrapped.
    """

    code, name, severity, row = "AR614", "ddp-hides-attribute", "error", "sharding"
    cluster = "Each rank stops with an AttributeError at this line; a single process does not wrap its model."
    advice = 'Use the model inside: model.module, or getattr(model, "module", model) if it may be unwrapped.'
    words = ("DistributedDataParallel", "prepare(", "DDP(")
    nodes = (ast.Attribute,)
    bad = (
        """\
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main(model, batch):
    dist.init_process_group("nccl")
    model = DistributedDataParallel(model)
    model.train()
    return model.generate(batch)  # <-- found
""",
    )
    good = (
        """\
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main(model, batch, several):
    model.generate(batch)
    if several:
        dist.init_process_group("nccl")
        model = DistributedDataParallel(model)
    model(batch).backward()
    return model.module.generate(batch) if several else model.generate(batch)
""",
    )

    def applies(self, file: File) -> bool:
        return not file.is_test and not says(file.path, "one_process")

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if (
            not isinstance(node, ast.Attribute)
            or isinstance(node.ctx, ast.Store)
            or node.attr in load().signs["of_wrapper"] | load().signs["of_other_wrappers"]
        ):
            return
        wrap = _wrap_of(node.value, file)
        if wrap is None or node.attr.startswith("_") or values(node, file) or _is_otherwise(node, file):
            return
        first = file.once(f"hides {ast.unparse(node)}", function_of(node, file) or file.tree, lambda _: node)
        if first is node:
            prepared = name_of(wrap, file) != _WRAPPER
            wrapper = "the wrapper of accelerator.prepare()" if prepared else "DistributedDataParallel"
            what = f"{ast.unparse(node.value)} is behind {wrapper}, which has no {node.attr}"
            notes = [Note("wrapped here", file.place(wrap))]
            advice = _UNWRAP if prepared else self.advice
            yield self.finding(file.place(node), file.symbol(node), what, advice=advice, notes=notes)

    def confirm(self, finding: Finding, program: Program) -> bool:
        """Whether nothing has Accelerate keep models in parts."""
        return finding.advice != _UNWRAP or not program.facts.says(finding.place.path, *_IN_PARTS)


def _wrap_of(model: ast.expr, file: File) -> ast.Call | None:
    """Return the call that wrapped what a name or ``self.model`` holds here, if that is certain to come before."""
    if not isinstance(model, ast.Name | ast.Attribute):
        return None
    stored = [one for one in latest(model, file) if not isinstance(next(file.parents(one), None), ast.For)]
    for made in [*stored, *(one for at in stored if isinstance(at, ast.Name) for one in latest(at, file))]:
        if not isinstance(made, ast.Call) or not made.args:
            continue
        prepares = tail_of(made) in _PREPARES and mentions(made.func, "accelerator") and not _is_beside(model)
        if name_of(made, file) != _WRAPPER and not prepares:
            continue
        same = function_of(made, file) is function_of(model, file)
        of_class = isinstance(model, ast.Attribute) and class_of(made, file) is not None
        kept = of_class and not same and tail_of(made.args[0]) == tail_of(model)
        if (same and made.lineno < model.lineno) or kept:
            return made
    return None


def _is_beside(model: ast.expr) -> bool:
    """Whether a name is that of an optimizer, a schedule or a loader, which `prepare` wraps too."""
    return any(word in tail_of(model).lower() for word in ("opt", "sched", "load", "data", "iter", "_dl", "scaler"))


def _is_otherwise(node: ast.Attribute, file: File) -> bool:
    """Whether the model is taken out of its wrapper here, or a condition asks whether it is wrapped."""
    base = ast.unparse(node.value)
    for parent, _ in inside(node, file):
        test = getattr(parent, "test", None)
        if isinstance(test, ast.expr) and any(word in ast.unparse(test) for word in _ASKS):
            return True
        chosen = isinstance(parent, ast.If | ast.IfExp) and f"{base}.module" in ast.unparse(parent)
        if chosen or isinstance(parent, ast.Try):
            return True
    scope = function_of(node, file) or file.tree
    stored = (at for at in own(scope) if isinstance(at, ast.Assign) and node.lineno > at.lineno)
    later = [at for at in stored if any(ast.unparse(one) == base for one in at.targets)]
    last = max(later, key=lambda at: at.lineno, default=None)
    return last is not None and (".module" in ast.unparse(last.value) or "unwrap" in ast.unparse(last.value))


_ASKS = (
    *("module", "distributed", "ddp", "DDP", "DistributedDataParallel", "hasattr", "world_size", "isinstance"),
    *("gpus", "parallel"),
)
