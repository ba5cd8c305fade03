"""Scores of one process: through functions that only sound as if they reduced, and what a loop has added up."""

from __future__ import annotations

import ast
import textwrap

import pytest

from allranks.check.engine import Settings, check
from allranks.check.tree.namesakes import only_sounds


def found(text: str) -> list[tuple[str, int]]:
    """Return code and line of what is found for certain, in order of place."""
    source = textwrap.dedent(text).encode()
    findings = check({"train.py": source}, Settings(select=("AR203", "AR209"))).findings
    return [(finding.code, finding.place.line) for finding in findings if finding.confidence == "high"]


FOUND = {
    "patience with what a part of the data, known by the name of its loader alone, has scored": (
        """
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel as DDP
        from torch.utils.data import DataLoader, DistributedSampler
        def score(model, val):
            return sum((model(x).argmax(1) == y).sum().item() for x, y in val) / len(val)
        def fit(net, rows, optimizer, train_loader, patience):
            model = DDP(net)
            val = DataLoader(rows, sampler=DistributedSampler(rows))
            best, bad = 0, 0
            for epoch in range(9):
                for x, y in train_loader:
                    model(x).sum().backward()
                    optimizer.step()
                acc = score(model, val)
                if acc > best:
                    best, bad = acc, 0
                else:
                    bad += 1
                if bad > patience:
                    break
        """,
        ("AR209", 20),
    ),
    "a loss that takes the numbers of some classes out of a tensor": (
        """
        import torch
        from lightning.fabric import Fabric
        def nll(model, batch):
            return -model(batch.ids).log_softmax(-1).gather(-1, batch.ids).mean()
        def validate(model, valid_loader):
            return sum(nll(model, batch).item() for batch in valid_loader) / len(valid_loader)
        def fit(fabric: Fabric, model, loader, valid_set):
            valid_loader = fabric.setup_dataloaders(valid_set)
            best = 1e9
            for epoch in range(9):
                for batch in loader:
                    fabric.backward(nll(model, batch))
                value = validate(model, valid_loader)
                if value < best:
                    best = value
                    fabric.save('best.ckpt', model)
        """,
        ("AR203", 17),
    ),
    "hits that a loop over a part of the rows has added up": (
        """
        import torch
        from torch.utils.data import DataLoader, Subset
        def fit(fabric, head, loader, test):
            own = Subset(test, range(fabric.global_rank, len(test), fabric.world_size))
            test_loader = DataLoader(own, 8)
            best = 0.0
            for epoch in range(9):
                for a, b in loader:
                    fabric.backward(head(a) - b)
                counts = torch.zeros(2)
                for a, b in test_loader:
                    counts[0] += (head(a).argmax(1) == b).sum()
                    counts[1] += len(b)
                acc = (counts[0] / counts[1]).item()
                if acc > best:
                    best = acc
                    fabric.save('best.pt', head)
        """,
        ("AR203", 18),
    ),
    "a report that leaves the words to another function": (
        """
        from accelerate import Accelerator
        def transcribe(model, rows):
            return [model(row) for row in rows]
        def evaluate_and_report(model, rows):
            words = transcribe(model, rows)
            return sum(words) / len(words)
        def fit(model, loader, eval_rows):
            accelerator = Accelerator()
            model, loader, eval_rows = accelerator.prepare(model, loader, eval_rows)
            best = 1.0
            for epoch in range(9):
                for batch in loader:
                    accelerator.backward(model(batch))
                wer = evaluate_and_report(model, eval_rows)
                if wer < best:
                    best = wer
                    accelerator.save_state('best')
        """,
        ("AR203", 18),
    ),
    "a loss that is averaged where it is no number": (
        """
        import math
        import sys
        import misc
        import torch.distributed as dist
        def train(model, loader, scaler):
            for batch in loader:
                loss = model(batch)
                value = loss.item()
                if not math.isfinite(value):
                    value = misc.all_reduce_mean(value)
                    sys.exit(1)
                scaler.scale(loss).backward()
        """,
        ("AR203", 11),
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_a_score_of_one_process_parts_it_from_the_others(name: str) -> None:
    """What all must do hangs on a score that only one process has."""
    text, expected = FOUND[name]
    assert expected in found(text)


SILENT = {
    "what is added up is reduced before it is divided": """
        import torch
        from torch.utils.data import DataLoader, Subset
        def fit(fabric, head, loader, test):
            own = Subset(test, range(fabric.global_rank, len(test), fabric.world_size))
            test_loader = DataLoader(own, 8)
            best = 0.0
            for epoch in range(9):
                for a, b in loader:
                    fabric.backward(head(a) - b)
                counts = torch.zeros(2)
                for a, b in test_loader:
                    counts[0] += (head(a).argmax(1) == b).sum()
                    counts[1] += len(b)
                counts = fabric.all_reduce(counts)
                acc = (counts[0] / counts[1]).item()
                if acc > best:
                    best = acc
                    fabric.save('best.pt', head)
        """,
    "a score that rank 0 says": """
        from accelerate import Accelerator
        def evaluate(model, rows):
            return sum(model(row) for row in rows) / len(rows)
        def fit(model, loader, eval_rows):
            accelerator = Accelerator()
            model, loader, eval_rows = accelerator.prepare(model, loader, eval_rows)
            best = 1.0
            for epoch in range(9):
                for batch in loader:
                    accelerator.backward(model(batch))
                wer = evaluate(model, eval_rows)
                told = gather(wer)
                if told < best:
                    best = told
                    accelerator.save_state('best')
        """,
}


@pytest.mark.parametrize("name", SILENT)
def test_a_score_of_all_parts_nobody(name: str) -> None:
    """What was reduced is the same for all."""
    assert found(SILENT[name]) == []


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("logits.gather(-1, ids)", True),
        ("torch.gather(logits, 1, ids)", True),
        ("x.gather(dim=1, index=ids)", True),
        ("comm.gather(x)", False),
        ("comm.gather(x, 0)", False),
        ("dist.gather(x, parts, 0)", False),
        ("accelerator.gather((x, y))", False),
        ("functools.reduce(add, xs)", True),
        ("reduce(lambda a, b: a + b, xs)", True),
        ("reduce(x, 'b c -> b', 'mean')", True),
        ("accelerator.reduce(x, 'sum')", False),
        ("tf.reduce_mean(x)", True),
        ("self.reduce_mean(x)", False),
        ("torch.cuda.synchronize()", True),
        ("meters.synchronize_between_processes()", False),
        ("nn.SyncBatchNorm.convert_sync_batchnorm(net)", True),
        ("np.broadcast_to(x, (2, 3))", True),
        ("dist.broadcast(x, 0)", False),
    ],
)
def test_some_calls_only_sound_as_if_processes_met(call: str, expected: bool) -> None:
    """A call is told by what it is given, and by whose it is."""
    node = ast.parse(call, mode="eval").body
    assert isinstance(node, ast.Call)
    assert only_sounds(node) is expected
