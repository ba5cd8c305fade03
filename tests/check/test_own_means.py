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
SAMPLER = "DistributedSampler(held, shuffle=False)"


def lines(source: str) -> list[int]:
    findings = check({"train.py": source.encode()}, Settings(select=("AR310",))).findings
    return [finding.place.line for finding in findings]


@pytest.mark.parametrize("name", ["validate", "evaluate", "test", "run_validation"])
def test_a_mean_over_what_a_sampler_deals_out_is_that_of_one_process(name: str) -> None:
    """The first process shows that of its own part as if it were the whole."""
    source = TRAIN.format(name=name, after="pass", sampler="DistributedSampler(eval_set)", later="pass")
    assert lines(source.replace("held", "eval_set")) == [12]


@pytest.mark.parametrize(
    ("name", "after", "sampler", "later"),
    [
        ("validate", "dist.all_reduce(sums)", "DistributedSampler(val_set)", "pass"),
        ("validate", "sums = reduce_sums(sums)", "DistributedSampler(val_set)", "pass"),
        ("validate", "pass", "DistributedSampler(val_set)", "dist.all_reduce(scores)"),
        ("validate", "pass", "DistributedSampler(val_set)", "scores = average_gradients_all_gather(scores)"),
        ("validate", "pass", "None", "pass"),
        ("validate", "sums = metric.compute()", "DistributedSampler(val_set)", "pass"),
        ("validate", "sums = average.aggregate()", "DistributedSampler(val_set)", "pass"),
        ("train_epoch", "pass", "DistributedSampler(val_set)", "pass"),
    ],
)
def test_a_mean_over_all_of_the_data_is_not_found(name: str, after: str, sampler: str, later: str) -> None:
    """It is reduced here or there, or every process goes over all of the data, or over what it learns from."""
    source = TRAIN.format(name=name, after=after, sampler=sampler, later=later)
    assert lines(source.replace("held", "val_set")) == []


ROLLOUT = """\
from torch.utils.data import DataLoader, DistributedSampler


def rollout(model, {over}, batch, steps):
    total = 0.0
    for name, one in {over}.items():
        total += one(model(batch))
    return total / steps


def deal(val_set):
    return DataLoader(val_set, sampler=DistributedSampler(val_set))
"""


@pytest.mark.parametrize(("over", "found"), [("eval_losses", []), ("val_loaders", [8])])
def test_what_is_measured_is_no_data(over: str, found: list[int]) -> None:
    assert lines(ROLLOUT.format(over=over)) == found


def test_a_mean_over_every_nth_case_is_that_of_one_process() -> None:
    """The loop itself deals the cases out; a function of the file that reduces is asked what it does."""
    source = """\
import jax
import numpy as np
from jax.experimental import multihost_utils

jax.distributed.initialize()


def evaluate(params, cases):
    hits = np.zeros(2)
    for case in cases[jax.process_index() :: jax.process_count()]:
        hits += score(params, case)
    return hits[0] / hits[1]


def whole(hits):
    return multihost_utils.process_allgather(hits).sum(0)


for step in range(100):
    params = update(params)
    dice = evaluate(params, cases)
    if jax.process_index() == 0:
        print(dice)
"""
    assert lines(source) == [12]
    assert lines(source.replace("hits[0] / hits[1]", "whole(hits)[0] / whole(hits)[1]")) == []
    assert lines(source.replace("    if jax.process_index() == 0:", "    whole(dice)\n    if True:")) == []


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
    "taken",
    [
        "shown = metrics['loss']; jax_utils.unreplicate(metrics)",
        "seen.append(metrics); shown = common_utils.get_metrics(seen)",
        "shown = jax.tree_util.tree_map(lambda x: x[0], metrics)",
        "shown = metrics[0]",
    ],
)
def test_what_one_device_computed_is_taken_for_all(taken: str) -> None:
    """Each device returns the score of its own rows, and the host shows that of its first one."""
    assert lines(MAPPED.format(reduced="pass", computed=OWN, taken=taken)) == [16]


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


def test_a_mean_that_is_reduced_under_another_name_is_that_of_all() -> None:
    """The caller makes a tensor of it, and reduces that."""
    later = "told = torch.tensor(scores); dist.all_reduce(told)"
    source = TRAIN.format(name="validate", after="pass", sampler="DistributedSampler(val_set)", later=later)
    assert lines(source.replace("held", "val_set")) == []


EVALUATION = """\
import torch


@torch.no_grad()
def evaluate(model, {loader}):
    losses = []
    for x, y in {loader}:
        losses.append(model(x, y).item())
    {after}
    return sum(losses) / len(losses)
"""
PROGRAM = """\
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
from evaluation import evaluate


def main(model, val_set):
    dist.init_process_group("nccl")
    val_loader = DataLoader(val_set, 32, sampler={sampler})
    loss = evaluate(model, val_loader)
    {later}
    print(loss)


main(make_model(), make_set())
"""


def found(loader: str = "loader", **changed: str) -> list[tuple[str, int]]:
    told = {"after": "pass", "later": "pass", "sampler": "DistributedSampler(val_set)", **changed}
    sources = {
        "evaluation.py": EVALUATION.format(loader=loader, after=told["after"]),
        "train.py": PROGRAM.format(sampler=told["sampler"], later=told["later"]),
    }
    outcome = check({path: text.encode() for path, text in sources.items()}, Settings(select=("AR310",)))
    return [(finding.place.path, finding.place.line) for finding in outcome.findings]


def test_who_gives_his_part_to_a_function_of_another_file_is_told() -> None:
    """The loader is dealt out in one file, and its mean made in another; who speaks of held-out data there is told."""
    assert found() == [("evaluation.py", 10), ("train.py", 9)]
    assert found("rows") == [("train.py", 9)]


@pytest.mark.parametrize(
    "changed",
    [
        {"after": "dist.all_reduce(losses)"},
        {"later": "dist.all_reduce(loss)"},
        {"sampler": "None"},
        {"after": "print(f'{rank}: {losses}')", "loader": "rows", "later": "loss = comm.mean(loss)"},
    ],
)
def test_what_one_of_the_files_brings_together_is_not_found(changed: dict[str, str]) -> None:
    """Or nobody deals anything out."""
    assert found(**changed) == []


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


@pytest.mark.parametrize(("test", "expected"), [("shuffled", []), ("dist.is_initialized()", [12])])
def test_a_sampler_that_the_user_chooses_says_nothing(test: str, expected: list[int]) -> None:
    """By default the data is not dealt out."""
    sampler = f"DistributedSampler(held) if {test} else None"
    assert lines(TRAIN.format(name="validate", after="pass", sampler=sampler, later="pass")) == expected


KEPT = """\
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


class Trainer:
    def step(self, batch):
        self.total += self.model(batch).item()

    def validate(self, val_loader):
        count = 0
        for batch in val_loader:
            count += 1
            {told}
        {behind}

    def report(self):
        self.log(self.total / 100)

    def main(self, val_set):
        dist.init_process_group("nccl")
        val_loader = DataLoader(val_set, sampler=DistributedSampler(val_set))
        self.validate(val_loader)
"""


@pytest.mark.parametrize(
    ("told", "behind", "found"),
    [
        ("self.step(batch)", "return self.total / count", [14]),
        ("self.step(batch)", "self.report()", [17]),
        ("self.total.append(batch); mean = sum(self.total) / count", "return mean", [13]),
        ("self.total.append(batch); mean = sum(self.total) / count", "return count", []),
        ("self.step(batch)", "return dist.all_reduce(self.total) / count", []),
        ("self.model(batch)", "self.report()", []),
    ],
)
def test_a_sum_is_kept_by_an_object_and_a_mean_as_it_goes(told: str, behind: str, found: list[int]) -> None:
    """A method that the loop calls adds up, one that is called behind it divides; or the loop keeps a running mean."""
    assert lines(KEPT.format(told=told, behind=behind)) == found


COUNTED = """\
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
{imported}


def validate(model, val_loader):
    metric = Confusion(10)
    for x, y in val_loader:
        metric.update(model(x), y)
    return metric.{asked}()


def main(model, val_set):
    dist.init_process_group("nccl")
    val_loader = DataLoader(val_set, sampler=DistributedSampler(val_set))
    if validate(model, val_loader) > 0.5:
        save(model)


main(1, 2)
"""
CLASS = """\
import torch.distributed as dist


class Confusion{base}:
    def update(self, predicted, y):
        {step}
        self.hits += (predicted == y).sum()

    def iou(self):
        return self.hits / self.count
"""


@pytest.mark.parametrize(
    ("imported", "asked", "base", "step", "found"),
    [
        ("from scores import Confusion", "iou", "", "self.count += len(y)", [10]),
        ("from scores import Confusion", "iou", "", "predicted = all_gather(predicted)", []),
        ("from scores import Confusion", "iou", "(Shared)", "self.count += len(y)", []),
        ("from scores import Confusion", "reset", "", "self.count += len(y)", []),
        ("from torchmetrics import Confusion", "iou", "", "self.count += len(y)", []),
        ("from mxnet.metric import Confusion", "get", "", "self.count += len(y)", [10]),
    ],
)
def test_an_object_that_counts_knows_one_process(
    imported: str, asked: str, base: str, step: str, found: list[int]
) -> None:
    """It is told predictions batch by batch, and asked behind the loop; its class, wherever it stands, meets nobody."""
    sources = {
        "train.py": COUNTED.format(imported=imported, asked=asked).encode(),
        "scores.py": CLASS.format(base=base, step=step).encode(),
    }
    findings = check(sources, Settings(select=("AR310",))).findings
    assert [finding.place.line for finding in findings] == found


SCORED = """\
import torch
from sklearn.metrics import roc_auc_score


@torch.no_grad()
def auc(model, loader):
    scores, labels = [], []
    for x, y in loader:
        scores.append(model(x))
        labels.append(y)
    return roc_auc_score(labels, scores)
"""
IN_ORDER = """\
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
from scores import auc

dist.init_process_group("nccl")
others = DataLoader(rows(), sampler=DistributedSampler(rows(){how}))
print(auc(net(), others))
"""
FOR_TRAINING = """\
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
from scores import auc

dist.init_process_group("nccl")
def others(args, is_train):
    sampler = (
        DistributedSampler(rows(), shuffle=False)
        if args.distributed and {asked}
        else None
    )
    return DataLoader(rows(), sampler=sampler)
print(auc(net(), others(args(), False)))
"""
BY_FABRIC = """\
from lightning import Fabric
from scores import auc

fabric = Fabric()
train_loader, {held} = fabric.setup_dataloaders(rows(), rows())
print(auc(net(), {held}))
"""


@pytest.mark.parametrize(
    ("train", "found"),
    [
        (IN_ORDER.format(how=", shuffle=False"), [11]),
        (IN_ORDER.format(how=""), []),
        (FOR_TRAINING.format(asked="is_train"), []),
        (FOR_TRAINING.format(asked="not is_train"), [11]),
        (BY_FABRIC.format(held="val_loader"), [11]),
        (BY_FABRIC.format(held="more"), []),
    ],
)
def test_what_is_dealt_out_in_its_order_or_by_a_library_is_a_part_too(train: str, found: list[int]) -> None:
    """Nobody trains on what a sampler leaves in its order, but who says so; Fabric gives each process its part of every
    loader."""
    sources = {"scores.py": SCORED, "train.py": train}
    findings = check({path: text.encode() for path, text in sources.items()}, Settings(select=("AR310",))).findings
    assert [one.place.line for one in findings if one.place.path == "scores.py"] == found


MAKER = """\
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def loader_of(rows, batch{asked}):
    {condition}
    return DataLoader(rows, batch, sampler=DistributedSampler(rows))
"""
CALLER = """\
import torch.distributed as dist
from loaders import loader_of
from scores import auc

dist.init_process_group("nccl")
train_loader = loader_of(rows(), 32, sampler="random")


def main():
    val_loader = loader_of(rows(), 32)
    print(auc(net(), val_loader))


main()
"""


@pytest.mark.parametrize(
    ("asked", "condition", "found"),
    [("", "pass", [11]), (", sampler=None", "if sampler is None:\n        return DataLoader(rows, batch)", [])],
)
def test_a_function_that_deals_out_where_it_is_asked_to_does_so_for_nobody_else(
    asked: str, condition: str, found: list[int]
) -> None:
    sources = {"scores.py": SCORED, "loaders.py": MAKER.format(asked=asked, condition=condition), "train.py": CALLER}
    findings = check({path: text.encode() for path, text in sources.items()}, Settings(select=("AR310",))).findings
    assert [one.place.line for one in findings if one.place.path == "scores.py"] == found


@pytest.mark.parametrize(("what", "found"), [("dummy", []), ("count", [6])])
def test_a_dummy_is_reduced_to_meet_the_others(what: str, found: list[int]) -> None:
    """Whoever has nothing meets them as often; of anything else the result is lost."""
    source = f"""from torch.distributed.nn.functional import all_reduce


def total({what}, parts):
    if not parts:
        all_reduce({what})
        return parts
    return all_reduce(parts)


total(1, [])
"""
    assert lines(source) == found


ALL_IN_ONE = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def main(model, rows, held, log):
    dist.init_process_group("nccl")
    model, sampler = DDP(model), DistributedSampler(held, shuffle=False)
    loader = DataLoader(rows, 32, sampler=DistributedSampler(rows))
    val_loader = DataLoader(held, 32, sampler=sampler)
    for epoch in range(9):
        for batch in loader:
            loss = model(batch).mean()
            loss.backward()
            dist.all_reduce(loss)
        total = torch.zeros(1)
        with torch.no_grad():
            for batch in val_loader:
                lost = model(batch).mean()
                WITHIN
                total += lost
        THEN
        mean = total / len(val_loader)
        if dist.get_rank() == 0:
            log(mean, loss)
"""


@pytest.mark.parametrize(
    ("within", "then", "expected"),
    [
        ("pass", "pass", [24]),
        ("dist.all_reduce(lost)", "pass", []),
        ("pass", "dist.all_reduce(total)", []),
        ("pass", "whole = total.clone(); dist.all_reduce(whole)", []),
    ],
)
def test_a_program_that_trains_and_validates_in_one_function(within: str, then: str, expected: list[int]) -> None:
    """That the training meets brings nothing of the validation together."""
    text = ALL_IN_ONE.replace("WITHIN", within).replace("THEN", then)
    assert lines(text) == expected
    assert lines(text.replace("sampler=sampler", "sampler=None")) == []


HALF_BROUGHT = """\
import time
import torch
import torch.distributed as dist


@torch.no_grad()
def evaluate(model, loader):
    sums, correct, seen, began = torch.zeros(2), 0, 0, time.time()
    for x, y in loader:
        logits = model(x)
        sums += torch.stack([lost(logits, y), torch.tensor(len(y))])
        correct += (logits.argmax(1) == y).sum().item()
        seen += len(y)
        WITHIN
    dist.all_reduce(sums)
    THEN
    print(seen / (time.time() - began))
    return {"loss": sums[0] / sums[1], "accuracy": correct / seen}


def main(model, loader):
    dist.init_process_group("nccl")
    scores = evaluate(model, loader)
    LATER
    print(scores)
"""


@pytest.mark.parametrize(
    ("within", "then", "later", "expected"),
    [
        ("pass", "pass", "pass", [18]),
        ("pass", "correct = of_all(dist.all_reduce, correct)", "pass", []),
        ("pass", "whole = [None]; dist.all_gather_object(whole, [correct, seen]); correct = whole[0]", "pass", []),
        ("dist.all_reduce(y)", "pass", "pass", []),
        ("pass", "pass", "dist.all_gather_object([None], scores)", []),
    ],
)
def test_of_two_numbers_the_one_that_is_not_brought_together(
    within: str, then: str, later: str, expected: list[int]
) -> None:
    """Whoever brings together one of what a loop adds up knows that the data is dealt out."""
    text = HALF_BROUGHT.replace("WITHIN", within).replace("THEN", then).replace("LATER", later)
    assert lines(text) == expected
