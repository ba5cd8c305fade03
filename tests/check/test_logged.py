"""What Lightning has logged is reduced where a hook reads it first: not outside of a loop, and not if nothing is."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

TRAIN = """import lightning as L
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.utilities import rank_zero_only
{more}

class Net(L.LightningModule):
    def training_step(self, batch, index):
        loss = self.net(batch)
        self.log("loss", loss{how})
        return loss


class Dump(Callback):
    @rank_zero_only
    def {hook}(self, trainer, pl_module, *rest):
        {read}


def report(trainer):
    if trainer.is_global_zero:
        {told}


def main(devices):
    trainer = {trainer}
    trainer.fit(Net())
    if trainer.is_global_zero:
        {after}
    report(trainer)


main(4)
"""
READ = "print(trainer.callback_metrics)"
PLAIN = {
    "more": "",
    "how": ", sync_dist=True",
    "hook": "on_train_epoch_end",
    "read": "pass",
    "told": "pass",
    "after": "pass",
    "trainer": 'L.Trainer(devices=devices, strategy="ddp", callbacks=[Dump()])',
}
SILENT = {
    "after a loop": {"after": READ},
    "of a trainer that somebody else has made, after a loop": {"after": READ, "trainer": "build(devices)"},
    "in a function that is given the trainer": {"told": READ},
    "between steps": {"read": READ, "hook": "on_train_batch_end"},
    "behind the validation": {"read": READ, "hook": "on_validation_end"},
    "behind the validation, in a function that is given the trainer": {
        "more": f"\ndef dump(trainer):\n    {READ}\n",
        "read": "dump(trainer)",
        "hook": "on_validation_end",
    },
    "where nothing is reduced": {"read": READ, "how": ""},
}
FOUND = {
    "in a hook": {"read": READ},
    "in a hook, of metrics": {"read": READ, "how": "", "more": "from torchmetrics import MeanMetric"},
    "in a hook, as a setting says": {"read": READ, "how": ', **{"sync_dist": True}'},
}


def _found(parts: dict[str, str]) -> list[str]:
    source = TRAIN.format(**PLAIN | parts).encode()
    return [f.code for f in check({"train.py": source}, Settings(select=("AR201",))).findings]


@pytest.mark.parametrize("parts", SILENT.values(), ids=SILENT)
def test_one_rank_may_read_what_was_logged_where_no_loop_reduces_it(parts: dict[str, str]) -> None:
    assert _found(parts) == []


@pytest.mark.parametrize("parts", FOUND.values(), ids=FOUND)
def test_a_hook_of_one_rank_that_reads_what_is_reduced_waits_for_the_others(parts: dict[str, str]) -> None:
    assert _found(parts) == ["AR201"]
