"""In a torch DataLoader, whatever its workers, the batches are those of our plan, and resume with another world."""

from __future__ import annotations

import pickle
from itertools import chain
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler
from worlds import BATCH, SAMPLES, numbers, on, reference, together

from allranks import Dataset, World
from allranks.errors import DataError
from allranks.integrations.torch import Batches, BatchSampler

pytestmark = [
    # Three workers on two cores: torch says so.
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    # torch forks its workers, which use no JAX; it may be loaded here by tests that came before.
    pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning"),
]


def rows(batch: dict[str, torch.Tensor]) -> list[int]:
    assert torch.equal(batch["square"], batch["x"] ** 2)
    return torch.where(batch["mask"], batch["x"], -1).tolist()


def read(batches: Batches, workers: int) -> list[list[int]]:
    return [rows(batch) for batch in DataLoader(batches, batch_size=None, num_workers=workers)]


def test_workers_hand_out_the_order_of_the_plan() -> None:
    """Three ranks, each with three workers, take the global batches of our own loader; none is empty-handed."""
    made = on(3, lambda world: Batches(numbers(), world))
    assert together([read(batches, 3) for batches in made]) == reference()


def test_a_state_goes_on_with_other_ranks_and_workers() -> None:
    """Seven steps on two ranks with two workers each; the rest on four with three: as if nothing had happened."""

    def stop(world: World) -> Any:
        batches = Batches(numbers(), world)
        loader = iter(DataLoader(batches, batch_size=None, num_workers=2))
        taken = [rows(next(loader)) for _ in range(7)]
        return taken, batches.state(7).gathered()

    stopped = on(2, stop)
    state = stopped[0][1]
    made = on(4, lambda world: Batches(numbers(), world, state=state))
    begun, rest = together([taken for taken, _ in stopped]), together([read(one, 3) for one in made])
    assert begun + rest == reference()
    # Our own loader takes the state, too, and proves the epoch: it counts on what was taken before.
    assert on(1, lambda world: [one.ids.tolist() for one in numbers().loader(world, state=state)])[0] == rest


def test_workers_that_persist_see_the_next_epoch() -> None:
    batches = on(1, lambda world: Batches(numbers(), world))[0]
    loader = DataLoader(batches, batch_size=None, num_workers=2, persistent_workers=True)
    for epoch in range(2):
        batches.set_epoch(epoch)
        assert [rows(batch) for batch in loader] == reference(epoch)


def test_a_state_dict_is_of_one_worker() -> None:
    """As torchdata's StatefulDataLoader uses it: a worker goes on with what it had not made, among as many of them."""
    sent = pickle.dumps(on(1, lambda world: Batches(Dataset.sequence(range(90)).batch(9), world))[0])
    whole = [batch["value"].tolist() for batch in pickle.loads(sent)]
    batches = pickle.loads(sent)
    made = iter(batches)
    first = [next(made)["value"].tolist() for _ in range(4)]
    batches.load_state_dict(batches.state_dict())
    assert first + [batch["value"].tolist() for batch in batches] == whole
    with pytest.raises(DataError, match="2 workers cannot be loaded by a loader with 1"):
        batches.load_state_dict({"epoch": 0, "step": 3, "workers": 2})
    with pytest.raises(DataError, match="has no position: KeyError: 'epoch'"):
        batches.load_state_dict({})
    with pytest.raises(DataError, match="this copy of the loader is in a worker process"):
        batches.state(3)


def test_packed_rows_are_refused() -> None:
    with pytest.raises(DataError, match=r"packed rows .* Iterate over \.loader"):
        Batches(Dataset.sequence(range(90)).pack(8).batch(9), World.__new__(World))


class Squares(torch.utils.data.Dataset[int]):
    """Map-style."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, row: int) -> int:
        assert 0 <= row < SAMPLES
        return row**2


def test_a_sampler_takes_each_sample_once_where_torchs_repeats_some() -> None:
    """203 samples on four ranks. DistributedSampler repeats one silently; ours masks it. Resumed on three ranks."""
    theirs = [list(DistributedSampler(Squares(), num_replicas=4, rank=rank)) for rank in range(4)]  # type: ignore[var-annotated]
    assert sum(map(len, theirs)) == SAMPLES + 1

    def stop(world: World) -> Any:
        sampler = BatchSampler(SAMPLES, world, global_batch=BATCH)
        loader = iter(DataLoader(Squares(), batch_sampler=sampler, num_workers=2))
        return [next(loader).tolist() for _ in range(10)], sampler.state(10).gathered()

    def go_on(world: World) -> Any:
        sampler = BatchSampler(SAMPLES, world, global_batch=BATCH, state=state)
        loader = DataLoader(Squares(), batch_sampler=sampler, num_workers=2)
        assert len(loader) == 17
        taken = [
            torch.where(torch.tensor(sampler.mask(10 + at)), batch, -1).tolist() for at, batch in enumerate(loader)
        ]
        sampler.set_epoch(1)
        assert len(sampler) == 17
        return taken

    stopped = on(4, stop)
    state = stopped[0][1]
    found = together([taken for taken, _ in stopped]) + together(on(3, go_on))
    assert sorted(chain.from_iterable(found)) == [-1, *(row**2 for row in range(SAMPLES))]
    with pytest.raises(DataError, match="3 steps of epoch 0 cannot have been taken: it began with step 10"):
        on(1, lambda world: BatchSampler(SAMPLES, world, global_batch=BATCH, state=state))[0].state(3)
