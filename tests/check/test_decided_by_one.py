"""What one rank alone changes, and every rank then goes by."""

from __future__ import annotations

from allranks.check.engine import Settings, check

RIGHT = """\
import torch.distributed as dist
from stopping import EarlyStopping

def main(model, loader, rank):
    early_stopping, other, done, step = EarlyStopping(), EarlyStopping(), False, 0
    for epoch in range(100):
        for batch in loader:
            model(batch).backward()
            step += 1
            if rank == 0:
                done = step > 1000
                logged = step
            if step % 100 == 0:
                dist.barrier()
            if agreed(done):
                break
        score = validate(model)
        if rank == 0:
            print(early_stopping.best_score)
            other(score)
        early_stopping(score)
        stop = dist_any(other.early_stop)
        if early_stopping.early_stop or stop:
            break
        if rank == 0 and other.early_stop:
            print("should stop")
"""


def lines(text: str) -> list[int]:
    return [one.place.line for one in check({"train.py": text.encode()}, Settings(select=("AR703",))).findings]


def test_what_all_change_or_tell_each_other_parts_nobody() -> None:
    assert lines(RIGHT) == []


FILLED = """\
import torch.distributed as dist

def main(rank, folder, score):
    dist.init_process_group("nccl")
    if rank == 0:
        writer = SummaryWriter(folder)
    scores = {{}}
    {guard}
        scores.update(score())
    for name in scores:
        writer.add_scalar(name, scores[name])
"""


def test_a_loop_over_what_one_rank_alone_has_filled_has_no_round_elsewhere() -> None:
    """Who fills it on every rank comes to the writer on every rank."""
    for guard, lines in (("if rank == 0:", []), ("if folder:", [11])):
        outcome = check({"train.py": FILLED.format(guard=guard).encode()}, Settings())
        assert [one.place.line for one in outcome.findings if one.code == "AR703"] == lines
