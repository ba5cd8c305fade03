"""Means of held-out data that another file of the program deals out: AR310."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

EVALUATE = """\
import torch.distributed as dist
{imported}


def run_epoch(model, train_loader, val_loader):
    for batch in train_loader:
        model(batch).backward()
    total = 0
    for batch in val_loader:
        total += model(batch).item()
    {behind}


def summed(loss):
    dist.all_reduce(loss)
    return loss


def main(model, rows):
    dist.init_process_group("nccl")
    run_epoch(model, data.setup(rows), data.setup(rows))


main(1, 2)
"""
DATA = """\
from torch.utils.data import DataLoader, DistributedSampler


def setup(rows, workers=0, several=True, kind="a"):
    sampler = DistributedSampler(rows, shuffle=workers.shuffle) if {test} else None
    return DataLoader(rows, sampler=sampler)


def held_out(rows):
    val_loader = setup(rows)
    return val_loader
"""


def lines(evaluate: str, test: str) -> list[int]:
    sources = {
        "train.py": evaluate.encode(),
        "data/__init__.py": b"from data.loading import setup\n",
        "data/loading.py": DATA.format(test=test).encode(),
    }
    findings = check(sources, Settings(select=("AR310",))).findings
    return [finding.place.line for finding in findings]


@pytest.mark.parametrize(
    ("test", "behind", "found"),
    [
        ("several", "return total / len(val_loader)", [11]),
        ("several", "return summed(total) / len(val_loader)", []),
        ("kind == 'train'", "return total / len(val_loader)", []),
        ("workers.shuffle", "return total / len(val_loader)", []),
    ],
)
def test_a_function_of_a_package_deals_out_what_it_is_given(test: str, behind: str, found: list[int]) -> None:
    """Only a condition on what the data is for leaves held-out data whole; another function of the file may reduce."""
    evaluate = EVALUATE.format(imported="import data", behind=behind)
    assert lines(evaluate, test) == found
    assert (
        lines(
            evaluate.replace("data.setup(rows)", "setup(rows)").replace("import data", "from data import setup"), test
        )
        == found
    )


def test_who_refuses_several_processes_evaluates_all_of_the_data() -> None:
    """Its loader deals out where there are several, and there never are."""
    evaluate = EVALUATE.format(imported="import data", behind="return total / len(val_loader)")
    alone = 'def main(model, rows, rank):\n    if rank != -1:\n        raise ValueError("one process")\n'
    assert lines(evaluate.replace("def main(model, rows):\n", alone), "several") == []


@pytest.mark.parametrize(
    "made",
    ["DataLoader(rows, 8)", "DataLoader(rows, 8, sampler=SequentialSampler(rows))"],
)
def test_a_loader_that_is_seen_to_read_all_is_no_part(made: str) -> None:
    """Whatever else is dealt out in the program, this file shows the loader."""
    evaluate = EVALUATE.format(
        imported="import data\nfrom torch.utils.data import DataLoader, SequentialSampler",
        behind="return total / len(val_loader)",
    )
    assert lines(evaluate, "several") == [12]
    assert lines(evaluate.replace("data.setup(rows))", f"{made})"), "several") == []


OF_METER = """\
class Meter:
    def __init__(self):
        self.sum, self.n = 0.0, 0

    def update(self, value, n):
        self.sum += float(value)
        self.n += n

    @property
    def value(self):
        return {given}


def evaluate(model, loader):
    right = Meter()
    for x, y in loader:
        right.update((model(x) == y).sum(), len(y))
    return right.value
"""
MADE = """\
import torch.distributed as dist
from engine import evaluate
from torch.utils.data import DataLoader, DistributedSampler


def make(rows, train):
    return DataLoader(rows, sampler=DistributedSampler(rows, shuffle={shuffle}))


dist.init_process_group("nccl")
print(evaluate(model, make(rows, False)))
"""


@pytest.mark.parametrize(
    ("given", "shuffle", "found"),
    [
        ("self.sum / max(self.n, 1)", "train", [18]),
        ("self.sum / max(self.n, 1)", "(split == 'train')", [18]),
        ("self.sum / max(self.n, 1)", "True", []),
        ("self.sum / max(self.n, 1)", "args.train", []),
        ("self.sum", "train", []),
    ],
)
def test_a_meter_of_the_file_gives_its_mean_and_who_shuffles_where_it_trains_deals_out_the_rest(
    given: str, shuffle: str, found: list[int]
) -> None:
    """A sampler that may shuffle or not is made for held-out data too."""
    sources = {"engine.py": OF_METER.format(given=given), "train.py": MADE.format(shuffle=shuffle)}
    raw = {path: text.encode() for path, text in sources.items()}
    findings = check(raw, Settings(select=("AR310",))).findings
    assert [finding.place.line for finding in findings] == found


ASKED = """\
import torch.distributed as dist


class Evaluator:
    def reset(self):
        self.scores = []

    def process(self, batch):
        self.scores.extend(batch)

    def compute(self):
        {first}
        return sum(self.scores) / len(self.scores)


def evaluate(model, loader, evaluator=None):
    {made}
    for batch in loader:
        evaluator.process(model(batch))
    return evaluator.compute()
"""


@pytest.mark.parametrize(
    ("first", "made", "found"),
    [
        ("pass", "pass", [20]),
        ("pass", "evaluator = Evaluator()", [20]),
        ("dist.all_gather_object(parts, self.scores)", "pass", []),
        ("pass", "evaluator = library.Evaluator(evaluator.metrics)", []),
    ],
)
def test_an_object_of_a_class_of_the_file_has_counted_what_that_adds_up(
    first: str, made: str, found: list[int]
) -> None:
    """Whoever gives it; one of another class may do as it likes."""
    sources = {"engine.py": ASKED.format(first=first, made=made), "train.py": MADE.format(shuffle="train")}
    raw = {path: text.encode() for path, text in sources.items()}
    findings = check(raw, Settings(select=("AR310",))).findings
    assert [finding.place.line for finding in findings] == found


def test_parameters_that_are_broadcast_bring_no_scores_together() -> None:
    """They say that there are several processes, where `evaluate` is called."""
    beginning = "import horovod.torch as hvd\nhvd.broadcast_parameters(model.state_dict(), 0)\n"
    sources = {
        "engine.py": OF_METER.format(given="self.sum / self.n"),
        "train.py": beginning + MADE.format(shuffle="train"),
    }
    raw = {path: text.encode() for path, text in sources.items()}
    assert [f.place.line for f in check(raw, Settings(select=("AR310",))).findings] == [18]


COLLECTED = """\
import torch.distributed as dist
from parts import together
from torch.utils.data import DataLoader, DistributedSampler


def get(split):
    rows = read(split)
    sampler = {sampler}
    return DataLoader(rows, sampler=sampler)


def validate(model, loader):
    right = n = 0
    for x, y in loader:
        right += (model(x) == y).sum()
        n += len(y)
    {behind}
    return right / n


dist.init_process_group("nccl")
print(validate(model, get("val")))
"""


@pytest.mark.parametrize(
    ("sampler", "behind", "found"),
    [
        ("DistributedSampler(rows)", "pass", [18]),
        ("DistributedSampler(rows)", "right, n = together(right, n)", []),
        ("DistributedSampler(rows)", "right, n = together(1), 2", [18]),
        ('DistributedSampler(rows) if split == "train" else None', "pass", []),
        ('DistributedSampler(rows) if split == "val" else None', "pass", [18]),
        ('None if split == "val" else DistributedSampler(rows)', "pass", []),
    ],
)
def test_a_function_of_another_file_brings_together_what_it_is_given(
    sampler: str, behind: str, found: list[int]
) -> None:
    """And a constant of the call says whether its data is dealt out."""
    parts = """\
import torch
import torch.distributed as dist


def together(*values):
    summed = torch.tensor(values)
    dist.all_reduce(summed)
    return summed.tolist()
"""
    sources = {"train.py": COLLECTED.format(sampler=sampler, behind=behind), "parts.py": parts}
    raw = {path: text.encode() for path, text in sources.items()}
    findings = check(raw, Settings(select=("AR310",))).findings
    assert [finding.place.line for finding in findings] == found


PROGRAM = """\
import torch.distributed as dist
from data import make

if __name__ == "__main__":
    {first}
    loader = make(rows, False)
"""


JOINED = "dist.init_process_group('nccl')"


@pytest.mark.parametrize(("first", "found"), [("pass", []), (JOINED, [18])])
def test_a_program_that_joins_no_processes_evaluates_all_of_the_data(first: str, found: list[int]) -> None:
    """Though another program of the project joins them, and shares its loaders."""
    made = MADE.partition("dist.init")[0].replace("from engine import evaluate\n", "").format(shuffle="train")
    alone = f"{OF_METER.format(given='self.sum / self.n')}{PROGRAM.format(first=first)}    evaluate(model, loader)\n"
    train = PROGRAM.format(first=JOINED)
    raw = {"data.py": made.encode(), "alone.py": alone.encode(), "train.py": train.encode()}
    findings = check(raw, Settings(select=("AR310",))).findings
    assert [finding.place.line for finding in findings] == found


@pytest.mark.parametrize(("called", "found"), [("pass", []), ("evaluate(model, loader)", [18])])
def test_a_function_that_such_a_program_alone_calls_has_all_of_the_data(called: str, found: list[int]) -> None:
    """Its file is another's, which is imported by all, and starts no process but fills weights by torch.nn.init."""
    made = MADE.partition("dist.init")[0].replace("from engine import evaluate\n", "").format(shuffle="train")
    engine = f"{OF_METER.format(given='self.sum / self.n')}\n\ndef fill(net):\n    torch.nn.init.zeros_(net.weight)\n"
    imports = PROGRAM.replace("import make", "import make\nfrom engine import fill, evaluate")
    alone = f"{imports.format(first='pass')}    evaluate(model, loader)\n"
    train = f"{imports.format(first=JOINED)}    {called}\n".replace("fill, evaluate", "fill")
    raw = {"data.py": made, "alone.py": alone, "train.py": train, "engine.py": engine}
    findings = check({path: text.encode() for path, text in raw.items()}, Settings(select=("AR310",))).findings
    assert [finding.place.line for finding in findings] == found
