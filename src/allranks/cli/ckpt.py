"""Run ``allranks ckpt``: list, show, verify, compare, export and clean up the checkpoints of a run."""

from __future__ import annotations

from collections.abc import Sequence

from allranks.cli import group

GROUP = group.Group(
    "ckpt",
    "List, verify, compare, export and clean up the checkpoints of a training run.",
    {
        "ls": "list the steps of a run, and leftovers of incomplete saves",
        "show": "show the leaves and values of a checkpoint, and how it is sharded",
        "verify": "read every byte, and report damaged files and leaves",
        "diff": "report which leaves changed between two checkpoints, and by how much",
        "export": "write safetensors files that Hugging Face's from_pretrained loads",
        "gc": "remove leftovers, and steps that a retention policy does not keep",
    },
    """\
RUN is the folder of a run, or s3://, gs://, az://. Select a step with --step N, RUN@N or
RUN/checkpoint-N (default: the newest). `allranks ckpt COMMAND --help` shows the options. All commands take --json.
Exit codes: 0 ok; 1 damage or a difference was found; 2 a wrong command line, or no such run or step.
""",
)


def main(argv: Sequence[str]) -> int:
    """Run ``allranks ckpt`` with these arguments; return its exit code."""
    return group.run(GROUP, argv)
