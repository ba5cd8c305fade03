"""AR614: a method or attribute of a model is asked of the wrapper of DistributedDataParallel."""

from __future__ import annotations

import re
from collections.abc import Iterator

from allranks.check.program import Event, Program
from allranks.check.rule import Example, ProgramRule
from allranks.check.survey.conditions import Held, held
from allranks.findings import Finding, Place

_MADE = "DDP construction"
_PREPARED = frozenset(("prepare", "prepare_model"))
_UNWRAP = "Use the model inside: accelerator.unwrap_model(model)."
_ALONE = "Rank 0 stops with an AttributeError at this line; the others wait for it in their next step."
# One side of a condition takes the model out of the wrapper: ``model.module.head if wrapped else model.head``.
_CHOOSES = re.compile(r"\.module\b.*\belse\b|\belse\b.*\.module\b", re.DOTALL)


class DdpHidesAttribute(ProgramRule):
    """
    ## What it does
    Finds a method or an attribute of a model that is used on its `DistributedDataParallel` wrapper:
    `model = DistributedDataParallel(model)`, and later `model.generate(...)` or `model.config`. Also if Accelerate
    wraps a model that is trained, `model = accelerator.prepare(model)`, in a project that mentions neither FSDP nor
    DeepSpeed.

    ## Why is this bad
    The wrapper is a separate module. It passes on the call, and nothing else. It has the attributes of every
    `torch.nn.Module`, a few of its own, and the model as `module`. (FSDP and the engine of DeepSpeed do pass on
    attributes.)

    ## What happens with N processes
    An AttributeError, with several processes only: a single process does not wrap its model. If only rank 0 reaches it,
    to save or to draw samples, it dies, and the others wait for it in the next step.

    ## Known problems
    The wrapped model is followed through calls and attributes of objects, but not into methods that a framework calls.
    What DeepSpeed's engine and FSDP have themselves (`backward`, `clip_grad_norm_`) is not reported, because the same
    variables hold them.

    ## Use instead
    `model.module.generate(...)`. Or keep the model under another name beside the wrapper:
    `ddp = DistributedDataParallel(model)`. Code that runs with and without the wrapper uses
    `getattr(model, "module", model)`.

    ## Fix safety
    There is no automatic fix.
    """

    code, name, severity, row = "AR614", "ddp-hides-attribute", "error", "sharding"
    cluster = "Each rank stops with an AttributeError at this line; a single process does not wrap its model."
    advice = 'Use the model inside: model.module, or getattr(model, "module", model) if it may be unwrapped.'
    bad = (
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def train(model, loader, rank):
    for step, batch in enumerate(loader):
        model(batch).sum().backward()
        if rank == 0 and step % 1000 == 0:
            sample = model.generate(batch[:1])
            torch.save({"config": model.config, "sample": sample}, "last.pt")


def main(model, loader):
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    if dist.get_world_size() > 1:
        model = DDP(model, device_ids=[rank])
    train(model, loader, rank)
"""
            },
            at=(10, 11),
        ),
        Example(
            {
                "train.py": """\
from accelerate import Accelerator


def main(model, optimizer, loader):
    accelerator = Accelerator()
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        accelerator.backward(model(**batch).loss)
        optimizer.step()
    sample = model.generate(**batch)
    if accelerator.is_main_process:
        print(sample)
"""
            },
            at=(10,),
        ),
        Example(
            {
                "train.py": """\
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from trainer import Trainer

dist.init_process_group("nccl")
Trainer(Net()).fit()
""",
                "trainer.py": """\
from torch.nn.parallel import DistributedDataParallel


class Trainer:
    def __init__(self, model):
        self.model = DistributedDataParallel(model)

    def fit(self):
        for batch in self.loader:
            loss = self.model(batch)
            loss = loss + self.model.penalty()
            loss.backward()
""",
            },
            at=(11,),
            where="trainer.py",
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def inner(model):
    return model.module if isinstance(model, DDP) else model


def train(model, loader, args):
    plain = getattr(model, "module", model)
    for batch in loader:
        model(batch).sum().backward()
        plain.generate(batch)
        inner(model).generate(batch)
        model.module.generate(batch)
        model.train()
        if hasattr(model, "module"):
            model.module.reset()
        else:
            model.reset()
        if args.distributed:
            model.module.clip()
        else:
            model.clip()
        weight = model.module.weight if args.distributed else model.weight
        if hasattr(model, "report"):
            model.report(weight)
        try:
            model.tell()
        except AttributeError:
            model.module.tell()
        model.epoch = 1
        print(model.epoch)


def main(model, loader, args):
    dist.init_process_group("nccl")
    print(model.config)
    model = DDP(model)
    train(model, loader, args)
    model = model.module
    model.generate(loader)


main(make(), load(), parse())
"""
            }
        ),
    )

    def check(self, program: Program) -> Iterator[Finding]:
        asked = [e for e in program.effects("inside") if e.active and e.may and _is_wrapped(e, program)]
        taken = [event for event in asked if event.name.endswith(".module")]
        wraps = [event for event in program.collectives() if event.op == _MADE]
        wrapping = {event.place.path for event in wraps}
        told: list[Event] = []
        for event in asked:
            ready = event in taken or event.ordered or _is_chosen(event.place, program) or _is_otherwise(event, taken)
            apart = any(program.facts.conditions.excludes(_held(event), _held(wrap)) for wrap in wraps)
            if ready or apart or any(_is_before(one, event) for one in told):
                continue
            told.append(event)
            what, prepared = event.name.rpartition(".")[2], _prepared(event)
            wrapper = "the wrapper of accelerator.prepare()" if prepared else "DistributedDataParallel"
            yield self.finding(
                event.place,
                event.symbol,
                f"{event.target} is behind {wrapper}, which has no {what}",
                cluster=self.cluster if event.everyone or "first" not in event.may else _ALONE,
                advice=_UNWRAP if prepared else self.advice,
                notes=event.way(),
                confidence="high" if event.sure or event.start.place.path in wrapping else "low",
            )


def _held(event: Event) -> Held:
    """Return the conditions on the way to an event, by the file in which each stands."""
    paths = (*(step.place.path for step in event.chain), event.place.path)
    return frozenset().union(*(held(path, arms) for path, arms in zip(paths, event.arms, strict=True)))


def _is_before(one: Event, other: Event) -> bool:
    """Whether who comes to ``other`` has failed before, at the same question in the same function."""
    alike = (one.function, one.target, one.name) == (other.function, other.target, other.name)
    return alike and set(one.arms[-1]) <= set(other.arms[-1])


def _prepared(event: Event) -> bool:
    return event.name.startswith("accelerate.")


def _is_wrapped(event: Event, program: Program) -> bool:
    """Whether a model has been wrapped before: by Accelerate, only where nothing has it keep models in parts."""
    if _prepared(event):
        return not _PREPARED.isdisjoint(event.earlier) and not program.facts.in_parts
    return _MADE in event.earlier


def _is_chosen(place: Place, program: Program) -> bool:
    """Whether the lines around choose between the model and its wrapper."""
    lines = program.facts.lines.get(place.path, [])
    return bool(_CHOOSES.search("\n".join(lines[max(place.line - 3, 0) : place.end_line + 2])))


def _is_otherwise(event: Event, taken: list[Event]) -> bool:
    """Whether the model is taken out of its wrapper on the other side of a condition around."""
    around = set(event.arms[-1])
    others = (set(one.arms[-1]) for one in taken if one.function == event.function)
    return any((span, not side) in around for other in others for span, side in other)
