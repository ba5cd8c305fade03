"""AR209: a process leaves a round of a loop by its rank, its own loss or data, or because it failed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from allranks.check.program import Divergence, Program
from allranks.check.rule import Example, LocalRule, ProgramRule
from allranks.check.sources.source import File
from allranks.check.tree.agreeing import FAILED, PARTED, agreed, is_of_jax
from allranks.check.tree.own_scores import leaves_by_score, made_by
from allranks.check.tree.own_stops import ENDS, GIVES, STOPS, asks_to_stop, leaves_alone
from allranks.check.tree.skips import Steps, leaving
from allranks.check.tree.syntax import EVIDENCE
from allranks.findings import Finding, Note

# Words of a file that shows by itself that there are several processes.
_HERE = (*EVIDENCE, "accelerator", "DDP", "FSDP", "is_distributed", "distributed_world_size", *STOPS, ENDS, GIVES)


class RankLocalLoopExit(LocalRule, ProgramRule):
    """
    ## What it does
    Finds steps of training that only one process skips or ends:

    - `break`, `continue` or `return` before a backward pass, or a backward pass in a branch, by this process' own loss
      (a NaN, a KL over its limit) or batch (no valid item), without a reduction
    - exceptions in a step, or while its data is read, that are caught in the loop, so this process continues with its
      next step
    - a step of Lightning that returns no loss
    - an end of the training by the score of this process' part of the data
    - a `break` from a loop of steps behind a rank guard, or by a clock or signal of one process

    ## Why is this bad
    Each process has other data and so another loss. A backward pass of a wrapped model is a collective.

    ## What happens with N processes
    The process with the NaN skips its backward pass. The others wait in theirs, or it is one step ahead of them from
    then on.

    ## Known problems
    Tests of gradients count as equal on all ranks, because DDP has reduced them. So do tests for a loss that is None,
    and for the length of a batch. Confidence is low if the file does not show that the validation data is sharded.

    ## Use instead
    Reduce the value, or the decision, over all processes. Let all skip or stop together.

    ## Fix safety
    There is no automatic fix.
    """

    code, name, severity, row = "AR209", "rank-local-loop-exit", "error", "collectives"
    instead_of = ("AR703",)
    cluster = "One process skips its backward pass, and the others wait for it there."
    advice = agreed(of_jax=False)
    words = (*_HERE, "backward")
    nodes = (ast.If, ast.ExceptHandler, ast.Assign, ast.Call)
    calls = (ENDS,)
    bad = (
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def train(model, loader, optimizer):
    model = DDP(model)
    for x in loader:
        loss = model(x)
        if torch.isnan(loss):
            continue
        loss.backward()
        optimizer.step()

class Trainer:
    def fit(self, loader):
        for batch in loader:
            stats = self.minibatch(batch)
            if stats["policykl"] > 1.5 * self.target_kl:
                break

    def minibatch(self, batch):
        loss = self.model(batch)
        self.accelerator.backward(loss)
        return {"policykl": loss}

def adapt(box, loader, accelerator, stopper):
    for step, x in enumerate(loader):
        loss = box(x)
        box.update_params(loss)
        if torch.isnan(loss):
            break
    for step, x in enumerate(loader):
        box.update_params(box(x))
        if step % 100 == 0 and accelerator.is_main_process:
            if stopper.over(box):
                break
""",
            },
            at=(9, 18, 30, 35),
        ),
        Example(
            {
                "loop.py": """\
def run_epoch(net, batches, optimizer, cfg):
    net = DDP(net)
    for i, (images, valid) in enumerate(tqdm(batches)):
        if i % cfg.every:
            continue
        mask = valid > 0
        if not mask.any():
            continue
        skip = False
        for value in net(images):
            if torch.isinf(value):
                skip = True
                break
        if skip:
            continue
        total = net.loss
        if torch.isfinite(total):
            total.backward()
        optimizer.step()


def train_step(batch, net, optimizer):
    if batch is None:
        return
    try:
        net(batch).backward()
    except torch.cuda.OutOfMemoryError:
        optimizer.zero_grad()


def fit(engine, self_made_data, optimizer):
    for record in self_made_data:
        try:
            optimizer.zero_grad()
            train_step(record, engine, optimizer)
        except RuntimeError as error:
            if "out of memory" in str(error):
                continue
            raise
""",
            },
            at=(7, 14, 17, 23, 27, 36),
        ),
        Example(
            {
                "loops.py": """\
import signal
import time
import torch.distributed as dist

class Clock:
    def __init__(self, hours):
        self.end = time.time() + 3600 * hours

    def is_over(self):
        return time.time() > self.end

class Stop:
    def __init__(self):
        self.asked = False
        signal.signal(signal.SIGTERM, self.ask)

    def ask(self, number, frame):
        self.asked = True

def first(batches, hours):
    clock = Clock(hours)
    for batch in batches:
        dist.all_reduce(batch)
        if clock.is_over():
            break

def second(batches):
    stop = Stop()
    for batch in batches:
        dist.all_reduce(batch)
        if stop.asked:
            break

def third(batches, score, patience):
    best, bad = 0, 0
    for batch in batches:
        dist.all_reduce(batch)
        if dist.get_rank() == 0:
            bad = 0 if score(batch) > best else bad + 1
        if bad > patience:
            break

def fit(trainer, steps, patience):
    for step in range(steps):
        trainer.step()
        if step % 100 == 0 and dist.get_rank() == 0:
            patience.look(trainer.validate())
            if patience.is_over():
                break
        dist.barrier()
""",
            },
            at=(23, 30, 37, 50),
        ),
        Example(
            {
                "hooks.py": """\
import time
from transformers import TrainerCallback

class Limits(TrainerCallback):
    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        loss = outputs["loss"].item()
        if self.mean is not None and loss > 3 * self.mean:
            trainer.should_stop = True
        if trainer.is_global_zero and self.socket.asked():
            trainer.should_stop = True

    def on_step_end(self, args, state, control, **more):
        gone = time.monotonic() - self.start
        if gone > self.limit:
            control.should_save = True
            control.should_training_stop = True

class Guarded(LightningModule):
    def training_step(self, batch, index):
        loss = self.model(batch)
        if not torch.isfinite(loss):
            return None
        return loss
""",
            },
            at=(8, 10, 16, 21),
        ),
    )
    good = (
        Example(
            {
                "hooks.py": """\
import time
import torch
import torch.distributed as dist
from transformers import TrainerCallback

class Limits(TrainerCallback):
    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        loss = trainer.strategy.reduce(outputs["loss"])
        if loss > 100:
            trainer.should_stop = True

    def on_epoch_end(self, args, state, control, **more):
        if state.epoch > 10:
            control.should_training_stop = True

def first(batches, hours):
    end = time.time() + 3600 * hours
    for batch in batches:
        dist.all_reduce(batch)
        over = torch.tensor(time.time() > end)
        dist.all_reduce(over)
        if over:
            break

def second(batches, hours):
    end = time.time() + 3600 * hours
    while True:
        if time.time() > end:
            print("late")
        dist.all_reduce(next(batches))
""",
            },
        ),
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist

def train(model, loader, optimizer):
    for x in loader:
        loss = model(x)
        bad = torch.isnan(loss).float()
        dist.all_reduce(bad, op=dist.ReduceOp.MAX)
        if bad > 0:
            continue
        loss.backward()
        total_loss = reduce_mean(loss)
        if total_loss > 100:
            break
        if torch.isnan(loss):
            raise RuntimeError("the loss is not a number")
        reduced = loss.clone()
        dist.all_reduce(reduced)
        checked = reduced
        if checked.isnan():
            continue
def evaluate(model, loader):
    for x in loader:
        if torch.isnan(model.loss(x)):
            continue

def fit(model, loader, optimizer):
    for x in loader:
        loss = model(x)
        if loss is None:
            continue
        loss.backward()
        grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if not torch.isfinite(grad_norm):
            continue
        optimizer.step()
def drop(net, loader, optimizer, lambda_kl, drop):
    net = DDP(net)
    for step, batch in enumerate(loader):
        if len(batch) < 8 or batch.shape[0] == 1:
            continue
        failed = 0
        try:
            kl, nll = net(batch)
            nll.backward(retain_graph=True)
        except RuntimeError as error:
            failed = 1
        flags = torch.tensor([failed])
        dist.all_reduce(flags)
        if lambda_kl > 0:
            kl.backward()
        optimizer.step()
def catch_up(net, loader, optimizer):
    for batch in loader:
        try:
            net(batch).backward()
            optimizer.step()
        except RuntimeError:
            fake_step(net)
def fake_step(net):
    net(None).backward()
def profile(layers, loader):
    for layer in layers:
        try:
            layer(loader).backward()
        except RuntimeError:
            print("no backward pass")
""",
            },
        ),
    )

    def check(self, program: Program) -> Iterator[Finding]:
        for parting in _exits(program):
            left = f"some ranks leave the loop, or a round of it, at {parting.condition} (line {parting.guard.line})"
            message = f"{left}, and the others wait in {parting.named}"
            advice = agreed(of_jax=is_of_jax(parting))
            yield self.found(parting, message, cluster=PARTED, advice=advice, notes=parting.sides())

    def stands(self, finding: Finding, program: Program) -> bool:
        """Whether it runs in several processes, no other file makes all decide alike, and the program tells no more."""
        here, places = finding.place, [finding.place, *(n.place for n in finding.notes if n.place is not None)]
        again = any((at.guard.path, at.guard.line) == (here.path, here.line) for at in _exits(program))
        return not again and _is_of_several(finding, program) and not any(map(program.agreed_in, places))

    def applies(self, file: File) -> bool:
        return not file.is_test

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if isinstance(node, ast.Assign | ast.Call):
            if asks_to_stop(node, file):
                stop = node.targets[0] if isinstance(node, ast.Assign) else node
                message = f"{ast.unparse(stop)}, which ends the training, depends on what only this process sees"
                yield self.local(file, node, message, cluster=PARTED)
            return
        steps = file.once("steps", file.tree, lambda _: Steps.of(file))
        if isinstance(node, ast.ExceptHandler):
            if (failed := steps.failed(node, file)) is not None:
                found = self.local(file, node.type or node.body[0], failed.says, advice=FAILED)
                yield found if failed.certain else replace(found, confidence="low")
            return
        assert isinstance(node, ast.If)
        left = leaving(node.body)
        if left is not None and (told := leaves_alone(node, left, steps, file)):
            yield replace(self.local(file, node.test, told), notes=(Note("it leaves here", file.place(left)),))
        elif left is None and steps.guards(node, file):
            yield self.local(file, node.test, "each process decides for itself whether a backward pass runs")
        elif (decided := leaves_by_score(node, file)) is not None:
            message = f"training ends here by {decided.score}, the score of this process' part of the data"
            notes = tuple(Note("it comes from here", file.place(one)) for one in made_by(node.test, file))
            found = replace(self.local(file, node.test, message, cluster=PARTED), notes=notes)
            yield found if decided.certain else replace(found, confidence="low")


def _exits(program: Program) -> Iterator[Divergence]:
    return (at for at in program.divergences() if at.cause == "exit" and at.op != "destroy_process_group")


def _is_of_several(finding: Finding, program: Program) -> bool:
    """Whether the file says so itself, or another one has wrapped the model that is used there."""
    told = any(word in line for line in program.facts.lines[finding.place.path] for word in _HERE)
    return told or any(e.active and e.wraps and e.symbol == finding.symbol for e in program.events)
