"""Accelerate on real ranks over loaders of ours: prepared in every way, broken off, skipped, saved and resumed."""

import sys
from itertools import chain, islice, product

import pytest
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import DataLoader

import allranks
from allranks.errors import DataError
from allranks.integrations.accelerate import Ranks
from allranks.integrations.torch import Batches, BatchSampler

SAMPLES, BATCH = 48, 8
STEPS = SAMPLES // BATCH
folder, part = sys.argv[1:]
rows = [{"x": one} for one in range(SAMPLES)]
data = allranks.Dataset.sequence(rows, seed=1).batch(BATCH)
world = allranks.init("torch")


def make(kind, workers, state=None):
    """Return a DataLoader, and what of ours it reads."""
    if kind == "Batches":
        ours = Batches(data, world, state=state)
        return DataLoader(ours, batch_size=None, num_workers=workers), ours
    ours = BatchSampler(SAMPLES, world, global_batch=BATCH, state=state)
    return DataLoader(rows, batch_sampler=ours, num_workers=workers), ours


def joined(lists):
    return list(chain.from_iterable(lists))


def steps(batches):
    """Return the global batches of all ranks."""
    mine = [batch["x"].tolist() for batch in batches]
    ranks = world.all_gather(mine)
    assert len({len(one) for one in ranks}) == 1, [len(one) for one in ranks]
    return [joined(parts) for parts in zip(*ranks, strict=True)]


def accelerator(dispatch=None, split=False, stateful=False):
    how = {"dispatch_batches": dispatch, "split_batches": split, "use_stateful_dataloader": stateful}
    return Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**how))


kinds = {kind: [] for kind in ("Batches", "BatchSampler")}
for kind, found in kinds.items():
    loader, _ = make(kind, 0)
    found += [steps(loader) for _ in range(3)]

if part == "prepare":
    for kind, workers, dispatch, split in product(kinds, (0, 2), (None, True, False), (False, True)):
        if workers and (dispatch or split):
            continue
        loader = accelerator(dispatch, split).prepare(make(kind, workers)[0])
        list(islice(loader, 1))  # a look
        assert [steps(loader) for _ in range(3)] == kinds[kind], (kind, workers, dispatch, split)
    for kind in kinds:
        for taken in (0, 1, 4, STEPS):
            loader, ours = make(kind, 2)
            loader = accelerator().prepare(loader)
            state = ours.state().gathered()
            for at, _ in enumerate(loader, 1):
                if at == taken:
                    state = ours.state().gathered()
                    break
            again = accelerator().prepare(make(kind, 0, state)[0])
            found = steps(again) + steps(again)
            assert found == joined(kinds[kind])[taken : taken + len(found)], (kind, taken)
            assert len(found) >= 2 * STEPS - taken
        # The state and the loop skip, once.
        third = make(kind, 0)[1].state(3).gathered()
        again, _ = make(kind, 0, third)
        prepared = accelerator().prepare(again)
        assert steps(accelerator().skip_first_batches(prepared, 3)) == kinds[kind][0][3:]
        again, _ = make(kind, 0, third)
        with pytest.raises(DataError, match="skips 2 batches of epoch 0, but the state continues after batch 3"):
            list(accelerator().skip_first_batches(accelerator().prepare(again), 2))

if part == "save":  # with torchdata: a state of two ranks, for four
    for kind in kinds:
        ranks = Ranks(accelerator(stateful=True), f"{folder}/{kind}", save_on_preemption=False)
        loader = ranks.prepare(make(kind, 0)[0])
        list(loader)
        for at, _ in enumerate(loader, 1):
            if at == 2:
                ranks.save_state(1)
                break
    ranks = Ranks(accelerator(stateful=True), f"{folder}/theirs", save_on_preemption=False)
    loader = ranks.prepare(DataLoader(rows, batch_size=4))
    next(iter(loader))
    ranks.save_state(1)

if part == "load":
    for kind in kinds:
        ranks = Ranks(accelerator(stateful=True), f"{folder}/{kind}", save_on_preemption=False)
        loader = ranks.prepare(make(kind, 0)[0])
        assert ranks.load_state() == 1
        found = steps(loader)
        assert found == kinds[kind][1][2:], (kind, len(found), [joined(kinds[kind]).index(one) for one in found])
        assert steps(loader) == kinds[kind][2], kind
    ranks = Ranks(accelerator(stateful=True), f"{folder}/theirs", save_on_preemption=False)
    ranks.prepare(DataLoader(rows, batch_size=4))
    with pytest.raises(DataError, match="is of 2 ranks"):
        ranks.load_state()
print("kept")
