"""What a metric class adds up under a name of which its framework does not know, and Keras under Horovod: AR310."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

METRIC = """\
import torch
from torchmetrics import Metric


class Accuracy(Metric):
    def __init__(self):
        super().__init__({options})
        {state}
        self.classes = []

    def update(self, preds, target):
        self.add(preds == target)

    def add(self, right):
        self.right += right.sum()

    def compute(self):
        return self.right / 100
"""
FIT = "import lightning as L\nfrom metric import Accuracy\n\nL.Trainer(devices={devices}).fit(Net(Accuracy()))\n"
OF_MM = """\
from mmengine.evaluator import BaseMetric


class Videos(BaseMetric):
    def process(self, batch, predictions):
        self.results.append(predictions)
        self.{name}["videos"].append(batch)

    def compute_metrics(self, results):
        return score(results, self.{name}["videos"])
"""
OF_DETECTRON = """\
import detectron2.utils.comm as comm
from detectron2.evaluation import DatasetEvaluator


class Counts(DatasetEvaluator):
    def process(self, inputs, outputs):
        self.counts.extend(outputs)

    def evaluate(self):
        counts = {counts}
        return sum(counts)
"""
KERAS = """\
import horovod.tensorflow.keras as hvd
from data import get_data

hvd.init()
train, valid = get_data({given})
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0){more}]
model.fit(train, validation_data=valid, callbacks=callbacks)
"""


def found(**sources: str) -> list[tuple[int, str]]:
    raw = {f"{path}.py": text.encode() for path, text in sources.items()}
    return [(f.place.line, f.confidence) for f in check(raw, Settings(select=("AR310",))).findings]


def test_what_was_not_named_as_state_is_that_of_one_process() -> None:
    """It is certain where a trainer is given several devices."""
    text = METRIC.format(state="self.right = 0", options="")
    assert found(metric=text, fit=FIT.format(devices=8)) == [(18, "high")]
    assert found(metric=text) == [(18, "low")]


@pytest.mark.parametrize(
    ("state", "options"),
    [
        ('self.add_state("right", torch.tensor(0), dist_reduce_fx="sum")', ""),
        ("for name in names: self.add_state(name, torch.tensor(0))", ""),
        ("self.right = 0", "sync_on_compute=False"),
        ("self.right = self.total", ""),
    ],
)
def test_state_that_is_named_or_kept_apart_on_purpose_is_right(state: str, options: str) -> None:
    """The last adds up nothing: its number is made of what it was given at first."""
    text = METRIC.format(state=state, options=options)
    text = text if state != "self.right = self.total" else text.replace("self.right +=", "right =")
    assert found(metric=text, fit=FIT.format(devices=8)) == []


def test_a_metric_of_mmengine_has_of_the_others_what_is_in_results() -> None:
    """What it adds elsewhere, the main process has of its own batches alone."""
    assert found(metric=OF_MM.format(name="seen")) == [(10, "high")]
    assert found(metric=OF_MM.format(name="results")) == []


def test_an_evaluator_of_detectron2_gathers_by_itself() -> None:
    """Nobody else does."""
    assert found(metric=OF_DETECTRON.format(counts="self.counts")) == [(10, "high")]
    assert found(metric=OF_DETECTRON.format(counts="comm.gather(self.counts)[0]")) == []


def test_keras_under_horovod_averages_metrics_by_a_callback() -> None:
    """Where the validation data is that of this process."""
    own = "hvd.rank(), hvd.size()"
    assert found(train=KERAS.format(given=own, more="")) == [(7, "high")]
    assert found(train=KERAS.format(given=own, more=", hvd.callbacks.MetricAverageCallback()")) == []
    assert found(train=KERAS.format(given="", more="")) == []
