"""AR803: a sleep where a barrier is meant."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.program import Program
from allranks.check.rule import Example, LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tables.all_effects import EFFECTS
from allranks.check.tree.one_rank import on_one
from allranks.check.tree.syntax import (
    asks_rank,
    function_of,
    inside,
    name_of,
    own,
    places_in,
    rank_guard,
    speaks_of,
    tail_of,
)
from allranks.findings import Finding

_TRACKERS = frozenset(effect.pattern for effect in EFFECTS if effect.kind == "tracker")
_JOINS = ("jax.distributed.initialize", "torch.distributed.init_process_group")
_BARRIERS = {"barrier", "wait_for_everyone", "sync_global_devices", "rendezvous", "synchronize"}
_DRAWN = re.compile(r"(?i)random|uniform|jitter")
_AGAIN = (ast.While, ast.For, ast.Try, ast.TryStar)
# Who calls nothing else fills no file.
_MAKES_FOLDERS = {"makedirs", "mkdir", "join", "dirname", "print", "info", "exists", "isdir", "Path"}
# Whoever ends with one of these shows the others a whole file.
_WRITES = re.compile(r"save|write|dump|log|info|print|join")
_PUBLISHES = {"rename", "replace", "move", "renames", "touch"}


class SleepAsBarrier(LocalRule):
    """
    ## What it does
    Finds `time.sleep` that all ranks except one reach (`if rank != 0: time.sleep(10)`): a wait by the clock for the
    work of that rank. Also a loop that sleeps until a file exists that the other branch writes under its final name.

    ## Why is this bad
    How long the other rank needs is not known. The sleep is mostly too long, and sometimes too short.

    ## What happens with N processes
    If the file system or the network is slow once, the ranks continue too early, read half a file or none, and diverge.

    ## Known problems
    A sleep that spreads a load over time looks the same. A sleep of rank 0 only is not reported: it rarely waits for
    the others' work. Nor is a sleep inside a loop that repeats a request.

    ## Use instead
    A barrier or a broadcast that all ranks call: `torch.distributed.barrier()`,
    `multihost_utils.sync_global_devices("downloaded")`, or a function under `@allranks.main_rank`.
    """

    code, name, severity, row = "AR803", "sleep-as-barrier", "warning", "collectives"
    cluster = "When the other rank is slower than this, the ranks continue too early and diverge."
    advice = "Use a collective: a barrier after the work of rank 0, or a broadcast of its result."
    words = ("sleep",)
    nodes = (ast.Call,)
    calls = ("time.sleep",)
    bad = (
        Example(
            {
                "train.py": """\
import time
import torch.distributed as dist


def prepare(path):
    if dist.get_rank() == 0:
        download(path)
    else:
        time.sleep(60)
    return load(path)
"""
            },
            at=(9,),
        ),
        Example(
            {
                "train.py": """\
import os
import time

if rank == 0:
    write_vocabulary("words.txt")
else:
    while not os.path.exists("words.txt"):
        time.sleep(1)
"""
            },
            at=(8,),
        ),
        Example(
            {
                "train.py": """\
import time
import wandb


def start(rank, config):
    if rank == 0:
        wandb.init(project="words", config=dict(config))
        config.write("config.json")
    else:
        time.sleep(10)
"""
            },
            at=(10,),
        ),
        Example({"train.py": "from time import sleep\n\nif local_rank != 0:\n    sleep(5)\n"}, at=(4,)),
    )
    good = (
        # Nobody reads it, here or anywhere else.
        Example(
            {
                "evaluate.py": """\
import os
import time


def evaluate(rank, folder, rounds):
    for number in rounds:
        if rank == 0:
            with open(os.path.join(folder, f"report_{number}.npz"), "wb") as file:
                file.write(score(number))
        else:
            while not os.path.exists(os.path.join(folder, f"report_{number}.npz")):
                time.sleep(1)
        save_meta(folder, number)
"""
            }
        ),
        Example({"train.py": "import time\n\ntime.sleep(1)\n"}),
        Example({"train.py": "import time\n\nif rank == 0:\n    while not ready():\n        time.sleep(1)\n"}),
        Example(
            {
                "train.py": """\
import os
import time

if rank == 0:
    write_vocabulary("words.tmp")
    os.replace("words.tmp", "words.txt")
else:
    while not os.path.exists("words.txt"):
        time.sleep(1)
"""
            }
        ),
        Example(
            {
                "train.py": """\
import time
import wandb


def start(rank, config):
    if rank == 0:
        wandb.init(project="words", config=dict(config))
    if rank != 0:
        time.sleep(10)
"""
            }
        ),
        Example(
            {
                "train.py": """\
import os
import subprocess
import time


def unpack(local_rank, archive, target):
    done = os.path.join(target, "done.txt")
    if local_rank == 0:
        subprocess.run(["tar", "-xf", archive, "-C", target])
        with open(done, "w") as file:
            print("unpacked", file=file)
    else:
        while not os.path.exists(done):
            time.sleep(60)
"""
            }
        ),
        Example(
            {
                "train.py": """\
import time
import torch.distributed as dist


def main(steps, metrics):
    train(steps)
    if dist.get_rank() == 0:
        time.sleep(2)  # the dashboard is still fetching
    metrics.close()
    dist.destroy_process_group()
"""
            }
        ),
        # Whoever waits is rank 0, which the others wait for.
        Example({"train.py": "import time\n\nif not distributed or rank == 0:\n    print(plan)\n    time.sleep(1)\n"}),
        Example({"train.py": "import random\nimport time\n\nif rank != 0:\n    time.sleep(random.uniform(1, 9))\n"}),
        Example({"train.py": "import time\n\n\ndef retry(f):\n    for i in range(3):\n        time.sleep(2**i)\n"}),
        Example({"train.py": "import time\n\nif rank is not None:\n    time.sleep(rank * 0.1)\n"}),
        Example({"train.py": "import time\n\nif rank == 0:\n    time.sleep(0.1)\n"}),
        Example(
            {
                "train.py": """\
import time
import torch.distributed as dist


def prepare(path, rank):
    if rank == 0:
        download(path)
    else:
        time.sleep(10)  # the store is asked less often
    dist.barrier()
"""
            }
        ),
        Example(
            {
                "train.py": """\
import os
import time
import jax


def start(rank, path, size):
    if rank != 0:
        time.sleep(5)
        while not os.path.exists(path) or os.path.getsize(path) < size:
            time.sleep(1)
    jax.distributed.initialize(process_id=rank)
"""
            }
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call) or name_of(node, file) != "time.sleep":
            return
        if _waits_for_half_a_file(node, file):
            yield self.local(file, node, "the other ranks wait until a file exists, and may read half of it")
            return
        if any(isinstance(parent, _AGAIN) or _polls(parent) for parent, _ in inside(node, file)):
            return
        if node.args and (asks_rank(node.args[0]) or speaks_of(node.args[0], _DRAWN)):
            return  # start-up is spread over time
        if node.args and isinstance(node.args[0], ast.Constant) and _is_short(node.args[0].value):
            return
        guard = rank_guard(node, file)
        if guard is None or _is_about_another(guard) or on_one(node, file) is not None:
            return
        if not (_joins_later(node, file) or _all_meet(guard, file) or _tracker_comes_first(guard, file)):
            asked = ast.unparse(guard)
            yield self.local(file, node, f"a sleep for some ranks only ({asked}) is used as a barrier")

    def stands(self, finding: Finding, program: Program) -> bool:
        """Whether it is not in a class that nobody names."""
        kind = finding.symbol.rpartition(".")[0]
        return not kind.rpartition(".")[2][:1].isupper() or not program.facts.nobody_calls(kind)


def _joins_later(call: ast.Call, file: File) -> bool:
    """The processes are joined behind it, which waits for all: the sleep only lets the first one come first."""
    function = function_of(call, file)
    later = own(function) if function is not None else ()
    return any(isinstance(at, ast.Call) and at.lineno > call.lineno and name_of(at, file) in _JOINS for at in later)


def _branches(guard: ast.expr, file: File) -> Iterator[tuple[list[ast.stmt], ast.If]]:
    """Yield the branch that a guard is about, and those around it, from within: in which block each stands."""
    for parent, child in inside(guard, file):
        for block in (getattr(parent, name, None) for name in ("body", "orelse", "finalbody")):
            if isinstance(child, ast.If) and isinstance(block, list) and child in block:
                yield block, child


def _all_meet(guard: ast.expr, file: File) -> bool:
    """Right behind the branch all ranks come to a barrier: the sleep stands in nobody's stead."""
    for block, branch in _branches(guard, file):
        if following := block[block.index(branch) + 1 :]:
            calls = {tail_of(at) for at in walk(following[0]) if isinstance(at, ast.Call)}
            return not _BARRIERS.isdisjoint(calls)
    return False


def _tracker_comes_first(guard: ast.expr, file: File) -> bool:
    """All that rank 0 does meanwhile is to start the run of a tracker, of which the others need nothing."""
    for block, branch in _branches(guard, file):
        if branch.test is guard and branch.orelse:
            return _only_tracks(branch.orelse, file)
        sooner = [s for s in block[: block.index(branch)] if isinstance(s, ast.If) and asks_rank(s.test)]
        return bool(sooner) and _only_tracks(sooner[-1].body, file)
    return False


def _only_tracks(statements: list[ast.stmt], file: File) -> bool:
    """Whether a tracker's run is started, and besides something is told of at most."""
    made = [s.value for s in statements if isinstance(s, ast.Expr | ast.Assign)]
    calls = [name_of(value, file) for value in made if isinstance(value, ast.Call)]
    tracked = [name in _TRACKERS for name in calls if name != "print"]
    return len(calls) == len(statements) and bool(tracked) and all(tracked)


def _is_short(seconds: object) -> bool:
    """Under a second nobody waits for another rank: a socket or a screen is given time."""
    return isinstance(seconds, int | float) and seconds < 1


def _polls(parent: ast.AST) -> bool:
    """A loop in the same branch waits for what is meant; the sleep beside it gives it a moment more."""
    blocks = (getattr(parent, "body", None), getattr(parent, "orelse", None))
    return any(isinstance(s, ast.While) for block in blocks if isinstance(block, list) for s in block)


def _waits_for_half_a_file(call: ast.Call, file: File) -> bool:
    """A loop until a path exists, for the ranks that do not write it; and who writes it does not rename at the end."""
    loop = None
    for parent, child in inside(call, file):
        if isinstance(parent, ast.While) and "exist" in (asked := ast.unparse(parent.test)) and "size" not in asked:
            loop = parent
        elif loop is not None and isinstance(parent, ast.If) and asks_rank(parent.test):
            writes = parent.body if child in parent.orelse else parent.orelse
            calls = [tail_of(at) for s in writes for at in walk(s) if isinstance(at, ast.Call)]
            fills = bool(set(calls) - _MAKES_FOLDERS)
            told = _PUBLISHES & set(calls) or _is_marked(loop, writes)
            return fills and not told and not _is_unread(loop, writes, file)
    return False


def _is_unread(loop: ast.While, writes: list[ast.stmt], file: File) -> bool:
    """The file has a name of its own that nothing else here speaks of, and nothing behind the wait reads its folder."""
    named = [at.value for at in walk(loop.test) if isinstance(at, ast.Constant) and isinstance(at.value, str)]
    name, function = max(named, key=len, default=""), function_of(loop, file)
    if not name or function is None:
        return False
    known = sum(ast.unparse(at).count(name) for at in (loop.test, *writes))
    later = (at for at in own(function) if isinstance(at, ast.Call) and at.lineno > (loop.end_lineno or 0))
    numbers = {place for at in walk(loop.test) if isinstance(at, ast.JoinedStr) for place in places_in(at)}
    places = {place for place in places_in(loop.test) - numbers if not place.startswith(("os", "tf"))} - {"self"}
    reads = (at for at in later if not _WRITES.search(tail_of(at)) and any(map(places.intersection, _given(at))))
    return file.text.count(name) <= known and not any(reads)


def _given(call: ast.Call) -> Iterator[frozenset[str]]:
    """Yield what a call is given, but for files of another name."""
    given = (*call.args, *(k.value for k in call.keywords))
    texts = (any(isinstance(at, ast.Constant) and isinstance(at.value, str) for at in walk(one)) for one in given)
    yield from (places_in(one) for one, named in zip(given, texts, strict=True) if not named)


def _is_marked(loop: ast.While, writes: list[ast.stmt]) -> bool:
    """What is waited for is made last, after something else: it says that this is done, and is not read itself."""
    awaited = {name for name in places_in(loop.test) if name.partition(".")[0] not in ("os", "self")}
    *before, last = (frozenset[str](), *(places_in(statement) for statement in writes))
    return bool(len(before) > 1 and awaited & last) and not any(awaited & places for places in before)


def _is_about_another(guard: ast.expr) -> bool:
    """The rank is compared with that of some message, not with a number: who is meant changes."""
    return isinstance(guard, ast.Compare) and not all(isinstance(c, ast.Constant) for c in guard.comparators)
