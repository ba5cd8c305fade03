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
