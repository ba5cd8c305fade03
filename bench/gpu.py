"""What needs an accelerator, in one go: ``python -m bench.gpu [--dry] [--write] [part ...]``, for a machine with one
device and no network, in under eight minutes. ``--dry`` runs all of it on the CPU, small, to see that it works."""

from __future__ import annotations

import argparse
import itertools
import math
import re
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from bench import page
from bench.measure import PROGRAMS, ROOT, Ran, allranks, must, run

PAGE = ROOT / "docs" / "gpu.md"
LIMIT = 110.0
_SAYS = re.compile(r"HANG: (.*)")
Rows = list[tuple[str, ...]]


class Bench:
    """How programs are run: on the device, or for a dry run on the CPU."""

    def __init__(self, *, dry: bool) -> None:
        self.device = "cpu" if dry else "cuda"
        self.megabytes = {"speed": 4 if dry else 4000, "save": 16 if dry else 10_000, "load": 8 if dry else 2000}
        # Two processes of JAX share the memory of the device.
        shared = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        self.environ = shared if dry else {**shared, "JAX_PLATFORMS": "cuda,cpu"}

    def one(self, framework: str, what: str) -> Mapping[str, Any]:
        """Return what one process has found."""
        return must(self.ranks(1, "gpu_one.py", framework, self.device, self.megabytes[what], what)).told[0]

    def ranks(self, size: int, program: str, *words: object, options: tuple[str, ...] = (), until: bytes = b"") -> Ran:
        command = [*allranks(size), *options, PROGRAMS / program, *words]
        return run(command, limit=LIMIT, env=self.environ, awaited=until)


def speed(bench: Bench, framework: str) -> Rows:
    found = bench.one(framework, "speed")
    share = found["fingerprint"] / found["memory"]
    figure = f"{found['fingerprint'] / 1e9:.1f} GB/s, {share:.2f} of {found['memory'] / 1e9:.1f} GB/s"
    return [("fingerprint of the device's memory, beside a copy", figure, ">= 0.8")]


def save(bench: Bench, framework: str) -> Rows:
    found = bench.one(framework, "save")
    staged = f"{page.duration(found['save 2 returned'])}, {page.times(found['save 2 returned'], found['link'])}"
    what = f"a save of {bench.megabytes['save']} MB returns, beside its way to the host"
    return [
        (what, staged, "<= 1.1 x"),
        ("the first one", page.duration(found["save 1 returned"]), ""),
        ("it is written after", page.duration(found["save 2 written"]), ""),
        ("training time lost meanwhile", page.duration(max(0.0, found["save 2 lost"])), ""),
        ("restored to the device", page.duration(found["restore"]), ""),
    ]


def load(bench: Bench, framework: str) -> Rows:
    found = bench.one(framework, "load")
    ratio = page.times(found["with batches"], found["steps"])
    return [(f"a loop with {found['bytes'] / 1e6:.0f} MB of batches, beside its steps", ratio, "")]


def groups(bench: Bench, framework: str) -> Rows:
    rows = []
    for size in (1, 2) if framework == "torch" else (2,):
        (first, *_) = must(bench.ranks(size, "gpu_ranks.py", framework, bench.device, "agree")).told
        words = "right" if first["right"] else f"WRONG: {first['sum']}"
        also = f", alone: {first['refused'] or 'not refused'}" if size > 1 else ""
        what = f"{size} rank{'s' * (size > 1)} on one device: sums in lockstep"
        rows.append((what, f"{words}{also}, {page.duration(first['call'])} a call", "right"))
    return rows


def hang(bench: Bench, framework: str) -> Rows:
    words = ("gpu_ranks.py", framework, bench.device, "stuck")
    ran = bench.ranks(2, *words, options=("--on-hang", "end"), until=b"what to do:")
    said, when = _SAYS.search(ran.output), next((one["when"] for one in ran.told if "when" in one), math.nan)
    told = f"{page.duration(ran.seen - when)}: {said[1]}" if said else "no rank"
    return [("a rank that hangs, in torch in a kernel, is reported after", told, "<= 3.5 s")]


PARTS: dict[str, Callable[[Bench, str], Rows]] = {
    "speed": speed,
    "save": save,
    "load": load,
    "groups": groups,
    "hang": hang,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--dry", action="store_true", help="on the CPU, small: to see that it works")
    parser.add_argument("--write", action="store_true", help="put the table into docs/gpu.md")
    chosen = parser.parse_args()
    if unknown := set(chosen.parts) - PARTS.keys():
        parser.error(f"no part called {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    bench, failed = Bench(dry=chosen.dry), []
    rows: list[tuple[str, ...]] = []
    where = page.setting(f"python -m bench.gpu{' --dry' * chosen.dry}")
    for name, framework in itertools.product(chosen.parts or PARTS, ("torch", "jax")):
        begin = time.monotonic()
        try:
            rows += [(framework, *row) for row in PARTS[name](bench, framework)]
        except RuntimeError as error:  # the others may still tell something
            print(f"{framework}, {name}: {error}", file=sys.stderr)
            failed.append(f"{framework}, {name}")
            rows.append((framework, name, "failed", ""))
        print(f"{framework}, {name}: took {time.monotonic() - begin:.0f} s", file=sys.stderr)
    text = f"{page.table(('', 'one device', 'found', 'goal'), rows)}\n\n{where}"
    print(text)
    if chosen.write:
        PAGE.write_text(page.placed(PAGE.read_text(), "gpu", text))
    if failed:
        sys.exit(f"failed: {'; '.join(failed)}")


if __name__ == "__main__":
    main()
