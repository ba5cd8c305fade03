"""AR307: what is dealt out by number stands in another order on another process."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.program import Program
from allranks.check.rule import Example, LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tables.data import SAMPLERS
from allranks.check.tree.asked_there import Files
from allranks.check.tree.loaded_here import is_loaded_here
from allranks.check.tree.origins import function_called, origins, reached, values
from allranks.check.tree.splits import SPLITTERS, goes_through_all, handed, split_at, splits
from allranks.check.tree.syntax import bases_of, class_of, distributed, function_of, name_of, own, speaks_of, tail_of
from allranks.findings import Edit, Finding, Fix, Note

_LISTS = re.compile(r"(^|_)(glob|files|paths|shards|filenames)($|_)", re.IGNORECASE)
_NO_DATA = re.compile(r"(^|_)(logs?|trace|artifact|ckpt|checkpoint|weights)", re.IGNORECASE)
# Functions that give the items of what they are given at this position, in its order.
_ITEMS = {"list": 0, "tuple": 0, "filter": 1, "map": 1}
_NUMBERS = re.compile(r"ShardByJaxProcess|ShardOptions")
_LISTINGS = ("os.listdir", "glob.glob", "glob")
_LISTED = "the list of files is"
_ELSEWHERE = ", and a sampler of another file divides them"
_STORES = ("fs", "gfile", "gcs")  # object stores list in order


class UnorderedBeforeSplit(LocalRule):
    """
    ## What it does
    Finds an unsorted listing of a directory (`os.listdir`, `glob.glob`, `Path.glob`) that is divided by rank. Also one
    that a reader gets together with the rank and the number of ranks, that a dataset indexes, or from which Grain
    divides rows by number.

    ## Why is this bad
    The order of a listing is the file system's own: it differs between hosts, and between two runs on one host.

    ## What happens with N processes
    Item 7 is another file on another node. Some files are read twice and others never, without a message.

    ## Known problems
    If all processes list one shared file system, they often see one order, but nothing promises it. Not reported if all
    processes are started on one host and use an address of that host.

    ## Use instead
    `sorted(...)` around the listing.

    ## Fix safety
    Safe: `sorted` is put around `os.listdir(...)` or `glob.glob(...)`. Elsewhere (an iterator, a list that was stored
    before) there is no automatic fix.
    """

    code, name, severity, row = "AR307", "unordered-before-split", "warning", "data"
    cluster = "The same number means another file on another node: some data is read twice, some never."
    advice = "Put sorted(...) around the listing."
    words = ("listdir", "glob", "iterdir", "scandir")
    nodes = (ast.Call, ast.Subscript, ast.Compare)
    calls = (*_LISTINGS, "rglob", "iterdir", *SPLITTERS)
    bad = (
        Example(
            {
                "data.py": """\
import glob
import torch.distributed as dist

files = glob.glob("data/*.bin")
mine = files[dist.get_rank() :: dist.get_world_size()]
"""
            },
            at=(5,),
        ),
        Example(
            {
                "data.py": """\
import os
import torch.distributed as dist
from torch.utils.data import Dataset


class Images(Dataset):
    def __init__(self, root):
        self.files = os.listdir(root)

    def __getitem__(self, i):
        return self.files[i]
"""
            },
            at=(8,),
        ),
        Example(
            {
                "data.py": """\
import glob
import random
from reader import Packed


def loader(fabric, seed):
    names = glob.glob("data/*.bin")
    random.seed(seed)
    random.shuffle(names)
    return Packed(names, seed=seed, num_processes=fabric.world_size, process_rank=fabric.global_rank)
"""
            },
            at=(7,),
        ),
        # What a function returns; and a data set whose sampler stands elsewhere.
        Example(
            {
                "data.py": """\
import torch.distributed as dist
from pathlib import Path


def find(root):
    return [file for file in Path(root).rglob("*.npz") if file.stat().st_size]


files = find("data")
mine = files[dist.get_rank() :: dist.get_world_size()]
"""
            },
            at=(10,),
        ),
        Example(
            {
                "data.py": """\
import os


class Images(torch.utils.data.Dataset):
    def __init__(self, root):
        names = os.listdir(root)
        self.files = list(filter(is_image, names))

    def __getitem__(self, i):
        return self.files[i]
""",
                "train.py": """\
# torchrun --nnodes=4 --nproc-per-node=8 train.py
import torch.distributed as dist
from data import Images
from torch.utils.data import DistributedSampler

dist.init_process_group("nccl")
sampler = DistributedSampler(Images("data"))
""",
            },
            at=(6,),
        ),
    )
    good = (
        Example(
            {
                "data.py": """\
import glob
import os
import torch.distributed as dist
from torch.utils.data import Dataset

files = sorted(glob.glob("data/*.bin"))
mine = files[dist.get_rank() :: dist.get_world_size()]
print(len(os.listdir("data")))


class Images(Dataset):
    def __init__(self, root):
        self.files = os.listdir(root)
        self.files.sort()

    def __getitem__(self, i):
        return self.files[i]
"""
            }
        ),
        Example({"data.py": "import glob\n\nfor name in glob.glob('*'):\n    print(name)\n"}),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if isinstance(node, ast.Call) and _is_listing(node, file):
            if _sorted_around(node, file):
                return
            if _feeds_index(node, file):
                message = f"the data set numbers its files as {ast.unparse(node)} lists them, in no fixed order"
                message = message if distributed(file) else f"{message}{_ELSEWHERE}"
                yield self.local(file, node, message, fix=_sorted_fix(node, file))
            elif distributed(file) and _names_files(node, file):
                yield self.local(file, node, f"{_LISTED} {ast.unparse(node)}, in no fixed order")
            elif _feeds_numbered(node, file):
                message = f"the rows of {ast.unparse(node)}, which has no fixed order, are split by number"
                yield self.local(file, node, message, fix=_sorted_fix(node, file))
            else:
                yield from self._handed_on(node, file)
            return
        split = split_at(node, file)
        if split is None or "listing" not in origins(split.source, file) or _is_sorted(split.source, file):
            return
        if any(_is_listing(call, file) for call in _calls_behind(split.source, file)):
            fix = _sorted_fix(split.source, file)
            message = f"the order of {ast.unparse(split.source)}, split by rank, may differ from process to process"
            yield self.local(file, node, message, fix=fix)

    def stands(self, finding: Finding, program: Program) -> bool:
        if finding.message.startswith(_LISTED) and program.facts.nobody_calls(finding.symbol):
            return False
        if not finding.message.endswith(_ELSEWHERE):
            return not program.facts.one_host
        dealing = {event.place.path for event in program.calls(*SAMPLERS) if event.active}
        around = program.facts.around(finding.place.path) if dealing and program.facts.several_nodes else frozenset()
        dealt = not program.facts.one_host and not dealing.isdisjoint(around)
        return dealt and not _is_loaded_here(finding, program)

    def _handed_on(self, listing: ast.Call, file: File) -> Iterator[Finding]:
        """Look for a call that is given the list together with the rank."""
        for split in handed(function_of(listing, file) or file.tree, file):
            unordered = "listing" in origins(split.source, file) and not _is_sorted(split.source, file)
            if not unordered or goes_through_all(split.node, file):
                continue
            if any(part is listing for at in reached(split.source, file) for part in walk(at)):
                note = Note(f"{tail_of(split.node)} is given the rank", file.place(split.node))
                message = f"the order of {ast.unparse(split.source)}, split by rank, may differ from process to process"
                yield self.finding(file.place(listing), file.symbol(listing), message, notes=[note])
                return


def _is_loaded_here(finding: Finding, program: Program) -> bool:
    """Whether no other file speaks of the class of a data set, and its own gives it to loaders without a sampler."""
    path, kind = finding.place.path, finding.symbol.split(".")[-2]
    others, named = program.facts.around(path) - {path}, re.compile(rf"\b{kind}\b")
    file = Files(program.facts.lines).file(path)
    alone = not any(named.search(line) for one in others for line in program.facts.lines[one])
    return alone and file is not None and is_loaded_here(kind, file)


def _calls_behind(source: ast.expr, file: File) -> Iterator[ast.Call]:
    """Yield the calls that a value comes from, also those in a function of this file that returns it unsorted."""
    calls = [n for at in reached(source, file) for n in walk(at) if isinstance(n, ast.Call)]
    yield from calls
    for function in dict.fromkeys(one for call in calls if (one := function_called(call, file)) is not None):
        returned = file.once("returned", function, lambda it: _returned(it, file))
        yield from (n for value in returned for n in walk(value) if isinstance(n, ast.Call))


def _sorted_around(call: ast.Call, file: File) -> bool:
    """``sorted(...)`` stands around it in its statement."""
    for parent in file.parents(call):
        if isinstance(parent, ast.Call) and tail_of(parent) in ("sorted", "natsorted"):
            return True
        if isinstance(parent, ast.stmt):
            return False
    return False


def _is_listing(call: ast.Call, file: File) -> bool:
    known = isinstance(call.func, ast.Attribute) and call.func.attr in ("glob", "rglob", "iterdir")
    known = known and not any(word in ast.unparse(call.func).lower() for word in _STORES)
    return name_of(call, file) in _LISTINGS or known


def _sorted_fix(listing: ast.expr, file: File) -> Fix | None:
    """Return the fix that sorts a listing where it stands, if it is a list."""
    if not isinstance(listing, ast.Call) or name_of(listing, file) not in _LISTINGS:
        return None
    return Fix("sorted(...)", (Edit(file.place(listing), f"sorted({ast.unparse(listing)})"),), safe=True)


def _feeds_index(call: ast.Call, file: File) -> bool:
    """It is stored as it is in an attribute that ``__getitem__`` of a torch dataset looks up by number."""
    owner, function = class_of(call, file), function_of(call, file)
    if owner is None or function is None or not any("Dataset" in base for base in bases_of(owner, file)):
        return False
    looked_up = file.once("looked up", owner, _looked_up)
    stored = {name for name in looked_up for v in file.bindings.get((owner, f".{name}"), ()) if _leads(v, call, file)}
    return bool(stored) and stored.isdisjoint(file.once("sorted attributes", owner, _sorted_attributes))


def _feeds_numbered(listing: ast.Call, file: File) -> bool:
    """It is given to a source of rows as it is, in a file that deals rows out by their number as Grain does."""
    if not _NUMBERS.search(file.text):
        return False
    calls = (at for at in own(function_of(listing, file) or file.tree) if isinstance(at, ast.Call) and at.args)
    sources = [call.args[0] for call in calls if tail_of(call).endswith("DataSource")]
    kept = (one for one in sources if "listing" in origins(one, file) and not _is_sorted(one, file))
    return any(part is listing for one in kept for at in reached(one, file) for part in walk(at))


def _looked_up(owner: ast.ClassDef) -> frozenset[str]:
    """Return the attributes that ``__getitem__`` looks up in."""
    getter = next((s for s in owner.body if isinstance(s, ast.FunctionDef) and s.name == "__getitem__"), None)
    nodes = own(getter) if getter is not None else ()
    return frozenset(n.value.attr for n in nodes if isinstance(n, ast.Subscript) and isinstance(n.value, ast.Attribute))


def _leads(value: ast.AST, call: ast.Call, file: File, depth: int = 3) -> bool:
    """``value`` is the listing, as it is, as a list, or items of it; or a function of this file returns that."""
    if value is call:
        return True
    if depth == 0:
        return False
    if isinstance(value, ast.Name):
        return any(_leads(one, call, file, depth - 1) for one in values(value, file)) and not _is_sorted(value, file)
    if isinstance(value, ast.Call):
        if (called := function_called(value, file)) is not None:
            returned = file.once("returned", called, lambda it: _returned(it, file))
            return any(_leads(one, call, file, depth - 1) for one in returned)
        place = _ITEMS.get(tail_of(value), len(value.args))
        return len(value.args) > place and _leads(value.args[place], call, file, depth)
    return (
        isinstance(value, ast.ListComp)
        and len(value.generators) == 1
        and _leads(value.generators[0].iter, call, file, depth)
    )


def _sorted_attributes(owner: ast.ClassDef) -> frozenset[str]:
    """Return the attributes of ``self.files.sort()`` and ``sorted(self.files)``."""
    found = set()
    for node in walk(owner):
        if isinstance(node, ast.Call):
            of = node.func.value if isinstance(node.func, ast.Attribute) and node.func.attr == "sort" else None
            of = node.args[0] if tail_of(node) in ("sorted", "natsorted") and node.args else of
            if isinstance(of, ast.Attribute):
                found.add(of.attr)
    return frozenset(found)


def _names_files(call: ast.Call, file: File) -> bool:
    """It is what a function returns whose name says that it lists files for somebody else."""
    function = function_of(call, file)
    if function is None or file.path.endswith("setup.py") or not _LISTS.search(function.name):
        return False
    if _NO_DATA.search(function.name) or speaks_of(call, _NO_DATA):
        return False
    if splits(file.tree, file):  # it is not by this list that data is dealt out here
        return False
    return any(_leads(value, call, file) for value in file.once("returned", function, lambda it: _returned(it, file)))


def _returned(function: ast.AST, file: File) -> tuple[ast.AST, ...]:
    """Return what a function may return, unless it sorts it."""
    results = [n.value for n in own(function) if isinstance(n, ast.Return) and n.value is not None]
    results = [result for result in results if not _counts(result, function, file) and tail_of(result) != "set"]
    if any(_is_sorted(result, file) for result in results):
        return ()
    found = tuple(value for result in results for value in reached(result, file))
    return () if any(_sorts(value) for value in found) else found


def _sorts(value: ast.AST) -> bool:
    return isinstance(value, ast.Call) and tail_of(value) in ("sorted", "natsorted")


def _counts(result: ast.AST, function: ast.AST, file: File) -> bool:
    """It is how many there are: ``len(files)``, or an entry of a list that is filled with such numbers."""
    if isinstance(result, ast.Call):
        return tail_of(result) == "len"
    if not isinstance(result, ast.Subscript) or not isinstance(result.value, ast.Name):
        return False
    filled = [
        at.args[0]
        for at in own(function)
        if isinstance(at, ast.Call) and tail_of(at) == "append" and at.args and _receiver(at) == result.value.id
    ]
    return bool(filled) and all(_counts(one, function, file) for one in filled)


def _receiver(call: ast.Call) -> str:
    return ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""


def _is_sorted(source: ast.expr, file: File) -> bool:
    """``source.sort()`` stands in its function; or it is a value of a dictionary whose values are sorted there."""
    scope = function_of(source, file) or file.tree
    names = file.once("sorted", scope, _sorted_names)
    name, loops = ast.unparse(source), (parent for parent in file.parents(source) if isinstance(parent, ast.For))
    held = next((at.iter for at in loops if any(ast.unparse(part) == name for part in walk(at.target))), None)
    whole = held.func.value if isinstance(held, ast.Call) and isinstance(held.func, ast.Attribute) else None
    return name in names or (whole is not None and f"{ast.unparse(whole)}[]" in names)


def _sorted_names(scope: ast.AST) -> frozenset[str]:
    calls = (n.func for n in own(scope) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute))
    sorts = {ast.unparse(function.value) for function in calls if function.attr == "sort"}
    entered = (n for n in own(scope) if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Subscript))
    for one in entered:
        if isinstance(one.value, ast.Call) and tail_of(one.value) in ("sorted", "natsorted"):
            sorts |= {f"{ast.unparse(at.value)}[]" for at in one.targets if isinstance(at, ast.Subscript)}
    return frozenset(sorts)
