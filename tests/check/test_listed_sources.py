"""A listing of files that is a source of rows, which are dealt out by their number: AR307."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

FEED = """\
import glob
import grain.python as grain


def feed(pattern, seed):
    files = {files}
    {then}
    source = grain.ArrayRecordDataSource({given})
    sampler = grain.IndexSampler(len(source), shard_options=grain.{shards}, shuffle=True, seed=seed)
    return grain.DataLoader(data_source=source, sampler=sampler)
"""


def lines(**parts: str) -> list[int]:
    source = FEED.format(**{"files": "glob.glob(pattern)", "then": "pass", "given": "files", **parts})
    findings = check({"train.py": source.encode()}, Settings(select=("AR307",))).findings
    return [finding.place.line for finding in findings]


@pytest.mark.parametrize(
    "parts",
    [
        {"files": "sorted(glob.glob(pattern))"},
        {"then": "files.sort()"},
        {"given": "sorted(files)"},
        {"given": "seed"},
        {"shards": "NoSharding()"},
    ],
)
def test_a_listing_that_is_sorted_or_read_whole_is_not_found(parts: dict[str, str]) -> None:
    """All processes number the same rows alike, or nobody deals them out."""
    assert lines(**{"shards": "ShardByJaxProcess()", **parts}) == []
