"""Steps under pmap and shard_map that apply gradients: whether anything brings those of all devices together."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

STEP = """\
import functools
import jax
import optax
from flax import jax_utils
from helpers import process

tx = optax.sgd(0.1)


{before}
@functools.partial(jax.pmap, axis_name="d")
def step(state, opt, x):
    (loss, aux), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params, x)
    {through}
    updates, opt = tx.update(grads, opt)
    state = state.replace(params=optax.apply_updates(state.params, updates))
    {behind}
    return state, opt, {told}
"""
HELPER = "def shared(tree):\n    return jax.tree.map(lambda leaf: jax.lax.pmean(leaf, 'd'), tree)\n\n\n"
LOSS = "jax.lax.pmean(loss, 'd')"


def found(code: str) -> list[int]:
    findings = check({"train.py": code.encode()}, Settings(select=("AR705",))).findings
    return [finding.place.line for finding in findings]


@pytest.mark.parametrize(
    ("before", "through", "behind", "told"),
    [
        ("", "pass", "pass", "loss"),
        ("", "pass", "pass", LOSS),
        ("", "pass", "pass", "jax.lax.pmean({'loss': loss, 'lr': schedule(state.step), **aux}, 'd')"),
        ("", "pass", "pass", "jax.lax.all_gather(aux, 'd')"),
        ("", "grads = jax.tree.map(lambda g: g.astype('float32'), grads)", "pass", LOSS),
        ("", "pass", "state = state.replace(batch_stats=jax.lax.pmean(state.batch_stats, 'd'))", LOSS),
        ("", "pass", "state = process(state)", LOSS),
        ("average = jax.pmap(lambda x: jax.lax.pmean(x, 'x'), 'x')  # of batch_stats\n\n\n", "pass", "pass", LOSS),
    ],
)
def test_averages_of_measures_train_nothing(before: str, through: str, behind: str, told: str) -> None:
    """Whatever is averaged but gradients, updates or parameters leaves the devices with models of their own."""
    code = STEP.format(before=before, through=through, behind=behind, told=told)
    assert found(code) == [code[: code.index("tx.update")].count("\n") + 1]


@pytest.mark.parametrize(
    ("before", "through", "behind"),
    [
        ("", "grads = jax.lax.pmean(grads, 'd')", "pass"),
        ("", "loss, grads = jax.lax.pmean((loss, grads), 'd')", "pass"),
        ("", "grads = jax.tree.map(lambda g: jax.lax.psum(g, 'd') / 8, grads)", "pass"),
        ("", "grads = jax.tree.map(functools.partial(jax.lax.pmean, axis_name='d'), grads)", "pass"),
        ("", "grads = process(grads)", "pass"),
        ("", "pass", "state = state.replace(params=jax.lax.pmean(state.params, 'd'))"),
        (HELPER, "grads = shared(grads)", "pass"),
        (
            "sync_params = jax.pmap(merge, 'x')\nstate = sync_params(state)\n\n\n",
            "pass",
            "pass",
        ),  # now and then, of what is trained apart
    ],
)
def test_gradients_that_are_brought_together_are_left_alone(before: str, through: str, behind: str) -> None:
    """In the step, in a helper, in another file, or the parameters afterwards."""
    assert found(STEP.format(before=before, through=through, behind=behind, told=LOSS)) == []


def test_the_check_of_shard_map_refuses_parameters_that_differ() -> None:
    """With the check on, the sum over the devices is a part of the gradient."""
    code = """\
import jax
from jax.sharding import PartitionSpec as P


def step(params, x):
    grads = jax.grad(loss_fn)(params, x)
    return jax.tree.map(lambda p, g: p - g, params, grads)


run = jax.shard_map(step, mesh=mesh, in_specs=(P(), P("d")), out_specs=P(){how})
"""
    assert found(code.replace("{how}", ", check_vma=False")) == [7]
    assert found(code.replace("{how}", "")) == []
    assert found(code.replace("{how}", ", check_vma=False").replace('(P(), P("d"))', '(P("d"), P("d"))')) == []


BESIDE = """\
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

from nets import Critic, Generator, Pair, wrapped


class Trainer:
    def __init__(self, rank):
        self.net = Generator().cuda()
        self.critic = Critic()
        self.critic = self.critic.to(rank)
        self.pair = {pair}
        self.other = wrapped(Critic())
        self.opt_g = torch.optim.Adam(self.net.parameters())
        self.opt_c = torch.optim.Adam(self.critic.parameters())
        self.opt_o = torch.optim.Adam(self.other.parameters())
        self.net, self.pair = DDP(self.net, device_ids=[rank]), DDP(self.pair, device_ids=[rank])

    def step(self, scaler, batch):
        fake = self.net(batch)
        scaler.scale(self.critic(fake).mean() + self.pair(fake) + self.other(fake)).backward()
        scaler.step(self.opt_c)
        scaler.step(self.opt_o)
        self.opt_g.step()
"""


def test_a_model_is_wrapped_in_another_or_by_others() -> None:
    """Nothing is said of a part of a wrapped model, and of what another function gives back, which may wrap it."""
    assert found(BESIDE.replace("{pair}", "Pair(self.critic)")) == []


def test_one_model_of_an_object_is_not_wrapped() -> None:
    """Told where its optimizer is made; not where it is never stepped, or the file averages gradients by itself."""
    apart = BESIDE.replace("{pair}", "Pair()")
    assert found(apart) == [15]
    assert found(apart.replace("scaler.step(self.opt_c)", "pass")) == []
    assert found(apart + "\n\ndef average_gradients(model):\n    ...\n") == []
