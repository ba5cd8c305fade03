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


def test_the_end_of_the_epoch_and_what_a_hook_calls_log_too() -> None:
    """Each function tells of its first one."""
    assert found("devices=8", hook="on_validation_epoch_end")[1:] == [(13, "high")]
    assert found("devices=8", how=", sync_dist=True", made="self.evaluated(batch)") == [(13, "high")]
