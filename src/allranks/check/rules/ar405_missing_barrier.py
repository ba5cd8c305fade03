"""AR405: rank 0 writes what all ranks read, and nobody waits."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

from allranks.check.interpret.spelled import is_listed, left_open, within
from allranks.check.program import Event, Program
from allranks.check.rule import Example, LocalRule, ProgramRule
from allranks.check.sources.source import File
from allranks.check.survey.ways import apart, awaited, loads_between, root, when
from allranks.check.tables.effects import MOVES, Effect
from allranks.check.tables.local import LocalQuery
from allranks.check.tree.filled_early import filled_early
from allranks.check.tree.handovers import handovers
from allranks.check.tree.origins import function_called
from allranks.check.tree.syntax import tail_of
from allranks.check.tree.too_early import NO_FOLDER, NOT_WHOLE, harm
from allranks.findings import Confidence, Finding, Note

_FOLDERS, _READS = ("mkdir", "folder"), ("read", "load")
_MAKES = (*_FOLDERS, "checkpoint", "file", "append", "download", "tracker")
_USES = (*_READS, "file", "append", "checkpoint", "folder", "mkdir", "listing")
_FILLED = ("checkpoint", "file", "append", "download", "moved")
_WHOLE = ("checkpoint", "download", "moved")  # these may be folders, and what is in them is made with them
_LISTS = ("os.listdir", "os.scandir", "pathlib.Path.iterdir")  # they raise where there is no such folder
_SAYS_DONE = re.compile(r"(?i)done|commit|complete|success|finish|latest|tracker|ready|last_")
_WHOSE = re.compile(r"@[^<>]*")
_MEETS = re.compile(
    r"barrier|wait|sync|broadcast|gather|reduce|prepare|distributed|FSDP|DDP|fully_shard|init_|exchange|rendezvous|setup"
    r"|(process|zero|main|master)_first$",
    re.IGNORECASE,
)


class MissingBarrier(LocalRule, ProgramRule):
    """
    ## What it does
    Finds a file or folder that rank 0 makes and that the other ranks read, list or fill, with no collective between:

    - a data set that rank 0 downloads, or a folder that it makes for the files of all ranks
    - a folder that rank 0 deletes or moves while, or before, all use it
    - parts of all ranks that rank 0 combines, or declares complete, before all have written

    ## Why is this bad
    The other ranks may be faster.

    ## What happens with N processes
    A rank that is faster than rank 0 finds no file, the file of the last run, or half of a file.

    ## Known problems
    Writer and reader in two functions are connected if the path is the same attribute, setting or constant, or an
    argument of the calls. A collective in code that is not followed is not seen. Confidence is low if only names show
    that rank 0 makes what the others use, and if all load a pretrained model first.

    ## Use instead
    A barrier between, on all ranks (`dist.barrier()`, `accelerator.wait_for_everyone()`).

    ## Fix safety
    There is no automatic fix: the barrier must be where all ranks reach it.
    """

    code, name, severity, row = "AR405", "missing-barrier", "error", "collectives"
    cluster = NOT_WHOLE
    advice = "Put a barrier that all ranks reach between what rank 0 does and what the others do."
    words = ("makedirs", "mkdir", "rank", "main", "master", "process_index")
    nodes = (ast.Call, ast.FunctionDef)
    calls = ("os.makedirs", "pathlib.Path.mkdir")
    bad = (
        Example(
            {
                "digits.py": """\
import os
import torch
from torchvision import datasets

def main(args):
    torch.cuda.set_device(args.local_rank)
    if args.local_rank == 0:
        train = datasets.MNIST("data", download=True)
    torch.cuda.synchronize()
    if args.local_rank > 0:
        train = datasets.MNIST("data", download=False)
    return Model(weights(args))

def weights(args):
    cache_path = os.path.expanduser(args.name)
    for name in ("config.json", "model.pt"):
        if args.local_rank == 0:
            download(os.path.join(cache_path, name), name)
    return cache_path
"""
            },
            at=(11, 19),
        ),
        Example(
            {
                "save.py": """\
import os
import torch
import torch.distributed as dist

def save(folder, model, optimizer, rank):
    if rank == 0:
        os.makedirs(folder, exist_ok=True)
        torch.save(model, os.path.join(folder, "model.pt"))
    path = os.path.join(folder, f"optimizer_{rank}.pt")
    torch.save(optimizer, path)
"""
            },
            at=(10,),
        ),
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist

def main(model, path):
    dist.init_process_group("nccl")
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), path)
    state = torch.load(path)
"""
            },
            at=(8,),
        ),
        Example(
            {
                "train.py": """\
import os
import shutil
import torch
import torch.distributed as dist
from pathlib import Path

def main(results, cache, work):
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    if rank == 0:
        shutil.rmtree(str(results))
    os.makedirs(results, exist_ok=True)
    dist.barrier()
    if rank == 0:
        os.makedirs(cache, exist_ok=True)
    torch.save({}, os.path.join(cache, f"part-{rank}.pt"))
    with open(cache + "/config.json", "a") as file:
        print(file)
    dist.barrier()
    state = torch.load(work / "state.pt")
    if rank == 0:
        shutil.rmtree(work)
    return state
"""
            },
            at=(12, 16, 17, 22),
        ),
        Example(
            {
                "train.py": """\
import glob
import os
import torch
import torch.distributed as dist

def fetch(url, folder):
    torch.hub.download_url_to_file(url, os.path.join(folder, os.path.basename(url)))

def main(url, folder):
    dist.init_process_group("nccl")
    if dist.get_rank() == 0:
        fetch(url, folder)
        torch.save({}, os.path.join(folder, "start.pt"))
    files = sorted(glob.glob(folder + "/*.pt"))
    return torch.load(os.path.join(folder, os.path.basename(url)))
"""
            },
            at=(14, 15),
        ),
    )
    good = (
        Example(
            {
                "digits.py": """\
import os
import torch
import torch.distributed as dist
from torchvision import datasets

def main(args):
    if args.local_rank == 0:
        train = datasets.MNIST("data", download=True)
        dist.barrier()
    else:
        dist.barrier()
        train = datasets.MNIST("data")
    folder = weights(args)
    dist.barrier()
    return Model(folder)

def weights(args):
    cache_path = os.path.expanduser(args.name)
    if args.local_rank == 0:
        download(cache_path, args.name)
    return cache_path
"""
            },
        ),
        Example(
            {
                "save.py": """\
import os
import torch
import torch.distributed as dist

def save(folder, optimizer, rank):
    if rank == 0:
        os.makedirs(folder, exist_ok=True)
    dist.barrier()
    torch.save(optimizer, os.path.join(folder, f"optimizer_{rank}.pt"))

def save_own(folder, optimizer, rank):
    if rank == 0:
        os.makedirs("logs", exist_ok=True)
        os.makedirs(folder, exist_ok=True)
        torch.save(optimizer, os.path.join(folder, f"optimizer_{rank}.pt"))
    os.makedirs(folder, exist_ok=True)
    torch.save(optimizer, os.path.join(folder, f"optimizer_{rank}.pt"))

def save_parts(folder, parts, rank):
    if rank == 0:
        os.makedirs(folder, exist_ok=True)
    for name, part in parts.items():
        if rank != 0:
            continue
        torch.save(part, os.path.join(folder, f"{name}" if name else "part"))
"""
            }
        ),
        Example(
            {
                "train.py": """\
import os
import torch
import torch.distributed as dist

def main(model, path):
    dist.init_process_group("nccl")
    if dist.get_rank() == 0:
        os.makedirs("runs")
        torch.save(model.state_dict(), path)
    dist.barrier()
    state = torch.load(path)
    if dist.get_rank() == 0:
        torch.save(state, "last.pt")
        state = torch.load("last.pt")
    print(os.listdir("data"))
"""
            }
        ),
        Example(
            {
                "train.py": """\
import os
import shutil
import torch
import torch.distributed as dist

def main(results, cache, work, other):
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    if rank == 0:
        shutil.rmtree(results)
    dist.barrier()
    os.makedirs(results, exist_ok=True)
    if rank == 0:
        os.makedirs(cache, exist_ok=True)
    os.makedirs(cache, exist_ok=True)
    with open(cache + "/config.json") as file:
        print(file)
    if rank == 0:
        shutil.rmtree(work)
    torch.load(other)
    state = torch.load(work2 + "/state.pt")
    dist.barrier()
    if rank == 0:
        shutil.rmtree(other)
    return state
"""
            }
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if isinstance(node, ast.FunctionDef) and not file.is_test:
            for one in handovers(node, file, lambda call: _may_meet(call, file)):
                place, note = file.place(one.read), Note("it is made here", file.place(one.made))
                sure: Confidence = "high" if one.sure else "low"
                yield self.finding(place, file.symbol(one.read), one.what, notes=[note], confidence=sure)
        found = filled_early(node, file, lambda call: _may_meet(call, file)) if isinstance(node, ast.Call) else None
        if found is not None and not file.is_test:
            note = Note("rank 0 makes it here", file.place(node))
            place = file.place(found.read)
            yield self.finding(place, file.symbol(found.read), found.what, cluster=NO_FOLDER, notes=[note])

    def check(self, program: Program) -> Iterator[Finding]:
        said = set()
        for _, events in groupby(_by_entry(program), key=root):
            together = sorted(events, key=when)
            for at, event in enumerate(together):
                before = (one for one in together[:at] if one.passed == event.passed and not apart(one, event))
                before = (one for one in before if not awaited(one, event, program.facts.lines))
                found = next((why for earlier in before if (why := _races(earlier, event, together))), None)
                if found is not None and (event.function, event.target) not in said:
                    said.add((event.function, event.target))
                    place, note, message = found
                    told = self.found(event if place is event else place, message, cluster=harm(message), notes=(note,))
                    begun = {event.place, note.place} <= program.first_alone  # over before there is anybody else
                    late = harm(message) is NO_FOLDER and loads_between(note.place, event, program.facts.lines)
                    yield replace(told, confidence="low") if begun or late else told


def _by_entry(program: Program) -> list[Event]:
    """Return what rank 0 alone, or all ranks, do to paths, by the entry that leads there."""
    kinds = {*_MAKES, *_USES, "delete", "moved"}
    done = (*program.effects(*kinds), *program.sources("listing"))
    seen = (e for e in done if e.active and e.spelled and not e.ordered)
    return sorted((e for e in seen if e.everyone or e.roles == {"first"}), key=root)


def _races(earlier: Event, later: Event, around: list[Event]) -> tuple[Event, Note, str] | None:
    """Return what is wrong between two effects with no meeting between them: where, what else, and why."""
    first, then, one, other = earlier.roles == {"first"}, later.roles == {"first"}, _kind(earlier), _kind(later)
    outer, inner = earlier.spelled, later.spelled
    if earlier.per_process:
        return _gathers(earlier, later) if then and not later.per_process else None
    if first and later.everyone and other in _USES:
        made = one in (*_FOLDERS, "tracker") and other in ("file", "append", "checkpoint")
        note = Note("rank 0 makes the folder here", earlier.place)
        if made and within(inner, outer) and not _made_by_all(outer, around):
            return later, note, f"every rank uses {later.target} while rank 0 may not have made its folder yet"
        if one in _FOLDERS and later.name in _LISTS and inner == outer and not _made_by_all(outer, around):
            return later, note, f"every rank lists {earlier.target} while rank 0 may not have made it yet"
        if later.per_process:
            return None
        if one in _FILLED and other in _READS and (inner == outer or (one in _WHOLE and within(inner, outer))):
            note = Note("rank 0 makes it here", earlier.place)
            return later, note, f"every rank reads {later.target} while rank 0 may still write it"
        if (
            other == "listing"
            and one in _FILLED
            and is_listed(earlier.spelled, inner, many=earlier.looped or one == "download")
        ):
            note = Note("rank 0 makes it here", earlier.place)
            return later, note, f"every rank lists the folder of {earlier.target} while rank 0 may still fill it"
        if one == "delete" and other != "listing" and (inner == outer or within(inner, outer)):
            note = Note("rank 0 deletes or moves it here", earlier.place)
            return later, note, f"every rank uses {later.target} while rank 0 may still delete it"
    if then and other == "delete" and earlier.everyone and one in _READS and (inner == outer or within(outer, inner)):
        note = Note("every rank reads it here", earlier.place)
        return later, note, f"rank 0 deletes {later.target} while the other ranks may still read it"
    return None


def _kind(event: Event) -> str:
    return event.entry.kind if isinstance(event.entry, Effect | LocalQuery) else ""


def _gathers(earlier: Event, later: Event) -> tuple[Event, Note, str] | None:
    """Every rank writes a part, and rank 0 puts them together, or says that all is there."""
    outer, inner, other = earlier.spelled, later.spelled, _kind(later)
    if not earlier.everyone or _kind(earlier) not in ("checkpoint", "file"):
        return None
    note = Note("every rank writes its part here", earlier.place)
    if other in _READS and left_open(inner) == left_open(outer) != "*":
        return later, note, f"rank 0 reads {later.target} while the other ranks may still write theirs"
    if other == "delete" and later.name.rpartition(".")[2] in MOVES and within(outer, inner):
        return later, note, f"rank 0 moves {later.target} while the other ranks may still write their parts"
    folder, _, name = inner.rpartition("/")
    if other in ("file", "moved") and folder and within(outer, folder) and _SAYS_DONE.search(_WHOSE.sub("", name)):
        return later, note, f"rank 0 writes {later.target} while the other ranks may still write their parts"
    return None


def _made_by_all(folder: str, around: list[Event]) -> bool:
    """Whether every rank makes the folder for itself, or one in it, as ``save_pretrained`` does."""
    makes = (e.spelled for e in around if e.everyone and (_kind(e) in _FOLDERS or e.name.endswith("save_pretrained")))
    return any(made == folder or within(made, folder) for made in makes)


def _may_meet(call: ast.Call, file: File) -> bool:
    """The processes may meet in it."""
    called = function_called(call, file)
    if ast.unparse(call.func).endswith("cuda.synchronize"):  # for its own device
        return False
    return bool(_MEETS.search(tail_of(call))) or (called is not None and bool(_MEETS.search(ast.unparse(called))))
