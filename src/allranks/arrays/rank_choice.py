"""Select which rank's value is saved for leaves that differ between ranks on purpose."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache

from allranks.arrays.base import RankSplit
from allranks.arrays.grid import replicated_split
from allranks.arrays.leaves.base import ArraySpec, LeafRefused

_COUNT = "num_batches_tracked"


def batch_statistics(paths: Sequence[str]) -> Iterator[str]:
    """Yield the paths of the running statistics of torch's batch normalisation, which differ between ranks."""
    for path in [path for path in paths if path.endswith(_COUNT)]:
        before = path.removesuffix(_COUNT)
        names = [before + name for name in ("running_mean", "running_var")]
        if before[-1:] in ("", ".", "/") and set(paths).issuperset(names):
            yield from (path, *names)


def is_below_any(path: str, places: Collection[str]) -> bool:
    """Return whether a path is one of ``places``, or below one of them."""
    return any(path == place or path.startswith(f"{place}/") for place in places)


@lru_cache(maxsize=1 << 14)
def spec_for_choice(spec: ArraySpec, choice: str, size: int) -> ArraySpec:
    """Return the spec under which a rank-local array is saved: rank 0's array, or all with a first dimension of ranks.

    An array that is sharded over the ranks keeps its spec if the choice is "usual". For other choices it raises
    LeafRefused.
    """
    if spec.split != replicated_split(len(spec.shape), size):
        if choice == "usual":
            return spec
        what = "per_rank" if choice == "rank" else "from_main"
        raise LeafRefused(
            f"one array that the ranks hold together, and {what}= matches it",
            "Match only arrays that every rank has for itself.",
        )
    if choice != "rank":
        return ArraySpec(spec.shape, spec.dtype, RankSplit(spec.split.cuts, ((0,),)), spec.kind)
    split = RankSplit((size, *spec.split.cuts), tuple((rank,) for rank in range(size)))
    return ArraySpec((size, *spec.shape), spec.dtype, split, spec.kind, per_rank=True)
