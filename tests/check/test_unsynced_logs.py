"""What Lightning logs of held-out data as each process has it: AR310."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

MODULE = """\
import lightning as L
import torch


class Net(L.LightningModule):
    def validation_step(self, batch, index):
        loss = {made}
        self.log("{name}", {value}{how})
        return loss

    def {hook}(self, batch):
        score = self.seen(batch)
        self.log_dict({{"val/score": torch.stack(score).mean()}})
"""
FIT = """\
import lightning as L
from module import Net

L.Trainer({trainer}).fit(Net())
"""
PLAIN = {"made": "self(batch).mean()", "value": "loss", "how": "", "name": "val_loss", "hook": "evaluated"}


def found(trainer: str, **changed: str) -> list[tuple[int, str]]:
    sources = {"module.py": MODULE.format(**{**PLAIN, **changed}), "fit.py": FIT.format(trainer=trainer)}
    raw = {path: text.encode() for path, text in sources.items()}
    return [(f.place.line, f.confidence) for f in check(raw, Settings(select=("AR310",))).findings]


@pytest.mark.parametrize("trainer", ["devices=8", 'strategy="ddp", devices=n', "devices=n, num_nodes=2"])
def test_a_loss_that_several_devices_log_is_that_of_the_first(trainer: str) -> None:
    """The trainer speaks of several devices, and the module that it runs keeps to its part."""
    assert found(trainer) == [(8, "high")]


def test_what_is_there_before_anything_is_computed_says_nothing_of_it() -> None:
    """A list that is filled below; and a number that stays what it was."""
    summed = "[]\n        for out in self(batch):\n            loss += [out.mean()]\n        loss = sum(loss)"
    assert found("devices=8", made=summed) == [(11, "high")]
    assert found("devices=8", made="0.0") == []


FILLED = """\
import lightning as L


class Net(L.LightningModule):
    def validation_epoch_end(self, outputs):
        if not isinstance(outputs[0], list):
            outputs = [outputs]
        for outs in outputs:
            sums = {{}}
            metrics = {{}}
            for out in outs:
                for key, value in out.items():
                    if key not in sums:
                        sums[key] = [0.0, 0]
                    sums[key][0] += {value}
                    sums[key][1] += 1
            for key, total in sums.items():
                metrics[key] = total[0] / total[1]
            self.log_dict(metrics)
"""


@pytest.mark.parametrize(("value", "expected"), [("value", [(19, "high")]), ("self.all_gather(value)", [])])
def test_means_may_be_filled_in_under_keys(value: str, expected: list[tuple[int, str]]) -> None:
    """As at the end of an epoch: sums by name, of what all steps left, and a mean of each."""
    sources = {"module.py": FILLED.format(value=value).encode(), "fit.py": FIT.format(trainer="devices=8").encode()}
    assert [(f.place.line, f.confidence) for f in check(sources, Settings(select=("AR310",))).findings] == expected


def test_where_nothing_speaks_of_several_devices_that_is_not_certain() -> None:
    """Nor is anything said of one device alone."""
    assert found("") == [(8, "low")]
    assert found("devices=1") == []


@pytest.mark.parametrize(
    "changed",
    [
        {"how": ", sync_dist=True"},
        {"how": ", rank_zero_only=True"},
        {"how": ", on_step=True, on_epoch=False"},
        {"value": "self.mean_loss"},
        {"value": "self.mean_loss.compute()"},
        {"value": "self.all_gather(loss).mean()"},
        {"made": "self.val_mean(self(batch))"},
        {"name": "train_loss"},
        {"name": "steps", "value": "index"},
    ],
)
def test_what_lightning_reduces_or_is_no_score_is_not_found(changed: dict[str, str]) -> None:
    """Metric objects are reduced where they are computed."""
    assert found("devices=8", **changed) == []


def test_the_end_of_the_epoch_and_what_a_hook_calls_log_too() -> None:
    """Each function tells of its first one."""
    assert found("devices=8", hook="on_validation_epoch_end")[1:] == [(13, "high")]
    assert found("devices=8", how=", sync_dist=True", made="self.evaluated(batch)") == [(13, "high")]
