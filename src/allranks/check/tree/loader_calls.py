"""What a file does with a loader of data that it makes."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tables.data import LOADERS, OF_ALL, SUBSETS
from allranks.check.tree.epochs import is_held_out
from allranks.check.tree.origins import function_called, latest, may_be_skipped, names_ranks, origins, reached, values
from allranks.check.tree.splits import by_rank, handed_at, split_at, splits
from allranks.check.tree.syntax import (
    bases_of,
    calls_of,
    class_of,
    function_of,
    given,
    has_stars,
    inside,
    is_constant,
    keyword,
    name_of,
    own,
    speaks_of,
    tail_of,
)

# Somebody in this file thinks about who reads what.
SPLITS = re.compile(
    r"(?<!Random)(?<!Sequential)Sampler|split_dataset|\.shard\(|num_shards|num_replicas|worker_info|\[\s*(\w+\.)*\w*rank\s*::|prepare_data_loader|"
    r"accelerat|lightning|deepspeed|webdataset|StreamingDataset|process_index|\bsplit_by_"
)
_WRAPPERS = (
    *("torch.nn.parallel.DistributedDataParallel", "torch.distributed.fsdp.FullyShardedDataParallel"),
    "horovod.DistributedOptimizer",  # it averages what each has of a model
)
_TRAINS = re.compile(r"(^|_)train")
_MODELS = ("prepare", "setup", "setup_module", "prepare_model")
_PREPARES = (
    *("setup_dataloaders", "prepare_data_loader", "_setup_dataloaders", "setup_dataloader"),
    *_MODELS,
)
_PARTS = re.compile(r"rank|shard|world_size|num_processes|process_index|Distributed")
_DEALS = re.compile(
    r"split_dataset_by|\.shard\(|num_replicas|world_size|process_index|get_rank|accelerat|webdataset|tensorflow|prepare\("
)
_RANK_OF, _RANKS_OF = (
    re.compile(r"^(\w+_)?(rank|shard_(id|index))$"),
    re.compile(r"^(comm|world|dp|mpi)_size$|^num_(replicas|shards|ranks)$"),
)
_LOOKS_AT = ("skip_first_batches", "len", "enumerate", "tqdm", "iter", "print", "ceil", "progress_bar")


def trains_in_order(loader: ast.Call, file: File) -> bool:
    """A loader of training data without an order of its own, which makes its batches."""
    if is_constant(given(loader, 1, "batch_size"), None):
        return False
    if any(keyword(loader, name) is not None for name in ("shuffle", "sampler", "batch_sampler")) or not loader.args:
        return False
    above = next(file.parents(loader), None)
    return isinstance(above, ast.Assign) and any(speaks_of(t, _TRAINS) for t in (*above.targets, loader.args[0]))


def picks_of_all(loader: ast.Call, file: File) -> bool:
    """Its sampler draws each of all samples once, in every process; what gives whole batches may deal these out."""
    sampler = None if is_constant(given(loader, 1, "batch_size"), None) else keyword(loader, "sampler")
    made = [] if sampler is None else latest(sampler, file) or [sampler]
    return bool(made) and all(
        isinstance(one, ast.Call) and name_of(one, file) in OF_ALL and keyword(one, "replacement") is None
        for one in made
    )


def prepared_without(loader: ast.Call, file: File) -> ast.Call | None:
    """Return where a function, or a class without kin, prepares its model, if it goes over this loader as it is."""
    above, function = next(file.parents(loader), None), function_of(loader, file)
    if function is None or not isinstance(above, ast.Assign) or len(above.targets) > 1:
        return None
    target, scope = above.targets[0], _known_in(above.targets[0], function, file)
    if scope is None:
        return None
    name, nodes = ast.unparse(target), walk(scope) if isinstance(scope, ast.ClassDef) else list(own(scope))
    prepared = [at for at in nodes if isinstance(at, ast.Call) and tail_of(at) in _PREPARES]
    model = next((at for at in prepared if tail_of(at) in _MODELS and at.args and not _names(at, name)), None)
    called = _also_called(name, nodes)
    gone_over = any(isinstance(at, ast.For | ast.AsyncFor) and _is_over(at.iter, called) for at in nodes)
    handed_on = any(
        isinstance(at, ast.Call) and _is_handed(at, called) and tail_of(at) not in _LOOKS_AT and at not in prepared
        for at in nodes
    )
    own_one = gone_over and not handed_on and not any(_names(at, one) for at in prepared for one in called)
    return model if own_one else None


def _known_in(target: ast.expr, function: ast.AST, file: File) -> ast.AST | None:
    """Return all that may go over what is stored: the function, or for an attribute its class, if that has no kin."""
    if isinstance(target, ast.Name):
        return function
    owner, name = class_of(target, file), tail_of(target)
    if owner is None or ast.unparse(target) != f"self.{name}":
        return None
    kin = any(tail_of(base) != "object" for base in owner.bases)
    return None if kin or f".{name}" in file.text.replace(f"self.{name}", "") else owner


def _also_called(name: str, nodes: Sequence[ast.AST]) -> frozenset[str]:
    """Return the names of a loader: ``batches = skip_first_batches(loader, n) if n else loader``."""
    stored = (at for at in nodes if isinstance(at, ast.Assign) and isinstance(at.targets[0], ast.Name))
    ways = ((ast.unparse(at.targets[0]), way) for at in stored for way in _ways(at.value))
    return frozenset({name, *(other for other, way in ways if ast.unparse(way) == name)})


def _ways(value: ast.expr) -> tuple[ast.expr, ...]:
    return (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,)


def _is_handed(call: ast.Call, names: Collection[str]) -> bool:
    """Whether a call is given the loader itself, and not its length."""
    parts = [*call.args, *(k.value for k in call.keywords)]
    inside = [at for part in parts for at in (part.elts if isinstance(part, ast.Tuple | ast.List) else [part])]
    return any(ast.unparse(at) in names for at in inside if isinstance(at, ast.Name | ast.Attribute))


def sampler_left_out(loader: ast.Call, file: File) -> ast.Call | None:
    """Return the distributed sampler of this loader's data set, which no loader of its function is given."""
    function = function_of(loader, file)
    if function is None or not loader.args or keyword(loader, "sampler") or keyword(loader, "batch_sampler"):
        return None
    nodes = list(own(function))
    if any(isinstance(at, ast.Call) and at is not loader and _is_loader_of(at, loader.args[0], file) for at in nodes):
        return None
    made = [at for at in nodes if isinstance(at, ast.Call) and tail_of(at) == "DistributedSampler" and at.args]
    mine = [at for at in made if ast.dump(at.args[0]) == ast.dump(loader.args[0])]
    certain = mine and not any(may_be_skipped(at, file) for at in (*mine, loader))
    forgotten = mine and not may_be_skipped(loader, file) and all(_is_forgotten(at, nodes, file) for at in mine)
    return mine[0] if certain or forgotten else None


def _is_forgotten(made: ast.Call, nodes: Sequence[ast.AST], file: File) -> bool:
    """Nothing reads the variable that it is stored in."""
    above = next(file.parents(made), None)
    target = above.targets[0] if isinstance(above, ast.Assign) else None
    if not isinstance(target, ast.Name):
        return False
    return not any(isinstance(at, ast.Name) and at.id == target.id and isinstance(at.ctx, ast.Load) for at in nodes)


def may_be_sampled(loader: ast.Call) -> bool:
    """What is passed on may be a sampler, but beside `shuffle=True`, which bears none; or it makes one (dgl)."""
    if (several := keyword(loader, "use_ddp")) is not None and not is_constant(several, False):
        return True
    return has_stars(loader) and not is_constant(keyword(loader, "shuffle"), True)


def takes_a_share(loader: ast.Call, file: File) -> bool:
    """It may shuffle and has no sampler, and its batch is that of all processes divided by their number."""
    shuffle, size = keyword(loader, "shuffle"), given(loader, 1, "batch_size")
    if shuffle is None or is_constant(shuffle, False) or size is None:
        return False
    ways = [size, *values(size, file)]
    divided = (at for at in ways if isinstance(at, ast.BinOp) and isinstance(at.op, ast.FloorDiv))
    sampled = any(keyword(loader, name) is not None for name in ("sampler", "batch_sampler"))
    return not sampled and any(origins(at.right, file) == {"size"} for at in divided)


def _is_loader_of(call: ast.Call, data: ast.expr, file: File) -> bool:
    return name_of(call, file) in LOADERS and bool(call.args) and ast.dump(call.args[0]) == ast.dump(data)


def _names(call: ast.Call, name: str) -> bool:
    parts = (*call.args, *(k.value for k in call.keywords))
    named = (at for part in parts for at in walk(part) if isinstance(at, ast.Name | ast.Attribute))
    return any(ast.unparse(at) == name for at in named)


def _is_over(source: ast.expr, names: Collection[str]) -> bool:
    """``loader``, ``enumerate(loader)``, ``tqdm(loader)``."""
    while isinstance(source, ast.Call) and source.args:
        source = source.args[0]
    return isinstance(source, ast.Name | ast.Attribute) and ast.unparse(source) in names


def trainers_own(method: ast.FunctionDef, file: File) -> ast.Call | None:
    """Return the loader that a heir of transformers' trainer makes for its training, if it has no sampler, and nothing
    in the method prepares it or speaks of the parts of processes, nor in the class what it keeps."""
    owner = class_of(method, file)
    if method.name != "get_train_dataloader" or owner is None or "transformers" not in file.text:
        return None
    calls = [at for at in own(method) if isinstance(at, ast.Call)]
    heir = any(tail_of(base).endswith("Trainer") for base in owner.bases)
    if not heir or any(tail_of(at) in _PREPARES for at in calls) or speaks_of(method, _PARTS):
        return None
    given_back = [at.value for at in own(method) if isinstance(at, ast.Return) and at.value is not None]
    kept = [ast.unparse(one) for one in given_back if isinstance(one, ast.Attribute)]
    prepared = (at for at in walk(owner) if kept and isinstance(at, ast.Call) and tail_of(at) in _PREPARES)
    if any(_names(at, one) for at in prepared for one in kept):
        return None
    made = [at for one in given_back for at in (one, *values(one, file)) if isinstance(at, ast.Call)]
    return next((at for at in made if _is_unsampled(at, file)), None)


def _is_unsampled(call: ast.Call, file: File) -> bool:
    if has_stars(call) or any(keyword(call, name) is not None for name in ("sampler", "batch_sampler")):
        return False
    return name_of(call, file) in LOADERS or is_constant(keyword(call, "shuffle"), True)


def is_stream(loader: ast.Call, file: File) -> bool:
    """The data is an instance of an iterable data set of this file, or a stream of Hugging Face."""
    if _is_of_stream(loader, file):
        return True
    made = [loader.args[0], *values(loader.args[0], file)] if loader.args else []
    names = {tail_of(one) for one in made if isinstance(one, ast.Call)}
    classes = (n for n in file.nodes if isinstance(n, ast.ClassDef) and n.name in names)
    return any(base.endswith("IterableDataset") for owner in classes for base in bases_of(owner, file))


def streams_undealt(loader: ast.Call, file: File) -> bool:
    """The training data is a stream of Hugging Face, and nothing in its file speaks of the parts of processes."""
    sampled = any(keyword(loader, name) is not None for name in ("sampler", "batch_sampler"))
    return (
        not sampled and _is_of_stream(loader, file) and not is_held_out(loader, file) and not _DEALS.search(file.text)
    )


def _is_of_stream(loader: ast.Call, file: File) -> bool:
    data = [loader.args[0], *values(loader.args[0], file)] if loader.args else []
    return any(_is_streamed(at) for way in data for one in reached(way, file) for at in walk(one))


def _is_streamed(node: ast.AST) -> bool:
    """``load_dataset(..., streaming=True)``, ``rows.to_iterable_dataset()``, ``rows.shuffle(buffer_size=1000)``"""
    if not isinstance(node, ast.Call):
        return False
    streaming = keyword(node, "streaming")
    loaded = tail_of(node) == "load_dataset" and streaming is not None and not is_constant(streaming, False)
    buffered = tail_of(node) == "shuffle" and keyword(node, "buffer_size") is not None
    return tail_of(node) == "to_iterable_dataset" or loaded or buffered


def strides(file: File) -> bool:
    """Whether a file takes every N-th of something from a number on, and asks for no worker by which it might do so:
    ``files[me::count]``."""
    if "get_worker_info" in file.text:
        return False
    slices = (at.slice for at in file.kinds.get(ast.Subscript, ()) if isinstance(at, ast.Subscript))
    bounds = ((at.lower, at.step) for at in slices if isinstance(at, ast.Slice))
    return any(all(isinstance(one, ast.Name | ast.Attribute | ast.Call) for one in pair) for pair in bounds)


def is_part(data: ast.expr, file: File) -> bool:
    """The data was dealt out by rank: here, in a function of this file that gives it, or by its own class."""
    if not names_ranks(file):
        return False
    ways = [data, *_handed_in(data, file)]
    made = [at for way in ways for one in reached(way, file) for at in walk(one)]
    kinds = {tail_of(at) for at in made if isinstance(at, ast.Call)}
    classes = (n for n in file.kinds.get(ast.ClassDef, ()) if isinstance(n, ast.ClassDef) and n.name in kinds)
    if any(splits(owner, file) for owner in classes):
        return True
    functions = (function_called(at, file) for at in made if isinstance(at, ast.Call))
    returned = (at.value for function in functions if function for at in own(function) if isinstance(at, ast.Return))
    made += [at for value in returned if value is not None for one in reached(value, file) for at in walk(one)]
    return any(split_at(at, file) or handed_at(at, file) or _is_own(at, file) for at in made)


def _handed_in(data: ast.expr, file: File) -> list[ast.expr]:
    """Return what the callers of its function in this file give for the parameters that the data is made of."""
    function = function_of(data, file)
    if not isinstance(function, ast.FunctionDef):
        return []
    names = {at.id for one in reached(data, file) for at in walk(one) if isinstance(at, ast.Name)}
    listed = [*function.args.posonlyargs, *function.args.args]
    places = [(i, one.arg) for i, one in enumerate(listed) if one.arg in names]
    calls = calls_of(file).get(function.name, [])
    found = (given(call, i, name) for call in calls if not has_stars(call) for i, name in places)
    return [one for one in found if one is not None]


def _is_own(node: ast.AST, file: File) -> bool:
    """``parts[rank]``, ``Subset(rows, range(rank * n, (rank + 1) * n))``"""
    if isinstance(node, ast.Subscript):
        return not isinstance(node.slice, ast.Slice) and (
            by_rank(node.slice, file) or tail_of(node.slice).endswith("rank")
        )
    return _is_own_subset(node, file) or _is_told_which(node)


def _is_told_which(node: ast.AST) -> bool:
    """``Data(files, comm_rank=comm_rank, comm_size=comm_size)``, whoever gives these numbers."""
    names = [k.arg or "" for k in node.keywords] if isinstance(node, ast.Call) else []
    return any(map(_RANK_OF.search, names)) and any(map(_RANKS_OF.search, names))


def _is_own_subset(node: ast.AST, file: File) -> bool:
    """``Subset(rows, range(rank * n, (rank + 1) * n))``"""
    place = SUBSETS.get(name_of(node, file)) if isinstance(node, ast.Call) else None
    return place is not None and isinstance(node, ast.Call) and by_rank(given(node, *place), file)


def wraps(file: File) -> bool:
    """Whether a file wraps a model for several processes, elsewhere than where there are never any."""
    calls = (at for at in file.kinds.get(ast.Call, ()) if isinstance(at, ast.Call) and name_of(at, file) in _WRAPPERS)
    return any(not _is_dead(call, file) for call in calls)


def _is_dead(node: ast.AST, file: File) -> bool:
    """It stands under ``world_size > 1``, and nothing but 1 is ever stored there."""
    tests = (above.test for above, child in inside(node, file) if isinstance(above, ast.If) and child in above.body)
    for test in tests:
        if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Gt) or len(test.ops) > 1:
            continue
        stored = values(test.left, file) if isinstance(test.left, ast.Name) else []
        if stored and all(is_constant(one, 1) for one in (*test.comparators, *stored)):
            return True
    return False
