"""What stands where no processes are joined is of low confidence: the other branch of the same question."""

import pytest

from allranks.check.engine import Settings, check

TRAIN = """\
import argparse
import torch
import torch.distributed as dist

def save(args):
    if args.mode == "train":
        torch.save({}, "both.pt")
    if args.mode == "convert":
        torch.save({}, "one.pt")

def main():
    args = argparse.ArgumentParser().parse_args()
    if args.mode == "train":
        dist.init_process_group("gloo")
        torch.save({}, "joined.pt")
    elif args.mode == "export":
        torch.save({}, "other.pt")
    save(args)
    torch.save({}, "always.pt")

main()
"""


def confidence(text: str) -> dict[str, str]:
    """Return the confidence of each checkpoint's finding, by its file's name."""
    findings = check({"train.py": text.encode()}, Settings(select=("AR101",))).findings
    return {f.message.partition("'")[2].rstrip("'"): f.confidence for f in findings}


def test_the_other_branch_of_the_question_that_joins_is_of_low_confidence() -> None:
    """By its place, and in another function by the words of the question about an option."""
    assert confidence(TRAIN) == {
        "both.pt": "high",
        "one.pt": "low",
        "joined.pt": "high",
        "other.pt": "low",
        "always.pt": "high",
    }


@pytest.mark.parametrize(
    ("question", "other"),
    [
        ('args.mode != "train"', 'args.mode == "convert"'),  # joined where it is false
        ("args.train and not args.tool", "args.tool"),
        ("args.train or args.tune", "not (args.train or args.tune)"),
    ],
)
def test_questions_in_other_words_are_understood(question: str, other: str) -> None:
    """Negations, and parts of a conjunction or disjunction."""
    text = TRAIN.replace('args.mode == "train"', question).replace('args.mode == "convert"', other)
    joined_otherwise = question.startswith("args.mode !=")
    assert confidence(text)["one.pt"] == ("high" if joined_otherwise else "low")


def test_what_may_change_meanwhile_excludes_nothing() -> None:
    """A call may be answered otherwise the next time."""
    text = TRAIN.replace('args.mode == "train"', "not args.made()").replace('args.mode == "convert"', "args.made()")
    assert confidence(text)["one.pt"] == "high"


def test_whom_somebody_starts_elsewhere_is_not_apart() -> None:
    """A worker that is called directly where there is one GPU, and spawned otherwise."""
    text = """\
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def worker(rank, args):
    if args.ddp:
        dist.init_process_group("gloo", rank=rank, world_size=args.world)
    torch.save({}, "worker.pt")

def main(args):
    if args.ddp:
        mp.spawn(worker, nprocs=args.world, args=(args,))
    else:
        worker(0, args)

main(parse())
"""
    assert confidence(text) == {"worker.pt": "high"}


BY_A_SETTING = """\
import torch.distributed as dist

def evaluate(model, loader, args):
    if not {left}:
        if dist.get_rank() != 0:
            return
    for batch in loader:
        out = model(batch)
        if {met}:
            dist.all_gather([], out)

def main(args, alone):
    dist.init_process_group("nccl")
    evaluate(print, [1, 2], args)
"""


@pytest.mark.parametrize(
    ("left", "met", "expected"),
    [
        ("args.parallel_eval", "args.parallel_eval", []),
        ("self.cfg.test.parallel", "self.cfg.test.parallel", []),
        ("args.parallel_eval", "not args.parallel_eval", ["AR202"]),
        ("args.parallel_eval", "args.other", ["AR202"]),
        ("args.parallel_eval", "True", ["AR202"]),
    ],
)
def test_a_setting_that_lets_some_leave_says_also_whether_they_meet(left: str, met: str, expected: list[str]) -> None:
    source = BY_A_SETTING.format(left=left, met=met).encode()
    assert [one.code for one in check({"train.py": source}, Settings(select=("AR2",))).findings] == expected
