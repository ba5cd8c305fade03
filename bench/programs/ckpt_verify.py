"""``allranks ckpt verify`` beside raw reading, of files that are not in the page cache. argv: way, framework, state.

Tells its seconds, those on a run with next to nothing in it (Python's start and imports), and the raw limit's.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ckpt_limits import Limits, evict, files_under, make_durable, timed
from ckpt_methods import method
from ckpt_state import State
from told import tell

name, framework, kind = sys.argv[1:]
os.environ.setdefault("RANK", "0")
home = Path(os.environ["BENCH_OUT"])


def verified(state: State, run: Path) -> float:
    """Save the state in this run, and let the command read it again."""
    run.mkdir()
    way = method(name, framework)
    way.save(run, 1, way.hold(state))()
    way.close()
    make_durable(run)
    evict(files_under(run))
    command = [sys.executable, "-m", "allranks", "ckpt", "verify", str(run)]
    return timed(lambda: subprocess.run(command, check=True, stdout=sys.stderr))


start, state = verified(State("small-tenth"), home / "little"), State(kind)
limits = Limits(home / "raw", state.nbytes)
limits.write()
tell(raw=limits.read_cold(), verify=verified(state, home / "run"), start=start, nbytes=state.nbytes)
