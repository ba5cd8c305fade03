"""Learning rates that follow a score of which nothing in the file says that the processes have brought it together."""

from __future__ import annotations

import ast

from allranks.check.sources.source import File
from allranks.check.tree.origins import values
from allranks.check.tree.syntax import rank_guard, tail_of

# Who says one of these in a file brings scores together.
REDUCES = (
    *("all_reduce", "all_gather", "reduce(", "gather", "broadcast", "torchmetrics", "synchronize", "reduce_tensor"),
    *("pmean", "psum", "sync_", "allreduce", "reduce_dict", "reduce_mean"),
)


def steers_rate(call: ast.Call, file: File) -> bool:
    """``ReduceLROnPlateau(...).step(loss)`` where the data is dealt out and nothing is reduced."""
    if "ReduceLROnPlateau" not in file.text or "DistributedSampler" not in file.text or not call.args:
        return False
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "step" or rank_guard(call, file) is not None:
        return False
    made = values(call.func.value, file)
    plateau = any(isinstance(one, ast.Call) and tail_of(one) == "ReduceLROnPlateau" for one in made)
    return plateau and not any(word in file.text for word in REDUCES)
