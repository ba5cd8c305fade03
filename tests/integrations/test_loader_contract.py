"""Every adapter keeps every law of the contract of loaders, or says why not: see loader_contract.py."""

from __future__ import annotations

import pytest
from loader_contract import ADAPTERS, LAWS, reason

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
]
SHORT = [
    "Dataset.loader",
    "shard of a list",
    "Batches",
    "BatchSampler",
    "StatefulDataLoader(Batches)",
    "StatefulDataLoader(BatchSampler)",
    "grain",
    "grain, get_state",
]
# With workers, a sample: a DataLoader of two takes a tenth of a second to start.
FEW = [("Batches, persistent workers", "look"), ("Batches, state()", "look"), ("BatchSampler, 2 workers", "look")]


def kept(names: list[str]) -> list[object]:
    """The pairs of an adapter and a law that it keeps."""
    pairs = [(name, law) for name in names for law in LAWS if not reason(name, law)]
    return [pytest.param(*pair, marks=pytest.mark.needs(*ADAPTERS[pair[0]].needs)) for pair in pairs]


@pytest.mark.parametrize(("name", "law"), kept(SHORT))
def test_a_law_is_kept(name: str, law: str) -> None:
    """States are taken before the first batch, in the middle, and behind the last."""
    LAWS[law](name, [0, 2, 6])


@pytest.mark.parametrize(("name", "law"), FEW)
def test_a_law_is_kept_with_workers(name: str, law: str) -> None:
    """However far they are ahead."""
    LAWS[law](name, [2])


@pytest.mark.soak
@pytest.mark.parametrize(("name", "law"), kept(list(ADAPTERS)))
def test_a_law_is_kept_at_every_position(name: str, law: str) -> None:
    """States are taken before the first batch, behind each, and behind the last."""
    LAWS[law](name, list(range(7)))
