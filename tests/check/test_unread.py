"""Data that cannot be read: who goes on without it misses his backward pass."""

from __future__ import annotations

import textwrap

import pytest

from allranks.check.engine import Settings, check

START = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
rank = dist.get_rank()
"""


def found(text: str) -> list[tuple[int, str]]:
    """Return lines below the start, and confidence."""
    source = START + textwrap.dedent(text)
    findings = check({"train.py": source.encode()}, Settings(select=("AR209",))).findings
    return [(one.place.line - START.count("\n"), one.confidence) for one in findings]


LEFT = {
    "a file of its own": (
        """\
        for i in range(100):
            try:
                x = torch.load(f"data/{rank}_{i}.pt")
            except Exception:
                continue
            model(x).mean().backward()
            optimizer.step()
        """,
        [(4, "high")],
    ),
    "a sample of its loader, in a function": (
        """\
        def train(loader, step):
            for names in loader:
                try:
                    batch = decode(names)
                except (OSError, ValueError) as error:
                    print(error)
                    break
                loss = model(batch)
                loss.backward()
                optimizer.step()
        """,
        [(5, "high")],
    ),
    "a batch that is drawn": (
        """\
        def train(batches):
            while True:
                try:
                    x = next(batches)
                except Exception:
                    continue
                model(x).mean().backward()
                optimizer.step()
        """,
        [(5, "high")],
    ),
    "what may be the same for all": (
        """\
        for i in range(100):
            try:
                x = torch.load(f"data/{i}.pt")
            except Exception:
                continue
            model(x).mean().backward()
            optimizer.step()
        """,
        [(4, "low")],
    ),
}


@pytest.mark.parametrize("what", LEFT)
def test_who_cannot_read_its_data_leaves_the_others_in_their_backward_pass(what: str) -> None:
    """Also where it prints first."""
    text, expected = LEFT[what]
    assert found(text) == expected


SILENT = {
    "the end of the data": """
        while True:
            try:
                x = next(batches)
            except StopIteration:
                break
            model(x).mean().backward()
            optimizer.step()
        """,
    "an error that ends the job": """
        for i in range(100):
            try:
                x = torch.load(f"data/{rank}_{i}.pt")
            except OSError as error:
                raise RuntimeError(i) from error
            model(x).mean().backward()
            optimizer.step()
        """,
    "another sample instead": """
        for i in range(100):
            try:
                x = torch.load(f"data/{rank}_{i}.pt")
            except OSError:
                x = torch.zeros(4)
            model(x).mean().backward()
            optimizer.step()
        """,
    "a loop inside, of files": """
        for i in range(100):
            parts = []
            for name in names:
                try:
                    parts.append(torch.load(f"data/{rank}_{name}.pt"))
                except OSError:
                    continue
            model(torch.stack(parts)).mean().backward()
            optimizer.step()
        """,
    "all are told": """
        for i in range(100):
            ok = torch.ones(1)
            try:
                x = torch.load(f"data/{rank}_{i}.pt")
            except OSError:
                ok = torch.zeros(1)
            dist.all_reduce(ok, op=dist.ReduceOp.MIN)
            if not ok:
                continue
            model(x).mean().backward()
            optimizer.step()
        """,
    "nothing that is read": """
        for i in range(100):
            try:
                print(i / (i - 1))
            except ZeroDivisionError:
                continue
            model(x).mean().backward()
            optimizer.step()
        """,
}


@pytest.mark.parametrize("case", SILENT)
def test_nobody_goes_on_alone(case: str) -> None:
    """The end, an error, a sample in its place, or an agreement."""
    assert found(SILENT[case]) == []
