"""Run ``allranks data``: show what data there is, which rank reads what, and whether a run has read each sample."""

from __future__ import annotations

from collections.abc import Sequence

from allranks.cli import group

GROUP = group.Group(
    "data",
    "Look at a data set, at who would read what of it, and prove that a run has read each sample once.",
    {
        "index": "find out what there is, once; loaders and the other commands then know it",
        "show": "files, their samples, the first of them decoded; with --check what cannot be decoded",
        "plan": "who would read what: rows, files, bytes, steps, padding, memory, a picture",
        "audit": "prove by a run's checkpoints that the data was read once, without a gap",
    },
    """\
PATTERN is a file, a folder, a glob ('data/**/*.jsonl', 'part-{000..099}.parquet'; quote it), or s3://, gs://, az://.
The kind of data is told by the files' names, or by --kind. `allranks data COMMAND --help` says more. All take --json.
Exit codes: 0 good; 1 data that cannot be used, or a ledger that does not hold; 2 a wrong command line, or not there.
""",
)


def main(argv: Sequence[str]) -> int:
    """Run ``allranks data`` with these arguments; return its exit code."""
    return group.run(GROUP, argv)
