"""``python -m bench [names] [--quick] [--write]``: run the benches, print their tables, renew their pages."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
import time

from bench import page
from bench.measure import ROOT

BENCHES = {
    "world": "barrier and gather against the frameworks' own; store operations to 10,000 ranks",
    "gate": "the gate: a section, a refusal, the entrance to a collective",
    "startup": "from the command to the first collective; memory of a rank",
    "failure": "from one rank's failure to the end of the job",
    "hosts": "a job on four hosts: its start, and its end after a failure, a cut cable, a kill",
    "log_path": "lines a second from the ranks to the terminal",
    "hang": "from a rank that stands still to the words that name it; what the watch costs",
    "plugin": "50 tests of four ranks",
    "checkpoint": "saves and restores against the raw limit and the peers",
    "memory_tier": "a step in the hosts' memory beside one on disk",
    "load": "foreign checkpoints, by us and by their own libraries: time and memory",
    "verify": "comparing the state of all ranks: speeds, costs, and the frameworks' ways",
    "mismatch": "one rank that does otherwise, without us, with torch's own debugging, and in lockstep",
    "lockstep": "what a call in lockstep costs",
    "data": "exactness, speed, resumes and shuffles of reading, against the peers",
    "rehearse": "what it costs to be rehearsed, and how long a rehearsal takes",
    "check": "what allranks check finds of known bugs in public code, and how often it is wrong on well-kept code",
    "check_speed": "allranks check beside a bare ast.parse and the peers' linters",
}
MODULES = {"check": "check.score"}
PAGE = ROOT / "docs" / "performance.md"
# Of those with a page of their own.
PAGES = {name: ROOT / "docs" / f"{name}-performance.md" for name in ("checkpoint", "data")} | {
    "verify": ROOT / "docs" / "consistency.md",
    "hang": ROOT / "docs" / "hang.md",
    "hosts": ROOT / "docs" / "clusters.md",
    "memory_tier": ROOT / "docs" / "checkpoint-memory.md",
    "load": ROOT / "docs" / "load.md",
    "lockstep": ROOT / "docs" / "lockstep.md",
    "check": ROOT / "docs" / "check-evaluation.md",
    "check_speed": ROOT / "docs" / "check-evaluation.md",
    "mismatch": ROOT / "docs" / "lockstep.md",
    "rehearse": ROOT / "docs" / "rehearse.md",
}


def main() -> None:
    listed = "\n".join(f"  {name:<11} {what}" for name, what in BENCHES.items())
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=f"Run all benches, or those named.\n\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="name", help="benches to run (default: all)")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and smaller sizes, to see that they run")
    parser.add_argument("--write", action="store_true", help="put the tables into their pages under docs/")
    chosen = parser.parse_args()
    if unknown := set(chosen.names) - BENCHES.keys():
        parser.error(f"no bench called {', '.join(sorted(unknown))}; there are:\n{listed}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is running is cleared away
    failed = []
    for name in chosen.names or BENCHES:
        print(f"{name}: {BENCHES[name]}", file=sys.stderr)
        command, begin = f"python -m bench {name}{' --quick' * chosen.quick}", time.monotonic()
        where = page.setting(command)
        try:
            text = importlib.import_module(f"bench.{MODULES.get(name, name)}").tables(quick=chosen.quick)
        except RuntimeError as error:  # the others may still tell something
            print(f"{name}: {error}", file=sys.stderr)
            failed.append(name)
            continue
        text = f"{text}\n\n{where}"
        print(f"\n## {name}\n\n{text}\n", flush=True)
        print(f"{name}: took {time.monotonic() - begin:.0f} s", file=sys.stderr)
        if chosen.write:
            own = PAGES.get(name, PAGE)
            own.write_text(page.placed(own.read_text(), name, text))
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
