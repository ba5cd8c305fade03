"""A training that is killed again and again, and goes on with another number of ranks: which samples did it take?

``torture.py FOLDER KIND EPOCHS SEED SIZES``: KIND is ``plain``, ``packed``, ``best-fit`` or a kind of files; SIZES the
world sizes of the jobs, ``4,3,1,4``, all but the last of which are killed; or ``random:100``. Ranks are forked, and use
torch's store; PYTHONPATH has tests/data and tests/checkpoint/programs.
Prints what it saw; fails where a sample of an epoch was taken twice or never, or ranks took different steps.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from forks import Diary, fork, kill_all, wait_for
from harness import torchrun_environ
from real_saves import quiet_port
from record_files import example, write_array_records, write_litdata, write_mds, write_tfrecord

from allranks import Checkpointer, Dataset, init

BATCH, DOCUMENTS, EVERY = 24, 1003, 3
PARTS = (400, 0, 13, 250, 340)  # the documents of each file
LENGTH = 16  # of windows of tokens, of which there are as many as documents
SIZES = (1, 2, 3, 4, 6)
OTHER_KINDS = ("mds", "litdata", "tfrecord", "array_record")


def write_documents(folder: Path) -> None:
    """Files of uneven length, one of them empty."""
    dice = random.Random(0)
    left = iter(range(DOCUMENTS))
    for number, many in enumerate(PARTS):
        lines = (json.dumps({"id": next(left), "words": dice.randint(1, 60)}) for _ in range(many))
        (folder / f"{number}.jsonl").write_text("".join(f"{line}\n" for line in lines))


def write_records(folder: Path, kind: str) -> None:
    """Files of this kind, with the ids of the documents. A window of tokens repeats its id."""
    ids = np.split(np.arange(DOCUMENTS), np.cumsum(PARTS)[:-1])
    if kind == "litdata":
        write_litdata(folder, [some.tolist() for some in ids])
        return
    for number, some in enumerate(ids):
        path = folder / f"{number}.{kind}"
        if kind == "tokens":
            windows = np.append(np.repeat(some, LENGTH), some[-1:])  # one more, the last target
            path.with_suffix(".bin").write_bytes(windows.astype("<u2").tobytes())
        elif kind == "array_record":
            write_array_records(path, [example({"id": [one]}) for one in some.tolist()])
        else:
            {"mds": write_mds, "tfrecord": write_tfrecord}[kind](path, some.tolist())


def tokens(sample: dict[str, Any]) -> dict[str, Any]:
    return {"tokens": np.full(sample["words"], sample["id"] + 1, np.int32)}


def data_of(folder: Path, kind: str) -> Dataset:
    if kind == "tokens":
        found = Dataset.tokens(str(folder / "*.bin"), length=LENGTH, targets=True, seed=3, block_bytes=512)
        return found.batch(BATCH, streams=12)
    if kind in OTHER_KINDS:
        options = {"examples": True} if kind == "array_record" else {}
        return getattr(Dataset, kind)(folder, seed=3, **options).batch(BATCH, streams=12)
    data = Dataset.jsonl(str(folder / "*.jsonl"), seed=3, block_bytes=512)
    if kind != "plain":
        data = data.map(tokens).pack(64, method="split" if kind == "packed" else "best-fit")
    return data.batch(BATCH, streams=12)


def ids_of(batch: Any, kind: str) -> list[int]:
    """The samples of a batch: what was read from the files, which must be what the loader says that it read."""
    if kind in ("packed", "best-fit"):
        return batch.ids.tolist()
    numbers = batch.ids[batch.mask].tolist()
    if kind != "plain":
        column = batch["tokens"] if kind == "tokens" else np.array(batch["id"]).reshape(len(batch.mask), -1)
        assert (column[batch.mask] == np.array(numbers)[:, None]).all(), f"ids {numbers}, and the rows {column}"
    return numbers


def train(rank: int, size: int, port: int, folder: Path, diary: Diary, kind: str, epochs: int) -> None:
    os.environ |= {**torchrun_environ(rank, size, port), "OMP_NUM_THREADS": "1"}
    world = init("torch", timeout=60.0, fail_fast=False)
    checkpoints = Checkpointer(folder / "run", world, every=EVERY, keep_last=2)
    weights = np.zeros(1000)
    found = checkpoints.restore(like={"weights": weights})
    data = data_of(folder / "data", kind)
    loader = data.loader(world, state=found.extra["data"] if found else None, prefetch=2)
    step = found[1] if found else 0
    diary.write("begin", step)
    while loader.epoch < epochs:
        for batch in loader:
            step += 1
            diary.write("step", step, loader.epoch, ids_of(batch, kind))
            weights += 1
            checkpoints.maybe_save(step, {"weights": weights}, extra={"data": loader.state()})
    checkpoints.close()
    diary.write("end", step)


def job(size: int, folder: Path, number: int, kind: str, epochs: int, *, steps: int | None) -> list[Diary]:
    """Run a job; kill all of it, in the middle of something, when it has taken so many steps, or when all are at the
    end: till then rank 0 stays for those who still ask its store."""
    port = quiet_port()
    diaries = [Diary(folder / f"{number}-{rank}") for rank in range(size)]

    def live(rank: int) -> None:
        train(rank, size, port, folder, diaries[rank], kind, epochs)
        signal.pause()

    def all_are_there() -> bool:
        ended = [rank for rank, pid in enumerate(pids) if has_ended(pid)]
        assert not ended, f"ranks {ended} of job {number} have failed"
        return all(is_there(diary.lines(), steps) for diary in diaries)

    pids = [fork(lambda rank=rank: live(rank)) for rank in range(size)]
    try:
        wait_for("a step, or the end", all_are_there)
        if steps is not None:
            time.sleep(random.uniform(0.0, 0.02))  # any moment will do
    except AssertionError:
        kill_all(pids, signal.SIGABRT)  # each says where it stands
        raise
    finally:
        kill_all(pids)
    return diaries


def has_ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def is_there(told: list[str], steps: int | None) -> bool:
    """Whether a rank has taken so many steps, or is at the end."""
    return (steps is not None and len(told) > steps) or (bool(told) and json.loads(told[-1])[1] == "end")


def main() -> None:
    folder, kind, epochs, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    dice = random.Random(seed)
    (folder / "data").mkdir()
    write_documents(folder / "data")
    if kind in ("tokens", *OTHER_KINDS):
        write_records(folder / "data", kind)
    importlib.import_module("torch.distributed")  # once, for all that are forked
    of_random = sys.argv[5].startswith("random:")
    many = int(sys.argv[5].partition(":")[2]) if of_random else 0
    sizes = [dice.choice(SIZES) for _ in range(many)] + [4] if of_random else list(map(int, sys.argv[5].split(",")))
    taken: dict[int, dict[int, tuple[int, list[int]]]] = {}
    again = 0
    for number, size in enumerate(sizes):
        last = number == len(sizes) - 1
        diaries = job(size, folder, number, kind, epochs, steps=None if last else dice.randint(1, 20))
        again += judge_job(taken, diaries)
        if any(diary.read()[-1][1] == "end" for diary in diaries):  # which a random run may reach before its last job
            break
    judge(taken, epochs)
    print(f"{kind}: {epochs} epochs, {number} kills, {again} steps taken again, 0 twice, 0 lost")
    assert number == len(sizes) - 1 or of_random, "the training ended before it was killed as often as it should be"


def judge_job(taken: dict[int, dict[int, tuple[int, list[int]]]], diaries: list[Diary]) -> int:
    """Put a job's steps in the place of those that it went back behind; return how many these were."""
    told = [diary.read() for diary in diaries]
    begins = {lines[0][2] for lines in told}
    assert len(begins) == 1, f"ranks began behind different steps: {begins}"
    begin = begins.pop()
    undone = [step for step in taken if step > begin]
    for step in undone:
        del taken[step]
    assert not taken or max(taken) == begin, f"steps {max(taken)} to {begin} are lost"
    for rank, lines in enumerate(told):
        for _, what, step, *more in lines:
            if what == "step":
                taken.setdefault(step, {})[rank] = (more[0], more[1])
    return len(undone)


def judge(taken: dict[int, dict[int, tuple[int, list[int]]]], epochs: int) -> None:
    """Every sample once in every epoch."""
    seen: list[Counter[int]] = [Counter() for _ in range(epochs)]
    for step, by_rank in sorted(taken.items()):
        assert len({epoch for epoch, _ in by_rank.values()}) == 1, f"ranks are in different epochs at step {step}"
        for epoch, ids in by_rank.values():
            seen[epoch].update(ids)
    for epoch, samples in enumerate(seen):
        twice = [one for one, many in samples.items() if many > 1]
        lost = [one for one in range(DOCUMENTS) if one not in samples]
        assert not twice, f"epoch {epoch}: samples {twice[:10]} were taken twice"
        assert not lost, f"epoch {epoch}: samples {lost[:10]} were lost"


if __name__ == "__main__":
    main()
