"""The demo: four ranks train, one is killed in the middle of a save, and three go on from the last whole checkpoint.

python examples/jax_fsdp_lm/demo.py [--save-every 50] [flags of train.py]

Rows, weights, moments and steps are those of the first job, so the three ranks must lose what the four lost at the same
steps: that is compared in the end. Rows that the first job read for steps that it lost are read again, for the same
steps; the ledger, which is in the checkpoint, proves that each row was taken once.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from text import Text, batches_of

import allranks

HERE = Path(__file__).parent
# Sums over six devices are not those over eight to the last bit, and training makes that grow.
AS_EQUAL_AS_FLOATS = 1e-4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save-every", type=int, default=50, help="steps; the kill comes at twice as many")
    args, flags = parser.parse_known_args()
    every = args.save_every
    flags += ["--save-every", str(every), "--steps", str(4 * every)]
    with tempfile.TemporaryDirectory(prefix="allranks-demo-") as folder:
        run, before, after = (Path(folder, name) for name in ("run", "before.jsonl", "after.jsonl"))
        say(f"Four ranks train. Rank 2 will be killed in the middle of the save of step {2 * every}.")
        code = train("doomed.py", 4, run, before, 2 * every, flags)
        check(code == 137, f"the job should have ended with 137 (a rank killed by SIGKILL), and ended with {code}")

        say("What is left of it: the step whose save was cut off has no manifest, so it is no checkpoint.")
        subprocess.run([sys.executable, "-m", "allranks", "ckpt", "ls", str(run)], check=True)

        say("Three ranks go on from the last whole checkpoint.")
        code = train("train.py", 3, run, after, 2 * every, flags)
        check(code == 0, f"the second job ended with {code}")
        compare(losses(before), losses(after), every)

        say("The data: was each row that led to a checkpoint taken once, by both jobs together?")
        words = ["data", "audit", str(run), "--data", "demo:data"]
        environ = {**os.environ, "DEMO_FLAGS": json.dumps(flags)}
        subprocess.run([sys.executable, "-m", "allranks", *words], cwd=HERE, env=environ, check=True)


def data() -> allranks.Dataset:
    """Return the data set of both jobs, for who proves afterwards what they have read."""
    from train import arguments  # and, with it, JAX, which the demo itself needs not

    args = arguments(["--demo", *json.loads(os.environ["DEMO_FLAGS"])])
    return batches_of(Text.of_standard_library(args.seq_len + 1), args.batch_size, seed=args.seed)


def train(program: str, ranks: int, run: Path, record: Path, doomed_step: int, flags: list[str]) -> int:
    words = ["run", "-n", ranks, "-d", 2, HERE / program, "--demo", "--checkpoint", run, "--losses", record, *flags]
    environ = {**os.environ, "DOOMED_STEP": str(doomed_step)}
    return subprocess.run([sys.executable, "-m", "allranks", *map(str, words)], env=environ, check=False).returncode


def losses(record: Path) -> dict[int, float]:
    lines = (json.loads(line) for line in record.read_text().splitlines())
    return {line["step"]: line["loss"] for line in lines}


def compare(four: dict[int, float], three: dict[int, float], every: int) -> None:
    """Print the losses of both jobs; end with 1 where they are not the same training."""
    check(min(three) == every + 1, f"the second job began with step {min(three)}")
    both = sorted(four.keys() & three.keys())
    check(len(both) >= every - 2, f"only {len(both)} steps were done by both jobs")
    say("The same training? The loss of steps that both jobs did:")
    print("  step   four ranks   three ranks")
    for step in both[:: max(len(both) // 5, 1)]:
        print(f"  {step:4}   {four[step]:10.5f}   {three[step]:11.5f}")
    worst = max(abs(three[step] - four[step]) / four[step] for step in both)
    print(f"  largest relative difference over {len(both)} steps: {worst:.1e}")
    check(worst < AS_EQUAL_AS_FLOATS, "the losses differ")
    last = max(three)
    print(f"\nThe loss went on from {four[both[-1]]:.3f} at step {both[-1]} to {three[last]:.3f} at step {last}.")


def say(text: str) -> None:
    print(f"\n=== {text}\n", flush=True)


def check(holds: bool, otherwise: str) -> None:
    if not holds:
        sys.exit(f"demo: {otherwise}")


if __name__ == "__main__":
    main()
