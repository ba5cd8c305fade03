"""Where the reader of one process is given the size of a batch of all."""

from __future__ import annotations

import ast
import re

from allranks.check.sources.source import File
from allranks.check.tables.data import LOADERS
from allranks.check.tree.counts import Scale, mapped, meshed, scale
from allranks.check.tree.splits import splits
from allranks.check.tree.syntax import class_of, function_of, given, keyword, name_of, tail_of

READERS = ("DataLoader", "StatefulDataLoader", "batch", "padded_batch")
_GLOBAL = re.compile(r"(^|_)(global|total)_?(\w+_)?(batch|bs)", re.IGNORECASE)
# A file that cuts rows for the devices of this process.
_CUT = re.compile(r"\bshard\(|\bshard,|local_device_count|prefetch_to_device|pad_shard_unpad|shard_prng_key")


def oversized(call: ast.Call, file: File) -> Scale | str | None:
    """Return what says that the size given to a reader is that of all processes' batch; None if it is not so."""
    size = _size(call, file)
    if size is None or _is_dealt_later(call, file):
        return None
    found = scale(size, file)
    if found is not None and found.of_all:
        cuts = mapped(file) and not meshed(file) and bool(_CUT.search(file.text))
        return found if cuts or _deals(call, file) else None
    if found is None and _GLOBAL.search(_word(size)) and _deals(call, file):
        return ast.unparse(size)
    return None


def _word(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _size(call: ast.Call, file: File) -> ast.expr | None:
    if name_of(call, file) in LOADERS:
        return given(call, 1, "batch_size")
    if tail_of(call) in ("batch", "padded_batch") and isinstance(call.func, ast.Attribute):
        return given(call, 0, "batch_size")
    return keyword(call, "batch_size") if tail_of(call) in READERS else None


def _deals(call: ast.Call, file: File) -> bool:
    """The function (or class) that reads deals the data out by rank."""
    scopes = [scope for scope in (function_of(call, file), class_of(call, file)) if scope is not None]
    return any(splits(scope, file) for scope in scopes)


def _is_dealt_later(call: ast.Call, file: File) -> bool:
    """Rows are cut by rank out of batches: whoever does so reads the whole batch first."""
    scope = function_of(call, file) or file.tree
    return any(
        split.how == "block" or getattr(split.node, "lineno", 0) > (call.end_lineno or 0)
        for split in splits(scope, file)
    )
