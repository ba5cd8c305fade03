"""The mean of the part of the data that one process was dealt, or one device computed: AR310."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

TRAIN = """\
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


@torch.no_grad()
def {name}(model, loader):
    sums = torch.zeros(2)
    for x, y in loader:
        sums += torch.stack([(model(x).argmax(1) == y).sum(), torch.tensor(len(y))])
    {after}
    return {{"top1": (sums[0] / sums[1]).item()}}


def main(model, held, log):
    dist.init_process_group("nccl")
    loader = DataLoader(held, 32, sampler={sampler})
    for epoch in range(9):
        scores = {name}(model, loader)
        {later}
        if dist.get_rank() == 0:
            log(scores)
"""


def lines(source: str) -> list[int]:
    findings = check({"train.py": source.encode()}, Settings(select=("AR310",))).findings
    return [finding.place.line for finding in findings]


@pytest.mark.parametrize("name", ["validate", "evaluate", "test", "run_validation"])
def test_a_mean_over_what_a_sampler_deals_out_is_that_of_one_process(name: str) -> None:
    """The first process shows that of its own part as if it were the whole."""
    source = TRAIN.format(name=name, after="pass", sampler="DistributedSampler(eval_set)", later="pass")
    assert lines(source.replace("held", "eval_set")) == [12]


MAPPED = """\
import functools
import jax
from flax import jax_utils
from flax.training import common_utils


def compute_metrics(logits, labels):
    {reduced}
    return {{"loss": cross_entropy(logits, labels)}}


def train_step(state, batch):
    loss, grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    grads = jax.lax.pmean(grads, "batch")
    metrics = {computed}
    return state.apply_gradients(grads=grads), metrics


def main(state, batches):
    jax.distributed.initialize()
    p_train_step = jax.pmap(functools.partial(train_step), axis_name="batch")
    seen = []
    for batch in batches:
        state, metrics = p_train_step(state, batch)
        {taken}
        if jax.process_index() == 0:
            print(shown)
"""
OWN = "compute_metrics(batch, batch)"


@pytest.mark.parametrize(
    ("reduced", "computed", "taken"),
    [
        ("logits = jax.lax.pmean(logits, 'batch')", OWN, "shown = metrics[0]"),
        ("pass", "jax.lax.pmean(compute_metrics(batch, batch), 'batch')", "shown = metrics[0]"),
        ("pass", "loss; grads, metrics = jax.lax.pmean((grads, metrics), 'batch')", "shown = metrics[0]"),
        ("pass", "gan.train_both(batch)", "shown = metrics[0]"),
        ("pass", OWN, "shown = metrics['loss'].mean()"),
        ("pass", "state.metrics.gather_from_model_output(batch)", "shown = jax_utils.unreplicate(metrics)"),
        ("return Metrics.gather_from_output(axis_name='batch', loss=logits)", OWN, "shown = metrics[0]"),
    ],
)
def test_what_is_reduced_on_the_devices_or_left_to_others_is_not_found(reduced: str, computed: str, taken: str) -> None:
    """Or the host looks at all of its devices."""
    assert lines(MAPPED.format(reduced=reduced, computed=computed, taken=taken)) == []


def test_methods_that_call_each_other_meet_nobody() -> None:
    """Once the rule went round among them until it could go no deeper, and said nothing of the file."""
    methods = """
class Log:
    def close(self, of):
        of.flush(self)

    def flush(self, of):
        of.close(self)
"""
    source = TRAIN.format(name="validate", after="log.flush(log)", sampler="DistributedSampler(val_set)", later="pass")
    assert lines(source.replace("log)", "log=Log())", 1) + methods) == [12]
