"""Files, cached indexes and states with random changes: read, or refused with one of our errors."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

for needed in ("orjson", "pyarrow", "zstandard"):
    pytest.importorskip(needed)

import data_fuzz  # noqa: E402


def totals(first: int, count: int) -> Counter[str]:
    """Return the counts of these seeds; fail with the first input that raised anything else, hung, or ended Python."""
    total: Counter[str] = Counter()
    for outcome in data_fuzz.fuzz(first, count):
        for seed, what in outcome["raised"].items():
            pytest.fail(f"seed {seed}: {what}")
        assert outcome["MB"] <= 512
        total.update({"read": outcome["read"], "refused": outcome["refused"]})
    return total


def test_changed_files_are_read_or_refused() -> None:
    total = totals(0, 120)
    assert total.total() == 120
    assert min(total["read"], total["refused"]) > 15


@pytest.mark.soak
def test_many_changed_files_are_read_or_refused() -> None:
    total = totals(1_000_000, 200_000)
    print(f"{total['read']:,} read, {total['refused']:,} refused, 0 others")
    assert total.total() == 200_000


def test_an_error_of_another_kind_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fuzz can fail: with a reader that raises KeyError, as one did for a damaged cache."""
    monkeypatch.setattr(data_fuzz, "read_source", lambda _: {}["files"])
    outcome = data_fuzz.attempts(0, 20, tmp_path)
    assert len(outcome["raised"]) > 10
    assert "KeyError: 'files'" in next(iter(outcome["raised"].values()))
