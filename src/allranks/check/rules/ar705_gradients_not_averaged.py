"""AR705: every device applies the gradients of its own part of the batch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.rule import Example, LocalRule
from allranks.check.sources.source import File
from allranks.check.tree.averaging import applied_alone, is_shared_elsewhere
from allranks.check.tree.bypassed import bypass
from allranks.check.tree.mapped import MAPS, Mapped, mapped, parts
from allranks.check.tree.syntax import Function, is_constant, keyword, name_of
from allranks.check.tree.unwrapped_beside import left_unwrapped
from allranks.findings import Finding, Note

_PMAP = "jax.pmap"
_UNCHECKED = ("check_rep", "check_vma")
_COPIES = re.compile(r"replicate\(|device_put_replicated|broadcast_to\(|jnp\.stack\(\[")
_BY_WRAPPER = "Call the wrapped model itself, and do in its forward what else it must do."
_WRAP_IT = "Wrap it like the others: model = DistributedDataParallel(model), before it is trained."
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class GradientsNotAveraged(LocalRule):
    """
    ## What it does
    Finds a training step whose gradients, updates or parameters nothing averages over the devices:

    - under `jax.pmap`, or under `shard_map` with `check_rep=False` (`check_vma=False`), without `jax.lax.pmean` or
      `psum` of more than the loss
    - with torch, a backward pass from `model.module(...)` or one of its methods, if the file wraps `model` in
      `DistributedDataParallel` and never calls the wrapper
    - a backward pass from the model itself, if nothing calls its wrapper
      (`self.ddp = DistributedDataParallel(self.net)`)
    - the optimizer of a model that is not wrapped, in a function that has one of a wrapped model

    ## Why is this bad
    Each device computes gradients of its own rows, and only their average is one training. An average of the loss
    changes only what is printed. The wrapper prepares the averaging when it is called: a call of the model inside skips
    it.

    ## What happens with N processes
    Nothing fails. Each device trains a separate model on its part of the data, and the models diverge. The first
    device's model is saved. It has seen 1/N of the batches, while the averaged loss looks like that of one model.

    ## Known problems
    Functions of one file are followed. Gradients that are passed to another file count as averaged there. Copies with
    one seed per device are not reported if the program copies no state to the devices and names no axis.

    ## Use instead
    `grads = jax.lax.pmean(grads, axis_name)` before the optimizer uses them; or `jax.jit` with a sharded batch, which
    needs no such call. Under `shard_map`, keep the check on: it refuses parameters that differ. With torch, call the
    wrapped model, and let its `forward` choose what is computed.

    ## Fix safety
    There is no automatic fix.
    """

    code, name, severity, row = "AR705", "gradients-not-averaged", "error", "collectives"
    cluster = "Each device trains a separate model on its part of the data: the models diverge, and nothing fails."
    advice = "Average before the optimizer uses them: grads = jax.lax.pmean(grads, axis_name)."
    words = ("pmap", "shard_map", "DistributedDataParallel")
    nodes = (ast.Call, *_FUNCTIONS)
    calls = (*MAPS, "functools.partial")
    bad = (
        Example(
            {
                "train.py": """\
import functools

import jax
import optax
from flax import jax_utils

tx = optax.adam(1e-3)


@functools.partial(jax.pmap, axis_name="batch")
def train_step(params, opt_state, batch):
    loss, grads = jax.value_and_grad(loss_fn)(params, batch)
    updates, opt_state = tx.update(grads, opt_state, params)
    params = optax.apply_updates(params, updates)
    return params, opt_state, jax.lax.pmean(loss, "batch")
"""
            },
            at=(13,),
        ),
        Example(
            {
                "learner.py": """\
import jax


class Learner:
    def __init__(self, model):
        self.model = model
        self.step = jax.pmap(self._step, axis_name="devices")

    def _step(self, state, batch):
        grad_fn = jax.value_and_grad(self.model.loss, has_aux=True)
        (loss, aux), grads = grad_fn(state.params, batch)
        return state.apply_gradients(grads=grads), jax.lax.pmean({"loss": loss, **aux}, "devices")
"""
            },
            at=(12,),
        ),
        Example(
            {
                "train.py": """\
import functools

import jax
from jax.experimental.shard_map import shard_map
from jax.sharding import PartitionSpec as P


@functools.partial(shard_map, mesh=mesh, in_specs=(P(), P("data")), out_specs=(P(), P()), check_rep=False)
def step(params, rows):
    loss, grads = jax.value_and_grad(loss_fn)(params, rows)
    params = jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)
    return params, jax.lax.pmean(loss, "data")
"""
            },
            at=(11,),
        ),
        Example(
            {
                "train.py": """\
import jax
from flax import jax_utils


@jax.pmap
def step(state, batch):
    grads = jax.grad(loss_fn)(state.params, batch)
    return state.apply_gradients(grads=grads)


def main(state, batches):
    state = jax_utils.replicate(state)
    for batch in batches:
        state = step(state, batch)
"""
            },
            at=(8,),
        ),
        Example(
            {
                "train.py": """\
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, model, rank):
        self.model = DDP(model, device_ids=[rank])

    def loss_of(self, batch):
        found = self.model.module.loss_function(batch)
        found["loss"] = sum(found.values())
        return found

    def fit(self, loader):
        for batch in loader:
            found = self.loss_of(batch)
            found["loss"].backward()
            self.optimizer.step()
"""
            },
            at=(9,),
        ),
        # The model inside has a name of its own.
        Example(
            {
                "train.py": """\
from torch.nn.parallel import DistributedDataParallel


class Trainer:
    def __init__(self, net, rank):
        self.net = net
        self.ddp = DistributedDataParallel(self.net, device_ids=[rank])
        self.optimizer = make(self.ddp.parameters())

    def step(self, batch):
        self.net(batch).backward()


class Learner:
    def __init__(self, net, rank):
        self.wrapped = DistributedDataParallel(net, device_ids=[rank])

    @property
    def inner(self):
        return self.wrapped.module

    def step(self, batch):
        loss = self.inner.loss(batch)
        loss.backward()


def main(model, loader):
    parallel = DistributedDataParallel(model)
    optimizer = make(parallel.parameters())
    for batch in loader:
        model(batch).backward()
"""
            },
            at=(11, 23, 31),
        ),
        Example(
            {
                "train.py": """\
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

from nets import Critic, Generator


def main(loader, rank):
    net = Generator().cuda()
    critic = Critic().cuda()
    opt_g = torch.optim.Adam(net.parameters())
    opt_c = torch.optim.Adam(critic.parameters())
    net = DDP(net, device_ids=[rank])
    for batch in loader:
        fake = net(batch)
        critic(fake.detach()).mean().backward()
        opt_c.step()
        critic(fake).mean().backward()
        opt_g.step()
"""
            },
            at=(11,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import torch
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, model, rank):
        self.model = DDP(model, device_ids=[rank])

    def fit(self, loader):
        for batch in loader:
            out = self.model(batch)
            self.model.module.loss_of(out).backward()

    def distil(self, loader, student):
        for batch in loader:
            with torch.no_grad():
                wanted = self.model.module.encode(batch)
            student(batch, wanted).backward()


class Both:
    def __init__(self, net, critic, rank):
        self.net = net
        self.critic = critic
        self.ddp = DDP(self.net, device_ids=[rank])
        self.judge = DDP(self.critic, device_ids=[rank])
        fit(self.judge)

    def step(self, batch):
        self.ddp(batch).backward()

    def tell(self, batch):
        self.net(batch).backward()
        self.critic(batch).backward()
"""
            }
        ),
        Example(
            {
                "train.py": """\
import functools

import jax
import optax
from flax import jax_utils
from helpers import clipped

tx = optax.adam(1e-3)


@functools.partial(jax.pmap, axis_name="batch")
def train_step(state, batch):
    loss, grads = jax.value_and_grad(loss_fn)(state.params, batch)
    loss, grads = jax.lax.pmean((loss, grads), "batch")
    return state.apply_gradients(grads=grads), loss


def shared(grads):
    return jax.tree.map(functools.partial(jax.lax.psum, axis_name="batch"), grads)


@functools.partial(jax.pmap, axis_name="batch")
def by_helper(state, batch):
    return state.apply_gradients(grads=shared(jax.grad(loss_fn)(state.params, batch)))


@functools.partial(jax.pmap, axis_name="batch")
def elsewhere(state, batch):
    grads = clipped(jax.grad(loss_fn)(state.params, batch))
    return state.apply_gradients(grads=grads)
"""
            }
        ),
        Example(
            {
                "seeds.py": """\
import jax
import optax

tx = optax.adam(1e-3)


@jax.pmap
def train(key):
    params = init(key)
    grads = jax.grad(loss_fn)(params, key)
    updates, _ = tx.update(grads, tx.init(params), params)
    return optax.apply_updates(params, updates)


@jax.jit
def step(params, opt, batch):
    grads = jax.grad(loss_fn)(params, batch)
    updates, opt = tx.update(grads, opt, params)
    return optax.apply_updates(params, updates), opt
"""
            }
        ),
        Example(
            {
                "train.py": """\
import functools

import jax
from jax.experimental.shard_map import shard_map
from jax.sharding import PartitionSpec as P


@functools.partial(shard_map, mesh=mesh, in_specs=(P(), P("data")), out_specs=P())
def step(params, rows):
    grads = jax.grad(loss_fn)(params, rows)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)
"""
            }
        ),
    )

    def applies(self, file: File) -> bool:
        return not file.is_test and ("grad" in file.text or "backward" in file.text)

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if isinstance(node, _FUNCTIONS) and (call := bypass(node, file)) is not None:
            message = f"the loss is that of {ast.unparse(call.func)}, not of the wrapper that averages gradients"
            yield self.local(file, call, message, advice=_BY_WRAPPER)
        if isinstance(node, _FUNCTIONS):
            yield from self._left(node, file)
        step = _step(node, file)
        applied = applied_alone(step, file) if step is not None else None
        if step is None or applied is None or is_shared_elsewhere(file):
            return
        called = step.name if isinstance(step, _FUNCTIONS) else "the step"
        note = Note(f"{called} runs on each device, on its own rows", file.place(node))
        message = f"each device applies the gradients of its own rows: nothing in {called} averages them"
        yield self.finding(file.place(applied), file.symbol(applied), message, notes=[note])

    def _left(self, function: Function, file: File) -> Iterator[Finding]:
        for optimizer, model, wrap in left_unwrapped(function, file):
            message = f"each rank trains {model} separately: it is not wrapped, unlike the other models"
            note = Note("another model is wrapped here", file.place(wrap))
            place, symbol = file.place(optimizer), file.symbol(optimizer)
            yield self.finding(place, symbol, message, advice=_WRAP_IT, notes=[note])


def _step(node: ast.AST, file: File) -> Mapped | None:
    """Return the function that ``node`` runs on each device, with a state that all of them have."""
    if isinstance(node, _FUNCTIONS):
        plain = any(name_of(d, file) == _PMAP for d in node.decorator_list if not isinstance(d, ast.Call))
        return node if plain and _COPIES.search(file.text) else None
    if not isinstance(node, ast.Call):
        return None
    name = name_of(node, file)
    if name == "functools.partial":
        name = name_of(node.args[0], file) if node.args else ""
    if name == _PMAP:
        told = keyword(node, "axis_name") is not None or len(node.args) > 1
        return mapped(node, file) if told or _COPIES.search(file.text) else None
    if name not in MAPS or not any(is_constant(keyword(node, word), False) for word in _UNCHECKED):
        return None
    return mapped(node, file) if {"cut", "whole"} <= set(parts(node, file)) else None
