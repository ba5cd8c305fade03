"""What some ranks hand over to others through files in one function, with no meeting between: by the names of calls.

The interpreted program knows the calls of the tables and follows paths from function to function; here names are taken
for what they say (``prepare_data``, ``load_index``), and what goes through a list of paths is seen as it stands.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import function_called, reached, values
from allranks.check.tree.splits import by_rank
from allranks.check.tree.syntax import (
    Function,
    arguments,
    blocks,
    calls_of,
    function_of,
    inside,
    is_constant,
    keyword,
    leaves,
    name_of,
    own,
    rank_guard,
    speaks_of,
    tail_of,
)

Meets = Callable[[ast.Call], bool]

# What writes -> what reads the same, by documented names or the last part of a method.
_FORMATS = {
    "numpy.save": "numpy.load",
    "numpy.savez": "numpy.load",
    "torch.save": "torch.load",
    "joblib.dump": "joblib.load",
    "open": "open",
    "to_csv": "read_csv",
    "to_parquet": "read_parquet",
    "to_json": "read_json",
    "save_file": "load_file",
    "save_to_disk": "load_from_disk",
    "save_pretrained": "from_pretrained",
}
_SECOND = ("torch.save", "save_file", "joblib.dump")  # the path comes after what is written
_MAKES = re.compile(
    r"^_*(save|write|dump|download|prepare|pre_?process|convert|export|generate|extract|merge|fetch|unpack|import_from|"
    r"urlretrieve|copy(file|tree|2)?$|to_(csv|json|parquet|disk)$)|_(save|dump|download)$"
)
_READS = re.compile(
    r"^_*(load|read|restore|from_(pretrained|file|disk|json|checkpoint)|open$)|_load$|_from_(file|disk)$"
)
_PATH = re.compile(
    r"path|dir$|dir_|_file$|file_?name|folder|ckpt|checkpoint|cache|fname|root$|dest|location|tmp|out(put)?$", re.I
)
_PREPARES = re.compile(
    r"^_*(download|pre_?process|prepare_(data|input|corpus|cache|vocab|file)|convert|extract|tokenize_|compile_|"
    r"(build|create|generate|make)_(\w+_)?(data|dataset|datasets|index|indices|vocab|cache|corpus|files)$)"
)
# A file or folder that is written down.
_FILE = re.compile(
    r"^[\w./~-]*(/[\w.-]+|\w\.(json|jsonl|txt|csv|pt|pth|pkl|npy|npz|bin|yaml|model|safetensors|parquet|h5))/?$"
)
# What makes a folder with all that is in it; what reads all files of one.
_UNPACKS = re.compile(r"^(extract(all)?|unpack_archive|copytree|snapshot_download)$")
_LOOKS_IN = re.compile(
    r"^(listdir|scandir|walk|i?glob|rglob|iterdir|make_archive)$|^[A-Z]\w*(Dataset|Folder|DataModule)$|"
    r"^(calculate|compute|get|evaluate)_\w*(fid|metric|score)|^fid$|_given_paths$|_from_\w*(folder|dir)s?$|"
    r"^_?(create_npz|merge|collect|combine|aggregate|concat)(_|$)"
)
_USES = re.compile(r"^_*(load|read|train|fit|get_(data|loader)|(build|create|make)_(\w+_)?(data_?loaders?|datasets?)$)")
_FETCHES = re.compile(r"^_*(download|fetch|urlretrieve|snapshot_download|hf_hub_download)|_download$")
_TURNS = re.compile(r"first|lock|synchron|barrier|turns|sequential", re.IGNORECASE)
_ONE = re.compile(r"main|master|chief|primary|zero|rank_?0|== ?0\b")
_NOT_ONE = re.compile(r"!=|\bnot |> ?0")


@dataclass(frozen=True, slots=True)
class Handover:
    """``read`` comes to what ``made`` may not have finished. ``sure``: both name one path."""

    made: ast.Call
    read: ast.AST
    what: str
    sure: bool


def handovers(function: Function, file: File, meets: Meets) -> Iterator[Handover]:
    """Yield what is handed over in ``function``; ``meets`` says whether the processes may meet in a call."""
    calls = [at for at in own(function) if isinstance(at, ast.Call)]
    calls.sort(key=lambda at: (at.lineno, at.col_offset))
    for at, made in enumerate(calls):
        tail = tail_of(made)
        downloads = is_constant(keyword(made, "download"), True)
        if not (downloads or _MAKES.search(tail) or _PREPARES.search(tail) or _known(made, file) in _FORMATS):
            continue
        if any(isinstance(p, ast.With) and _TURNS.search(ast.unparse(p.items[0])) for p, _ in inside(made, file)):
            continue
        test = rank_guard(made, file)
        if test is None:
            found = _of_all(made, calls[at + 1 :], file, meets) or _filled_by_all(made, calls[at + 1 :], file, meets)
        elif _ONE.search(text := ast.unparse(test)) and not _NOT_ONE.search(text):
            later = calls[at + 1 :]
            found = _downloaded(made, later, meets) if downloads else _of_one(made, later, file, meets)
            found = found or _given_on(made, later, function, file, meets)
        else:
            continue
        if found is not None:
            yield found


def _of_all(made: ast.Call, later: list[ast.Call], file: File, meets: Meets) -> Handover | None:
    """Every rank writes a part under a name of its own, and goes on to read all parts in a loop."""
    reads, path = _FORMATS.get(_known(made, file)), _path(made, file)
    if reads is None or path is None or not _writes(made) or not by_rank(path, file):
        return None
    for call in later:
        if meets(call):
            return None
        whole = call.args[0] if call.args and _known(call, file) == reads and not _opens_to_write(call) else None
        if whole is not None and not by_rank(whole, file) and goes_on(made, call, file) and _loops(call, made, file):
            rank_0 = rank_guard(call, file) is not None
            what = f"{'rank 0' if rank_0 else 'every rank'} reads the parts of all ranks while others may still write"
            return Handover(made, call, what, sure=True)
    return None


def _is_renewed(path: str, made: ast.Call, read: ast.Call, file: File) -> bool:
    """Another path is stored under this name between the two calls."""
    stores = (at for at in own(function_of(made, file) or file.tree) if isinstance(at, ast.Assign))
    between = (at for at in stores if made.lineno < at.lineno <= read.lineno)
    return any(ast.unparse(target) == path for at in between for target in at.targets)


def _filled_by_all(made: ast.Call, later: list[ast.Call], file: File, meets: Meets) -> Handover | None:
    """Every rank writes files of its own into a folder, and somebody goes on to look at all that is in it."""
    own_names = [one for one in _told(made) if by_rank(one, file)]
    folders = _filled(made, file) if own_names and _writes(made) else set[str]()
    for call in later if folders else ():
        if meets(call):
            return None
        if not (_LOOKS_IN.search(tail_of(call)) and goes_on(made, call, file)) or by_rank(call, file):
            continue
        if folder := _looked_in(call, folders):
            who = "rank 0" if rank_guard(call, file) is not None else "every rank"
            return Handover(made, call, f"{who} lists {folder} while others may still fill it", sure=True)
    return None


def _of_one(made: ast.Call, later: list[ast.Call], file: File, meets: Meets) -> Handover | None:
    """Rank 0 makes something, and all go on to read it."""
    tail = tail_of(made)
    given = [one for argument in _told(made) for one in (argument, *_other_names(argument, file))]
    paths = {ast.unparse(one) for one in given if _is_path(one)} if _MAKES.search(tail) else set()
    many = any(isinstance(p, ast.For | ast.AsyncFor | ast.While) for p, _ in inside(made, file))
    folders = (_filled(made, file) if many else set()) | (paths if _UNPACKS.search(tail) else set())
    prepares = bool(_PREPARES.search(tail)) and _is_statement(made, file)
    if not paths and not folders and not prepares:
        return None
    for call in later:
        if meets(call) or _waits(call, file):
            return None
        if rank_guard(call, file) is not None or not goes_on(made, call, file):
            continue
        path = _shared(call, paths) if _READS.search(tail_of(call)) and not _opens_to_write(call) else ""
        if path and not _is_renewed(path, made, call, file):
            return Handover(made, call, f"every rank reads {path} while rank 0 may still make it", sure=True)
        folder = _looked_in(call, folders) if _LOOKS_IN.search(tail_of(call)) else ""
        if folder and not _is_renewed(folder, made, call, file):
            what = f"every rank lists {folder} while rank 0 may still fill it"
            return Handover(made, call, what, sure=True)
        if prepares and _USES.search(tail_of(call)):
            what = f"every rank calls {tail_of(call)} while rank 0 may still be in {tail}"
            return Handover(made, call, what, sure=False)
    return None


def _told(made: ast.Call) -> list[ast.expr]:
    """Return what a call is given, of a copy alone where it goes."""
    return arguments(made)[1:] if tail_of(made).startswith("copy") else arguments(made)


def _filled(made: ast.Call, file: File) -> set[str]:
    """Return the folders that what a call writes lies in."""
    return set().union(*(_folders(one, file) for one in _told(made))) if _writes(made) else set()


def _other_names(node: ast.expr, file: File) -> list[ast.expr]:
    """Return what else a path is called: ``folder`` and ``other`` for ``kept = folder if ask() else other``."""
    stored = values(node, file) if isinstance(node, ast.Name) else []
    arms = [arm for one in stored for arm in ((one.body, one.orelse) if isinstance(one, ast.IfExp) else (one,))]
    return [one for one in arms if isinstance(one, ast.Name | ast.Attribute)]


def _folders(node: ast.expr, file: File) -> set[str]:
    """Return the folder of a path that is joined: of ``os.path.join(folder, name)``, ``folder / name``,
    ``f"{folder}/{name}"``, also under a name."""
    found: set[str] = set()
    for at in (node, *values(node, file)):
        head: ast.AST | None = None
        if isinstance(at, ast.Call) and tail_of(at) == "join" and len(at.args) > 1:
            head = at.args[0]
        elif isinstance(at, ast.BinOp) and isinstance(at.op, ast.Div):
            head = at.left
        elif isinstance(at, ast.JoinedStr) and _begins_with_folder(at.values):
            head = at.values[0].value if isinstance(at.values[0], ast.FormattedValue) else None
        if isinstance(head, ast.Name | ast.Attribute) and _PATH.search(tail_of(head)):
            found.add(ast.unparse(head))
    return found


def _begins_with_folder(parts: list[ast.expr]) -> bool:
    return len(parts) > 1 and isinstance(parts[1], ast.Constant) and str(parts[1].value).startswith("/")


def _looked_in(call: ast.Call, folders: set[str]) -> str:
    """Return the one of ``folders`` that the call is given as it is, or of which it is given all files."""
    given = [*arguments(call), *([call.func.value] if isinstance(call.func, ast.Attribute) else [])]
    given += [one for at in given if isinstance(at, ast.List | ast.Tuple) for one in at.elts]
    given += [
        at.args[0] for at in given if isinstance(at, ast.Call) and tail_of(at) == "join" and "*" in ast.unparse(at)
    ]
    return next((text for text in map(ast.unparse, given) if text in folders), "")


def _downloaded(made: ast.Call, later: list[ast.Call], meets: Meets) -> Handover | None:
    """Rank 0 makes a data set and downloads it, and the others make the same."""
    for call in later:
        if meets(call):
            return None
        if tail_of(call) == tail_of(made) and not is_constant(keyword(call, "download"), True):
            what = f"every rank reads {tail_of(call)} while rank 0 may still download it"
            return Handover(made, call, what, sure=True)
    return None


def _given_on(made: ast.Call, later: list[ast.Call], function: Function, file: File, meets: Meets) -> Handover | None:
    """Rank 0 downloads something, and the function tells every rank where it is: for certain, where a call of it in
    this file meets nobody afterwards."""
    if not _FETCHES.search(tail_of(made)) or any(map(meets, later)):
        return None
    calls = [at for at in calls_of(file).get(function.name, ()) if function_called(at, file) is function]
    if calls and all(_is_followed(at, file, meets) for at in calls):
        return None
    given = (at for one in arguments(made) for at in reached(one, file))
    paths = {ast.unparse(at) for one in given for at in walk(one) if isinstance(at, ast.Name | ast.Attribute)}
    for at in (one for one in own(function) if isinstance(one, ast.Return) and one.lineno > made.lineno):
        told = at.value is not None and _is_path(at.value) and ast.unparse(at.value)
        if told and told in paths and goes_on(made, at, file) and rank_guard(at, file) is None:
            what = f"every rank uses {told} while rank 0 may still download it"
            return Handover(made, at, what, sure=bool(calls))
    return None


def _is_followed(call: ast.Call, file: File, meets: Meets) -> bool:
    """One rank alone makes the call, or the ranks may meet behind it."""
    around = own(function_of(call, file) or file.tree)
    later = (at for at in around if isinstance(at, ast.Call) and at.lineno > call.lineno)
    return rank_guard(call, file) is not None or any(map(meets, later))


def _known(call: ast.Call, file: File) -> str:
    name, tail = name_of(call, file), tail_of(call)
    return name if name in _FORMATS or name in _FORMATS.values() else tail


def _path(call: ast.Call, file: File) -> ast.expr | None:
    at = 1 if _known(call, file) in _SECOND else 0
    return call.args[at] if len(call.args) > at else None


def _opens_to_write(call: ast.Call) -> bool:
    mode = next((a.value for a in call.args[1:2] if isinstance(a, ast.Constant)), "r")
    return tail_of(call) == "open" and isinstance(mode, str) and mode[:1] in ("w", "a", "x")


def _writes(call: ast.Call) -> bool:
    return tail_of(call) != "open" or _opens_to_write(call)


def _is_path(node: ast.expr) -> bool:
    if "pretrained" in ast.unparse(node):  # what is read to make something
        return False
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and bool(_FILE.search(node.value))
    if isinstance(node, ast.Name | ast.Attribute):
        return bool(_PATH.search(tail_of(node)))
    joins = isinstance(node, ast.Call) and tail_of(node) in ("join", "Path")
    return joins or (isinstance(node, ast.BinOp | ast.JoinedStr) and speaks_of(node, _PATH))


def _shared(call: ast.Call, paths: set[str]) -> str:
    """Return the one of ``paths`` that the call is given, or a part of what it is given."""
    texts = (ast.unparse(at) for given in arguments(call) for at in walk(given) if isinstance(at, ast.expr))
    return next((text for text in texts if text in paths), "")


def _is_statement(call: ast.Call, file: File) -> bool:
    return isinstance(next(file.parents(call), None), ast.Expr)


def _waits(call: ast.Call, file: File) -> bool:
    """It stands in a loop that waits, or in its condition."""
    return tail_of(call) == "sleep" or any(isinstance(p, ast.While) and c is p.test for p, c in inside(call, file))


def goes_on(made: ast.AST, read: ast.AST, file: File) -> bool:
    """A process that comes to ``made`` may come to ``read`` afterwards: no other branch, no return between."""
    for parent, child in inside(made, file):
        block = next((b for b in blocks(parent) if child in b), None)
        if any(at is read for at in walk(parent)):
            return block is None or any(at is read for part in block for at in walk(part))
        if block is not None and leaves(block):
            return False
    return True


def _loops(read: ast.Call, made: ast.Call, file: File) -> bool:
    """``read`` stands in a loop of its own."""
    around = {id(parent) for parent in file.parents(made)}
    kinds = (ast.For, ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.SetComp)
    return any(isinstance(p, kinds) and id(p) not in around for p, _ in inside(read, file))
