"""Whether an exception came before its step had changed anything that a checkpoint holds, by where it was raised."""

from __future__ import annotations

import os
from types import TracebackType

# Parts of paths of code that only takes the next batch, computes gradients, or (JAX) returns new values.
_CHANGES_NOTHING = tuple(
    place.replace("/", os.sep)
    for place in (
        *("/torch/utils/data/", "/torchdata/", "/allranks/data/", "/grain/", "/datasets/", "/concurrent/futures/"),
        *("/torch/autograd/", "/jax/", "/jaxlib/"),
    )
)
# What takes something from another process, in multiprocessing and its copies: before a step, as a rule.
_MULTIPROCESSING = (f"{os.sep}multiprocessing{os.sep}", f"{os.sep}multiprocess{os.sep}")
_TAKES = frozenset(["get", "next", "__next__", "recv", "recv_bytes", "poll"])


def comes_before_a_change(error: BaseException) -> bool:
    """Return whether an exception was raised where a training loop has not changed its state yet.

    That is within a data loader, a queue that is read, a backward pass, or a computation of JAX. An optimizer's step or
    the program's own code may have changed weights in part.
    """
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if any(place in code.co_filename for place in _CHANGES_NOTHING):
            return True
        if code.co_name in _TAKES and any(place in code.co_filename for place in _MULTIPROCESSING):
            return True
        trace = trace.tb_next
    return False
