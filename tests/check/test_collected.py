"""Objects of the project in dictionaries and lists: their class is known where they are taken out again."""

from __future__ import annotations

import textwrap

import pytest

from allranks.check.engine import Settings, check

HEAD = """
import torch.distributed as dist


class Mean:
    def __init__(self, name=""):
        self.name, self.total = name, 0

    def compute(self):
        dist.all_reduce(self.total)
        return self.total


class Best:
    def compute(self):
        return 1


class Meters:
    def __init__(self, names):
        self.meters = {}

    def summary(self):
        return {}


dist.init_process_group("nccl")
book = Meters(["loss", "acc"])
if dist.get_rank() == 0:
    print(book.summary())
dist.barrier()
"""
MADE = "{n: Mean() for n in names}"
LITERAL = '{"loss": Mean(), "best": Best()}'
LIST = "[Mean(n) for n in names]"
IN_ITEMS = "[m.compute() for k, m in self.meters.items()]"
CASES = {
    "items of a comprehension": (MADE, IN_ITEMS, 1),
    "items of a literal": ('{"loss": Mean(), "acc": Mean()}', IN_ITEMS, 1),
    "values in a text": (MADE, '" ".join(f"{m.compute():.3f}" for m in self.meters.values())', 1),
    "under a key": (MADE, 'self.meters["loss"].compute()', 1),
    "under a key, asked for": (MADE, 'self.meters.get("loss").compute()', 1),
    "under each key": (MADE, "[self.meters[k].compute() for k in self.meters]", 1),
    "under the key of that class": (LITERAL, 'self.meters["loss"].compute()', 1),
    "under the key of another class": (LITERAL, 'self.meters["best"].compute()', 0),
    "under no key that is there": (LITERAL, 'self.meters["acc"].compute()', 0),
    "the keys": (MADE, "[k.compute() for k in self.meters]", 0),
    "a list": (LIST, "[m.compute() for m in self.meters]", 1),
    "a list to which others may add": ("[Best(), Mean()]", "[m.compute() for m in self.meters]", 0),
    "one of a list": (LIST, "self.meters[0].compute()", 1),
    "one of a list, whichever": (LIST, "self.meters[len(self.meters) - 1].compute()", 1),
    "some of a list": (LIST, "[m.compute() for m in self.meters[1:]]", 1),
    "a sorted list, counted": (LIST, "[m.compute() for i, m in enumerate(sorted(self.meters))]", 1),
    "beside others": (LIST, "[m.compute() for n, m in zip('ab', self.meters)]", 1),
    "what stands beside": (LIST, "[n.compute() for n, m in zip('ab', self.meters)]", 0),
    "pairs": ("[(n, Mean()) for n in names]", "[m.compute() for n, m in self.meters]", 1),
    "the next one": (MADE, "next(iter(self.meters.values())).compute()", 1),
    "a dictionary of dictionaries": (f"{{s: {MADE} for s in 'ab'}}", 'self.meters["a"]["loss"].compute()', 1),
    "objects that meet nobody": ("{n: Best() for n in names}", IN_ITEMS, 0),
    "objects and numbers": ('{"loss": Mean(), "n": 3}', 'self.meters["n"].compute()', 0),
}


EFFECTS = Settings(select=("AR102", "AR109"))


def found(text: str) -> list[str]:
    files = {"train.py": textwrap.dedent(text).encode()}
    return [finding.code for finding in check(files, Settings(select=("AR201",))).findings]


@pytest.mark.parametrize("case", CASES)
def test_the_class_of_what_is_in_a_collection(case: str) -> None:
    made, taken, meets = CASES[case]
    assert found(HEAD.format(made, taken)) == ["AR201"] * meets


def test_a_loop_over_a_list() -> None:
    loop = "for meter in meters:\n        meter.compute()"
    text = HEAD.format("1", "1").replace("print(book.summary())", loop)
    assert found(text.replace("book = ", "meters = [Mean(), Mean()]\nbook = ")) == ["AR201"]
    assert found(text.replace("book = ", "meters = [Best(), Best()]\nbook = ")) == []


def test_what_is_added_to_a_list_is_called_with_the_others() -> None:
    """The first hooks are written down, another one is put in: all of them are run."""
    text = """
        import torch
        import torch.distributed as dist

        class Hook:
            def after_step(self):
                pass

        class Log(Hook):
            def after_step(self):
                print("step")

        class Save(Hook):
            def after_step(self):
                torch.save({}, "last.pt")

        class Trainer:
            def __init__(self):
                hooks = [Log()]
                hooks.insert(0, Save())
                self.hooks = hooks

            def train(self):
                for hook in self.hooks:
                    hook.after_step()

        dist.init_process_group("nccl")
        Trainer().train()
    """
    outcome = check({"train.py": textwrap.dedent(text).encode()}, Settings(select=("AR101",)))
    assert [(f.code, f.place.line, f.confidence) for f in outcome.findings] == [("AR101", 15, "high")]


SINKS = """
import functools
import os
import torch.distributed as dist


def put_in(path, record):
    with open(path, "a") as file:
        file.write(str(record))


def lines(folder):
    return functools.partial(put_in, os.path.join(folder, "metrics.jsonl"))


class Loop:
    def __init__(self, sinks):
        self.sinks = sinks

    def tell(self, record):
        for sink in self.sinks:
            sink(record)


dist.init_process_group("nccl")
loop = Loop([{}])
{}loop.tell("begins")
"""


@pytest.mark.parametrize("given", ['lines("/shared")', 'lambda one: put_in("/shared/metrics.jsonl", one)', "len"])
@pytest.mark.parametrize("guard", ["", "if dist.get_rank() == 0:\n    "])
def test_functions_that_an_object_is_given_in_a_list_are_called(given: str, guard: str) -> None:
    """Made by others, or as they are; what is none of the project's does nothing here."""
    outcome = check(
        {"train.py": SINKS.replace("[{}]", f"[{given}]").replace("{}loop", f"{guard}loop").encode()}, EFFECTS
    )
    assert [f.place.line for f in outcome.findings] == ([8] if not guard and given != "len" else [])


@pytest.mark.parametrize(("flags", "lines"), [("os.O_CREAT", [8]), ("os.O_CREAT | os.O_EXCL", [])])
def test_who_has_made_a_file_that_one_alone_can_make_is_alone(flags: str, lines: list[int]) -> None:
    text = f"""
import os
import torch.distributed as dist

def publish(where):
    claim = where + ".claim"
    os.close(os.open(claim, {flags}))
    os.unlink(claim)

dist.init_process_group("nccl")
publish("/shared/last")
"""
    assert [f.place.line for f in check({"train.py": text.encode()}, EFFECTS).findings] == lines
