"""``allranks ckpt``: look at, verify, compare, export and clean up what a training run has saved."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

COMMANDS = {
    "ls": "the steps of a run, and what is left over of saves that never ended",
    "show": "what is in a checkpoint: leaves, values, how it was cut",
    "verify": "read every byte, and say what is not as it was saved",
    "diff": "which leaves changed between two checkpoints, and by how much",
    "export": "write safetensors files that Hugging Face's from_pretrained loads",
    "gc": "remove what is left over, and steps that a retention policy does not keep",
}
EPILOG = """\
RUN is the folder of a run, or s3://, gs://, az://. A step is meant by --step N, RUN@N or RUN/checkpoint-N; without
one, the newest. `allranks ckpt COMMAND --help` says more. All take --json.
Exit codes: 0 good; 1 damage or a difference was found; 2 a wrong command line, or not there.
"""


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    words = list(argv)
    if words and words[0] in COMMANDS:
        return _run(words[0], words[1:])
    parser = argparse.ArgumentParser(
        prog="allranks ckpt",
        description="Look at, verify, compare, export and clean up what a training run has saved.",
        epilog="commands:\n" + "\n".join(f"  {name:<8} {what}" for name, what in COMMANDS.items()) + f"\n\n{EPILOG}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=sorted(COMMANDS), help=argparse.SUPPRESS)
    if not words:
        parser.print_help(sys.stderr)
        return 2
    parser.parse_args(words)
    return 0


def _run(name: str, words: list[str]) -> int:
    from allranks.errors import AllranksError, Damaged

    command = importlib.import_module(f"allranks.cli.ckpt_{name}")
    parser = argparse.ArgumentParser(
        prog=f"allranks ckpt {name}",
        description=command.DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document instead of text")
    arguments = parser.parse_args(words)
    try:
        code = command.run(arguments)
        sys.stdout.flush()
        return int(code)
    except BrokenPipeError:
        sys.stdout = None  # nobody reads: nothing is left to be flushed
        return 141
    except KeyboardInterrupt:
        return 130
    except AllranksError as error:
        print(f"allranks: {error}", file=sys.stderr)
        return 1 if isinstance(error, Damaged) else 2
