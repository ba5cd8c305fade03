"""Groups of samples that are padded before they are dealt out."""

from __future__ import annotations

import textwrap

import pytest

from allranks.check.engine import Settings, check


def lines(text: str) -> list[int]:
    """Return where AR304 speaks of padding."""
    sources = {"sampler.py": textwrap.dedent(text).encode()}
    found = check(sources, Settings(select=("AR304",))).findings
    return [f.place.line for f in found if "padded" in f.message]


TOO_LITTLE = {
    "a sampler by length": (
        """
        import math
        class ByLength:
            def __iter__(self):
                order = []
                for length, members in self.groups.items():
                    lacking = math.ceil(len(members) / self.num_replicas) * self.num_replicas - len(members)
                    members += members[:lacking]
                    order.extend(members[self.rank : len(members) : self.num_replicas])
                return iter(order)
        """,
        8,
    ),
    "a function over buckets": (
        """
        import torch.distributed as dist
        def mine(buckets):
            rank, count = dist.get_rank(), dist.get_world_size()
            chosen = []
            for rows in buckets:
                rows = rows + rows[: -len(rows) % count]
                chosen.append(rows[rank::count])
            return chosen
        """,
        7,
    ),
    "with extend": (
        """
        import torch.distributed as dist
        def mine(buckets, size):
            rank, count = dist.get_rank(), dist.get_world_size()
            chosen = []
            for rows in buckets.values():
                rows.extend(rows[: size - len(rows)])
                chosen += rows[rank::count]
            return chosen
        """,
        7,
    ),
}
ENOUGH = {
    "as many times as it takes": """
        import torch.distributed as dist
        def mine(groups):
            rank, count = dist.get_rank(), dist.get_world_size()
            chosen = []
            for rows in groups:
                rows = rows + (rows * count)[: -len(rows) % count]
                chosen.append(rows[rank::count])
            return chosen
        """,
    "all data at once": """
        import torch.distributed as dist
        def mine(rows):
            rank, count = dist.get_rank(), dist.get_world_size()
            rows += rows[: -len(rows) % count]
            return rows[rank::count]
        """,
    "small groups are looked at first": """
        import torch.distributed as dist
        def mine(groups):
            rank, count = dist.get_rank(), dist.get_world_size()
            chosen = []
            for rows in groups:
                if len(rows) < count:
                    continue
                rows = rows + rows[: -len(rows) % count]
                chosen.append(rows[rank::count])
            return chosen
        """,
}


@pytest.mark.parametrize("what", TOO_LITTLE)
def test_a_small_group_is_padded_too_little(what: str) -> None:
    """A slice gives no more than there is."""
    text, line = TOO_LITTLE[what]
    assert lines(text) == [line]


@pytest.mark.parametrize("what", ENOUGH)
def test_padding_that_is_enough_is_silent(what: str) -> None:
    """Repeated, or of all data at once."""
    assert lines(ENOUGH[what]) == []
