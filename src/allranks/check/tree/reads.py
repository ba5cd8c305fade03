"""Where the training data of a program of JAX is read."""

from __future__ import annotations

import ast
import re

from allranks.check.sources.source import File
from allranks.check.tables.data import HELD_OUT, LOADERS
from allranks.check.tree.syntax import calls_of, function_of, is_called, keyword, name_of, speaks_of, tail_of

_PIPELINES = frozenset(
    [
        *("tensorflow_datasets.load", "tensorflow_datasets.data_source", "datasets.load_dataset"),
        *("tensorflow.data.TFRecordDataset", "tensorflow.data.Dataset.list_files", "datasets.load_from_disk"),
        *("tensorflow.data.Dataset.from_tensor_slices", "grain.python.MapDataset.source", "grain.MapDataset.source"),
        *LOADERS,
    ]
)
_ARRAYS = frozenset({"numpy.load", "numpy.memmap"})
_BUILDER = "as_dataset"
READERS = (*sorted(name.rpartition(".")[2] for name in _PIPELINES | _ARRAYS), _BUILDER)
# What is read is data to train on, by its name or that of the file; and what is no rows of it.
_ROWS = re.compile(
    r"(?i)(^|[_/.])(x|y|xs|ys|data|dataset|images?|labels?|tokens?|train\w*|inputs?|targets?|texts?|ids)($|[_/.\d])"
)
_OTHER = re.compile(
    r"(?i)stat|mean|std|norm|embed|weight|ckpt|checkpoint|param|pretrain|vocab|fid|meta|table|cache|token_?iz"
)
_DRAWN_ALONE = re.compile(
    r"(np|numpy)\.random\.(rand|choice|permutation|shuffle)|default_rng\(\)|RandomState\(\)|^import random$", re.M
)


def is_first_read(call: ast.Call, file: File) -> bool:
    """Whether ``call`` is the first in its function to read rows to train on, which no process draws by itself."""
    around = function_of(call, file) or file.tree
    first = file.once("first read", around, lambda it: _first(it, file))
    return call is first and not file.is_test


def _first(around: ast.AST, file: File) -> ast.Call | None:
    found = (call for word in READERS for call in calls_of(file).get(word, ()) if _reads(call, file))
    ours = [call for call in found if (function_of(call, file) or file.tree) is around]
    return min(ours, key=lambda call: (call.lineno, call.col_offset), default=None)


def _reads(call: ast.Call, file: File) -> bool:
    function, name, split = function_of(call, file), name_of(call, file), keyword(call, "split")
    apart = is_called(call, HELD_OUT, file) or (split is not None and speaks_of(split, HELD_OUT))
    if apart or (function is not None and HELD_OUT.search(function.name)):
        return False
    if name in _ARRAYS:
        return _holds_rows(call, file) and not _DRAWN_ALONE.search(file.text)
    return name in _PIPELINES or (tail_of(call) == _BUILDER and "tensorflow_datasets" in file.text)


def _holds_rows(call: ast.Call, file: File) -> bool:
    """``self.x = np.load(path + "/x.npy", mmap_mode="r")``"""
    if is_called(call, _OTHER, file):
        return False
    return keyword(call, "mmap_mode") is not None or tail_of(call) == "memmap" or is_called(call, _ROWS, file)
