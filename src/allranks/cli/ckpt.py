"""``allranks ckpt``: look at, verify, compare, export and clean up what a training run has saved."""

from __future__ import annotations

from collections.abc import Sequence

from allranks.cli import group

GROUP = group.Group(
    "ckpt",
    "Look at, verify, compare, export and clean up what a training run has saved.",
    {
        "ls": "the steps of a run, and what is left over of saves that never ended",
        "show": "what is in a checkpoint: leaves, values, how it was cut",
        "verify": "read every byte, and say what is not as it was saved",
        "diff": "which leaves changed between two checkpoints, and by how much",
        "export": "write safetensors files that Hugging Face's from_pretrained loads",
        "gc": "remove what is left over, and steps that a retention policy does not keep",
    },
    """\
RUN is the folder of a run, or s3://, gs://, az://. A step is meant by --step N, RUN@N or RUN/checkpoint-N; without
one, the newest. `allranks ckpt COMMAND --help` says more. All take --json.
Exit codes: 0 good; 1 damage or a difference was found; 2 a wrong command line, or not there.
""",
)


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    return group.run(GROUP, argv)
