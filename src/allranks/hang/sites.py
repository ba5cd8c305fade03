"""Find out from a Python stack what a thread does, for programs that do not stamp their phases."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from allranks.launch.hang_limits import CHECKPOINT, EVALUATION
from allranks.world.progress import PYTHON


class Frame(NamedTuple):
    """One frame of a stack: its file, function and line. ``users`` is whether the file belongs to the user."""

    file: str
    function: str
    line: int
    users: bool


# (part of a path, part of a function's name, phase): the first that fits a frame tells what it is in. Frames are tried
# from the innermost one out, up to the user's own.
_SIGNS = (
    ("/jax/_src/compiler.py", "", "compile"),
    ("/jax/_src/", "compile", "compile"),
    ("/torch/_inductor/", "", "compile"),
    ("/torch/_dynamo/", "compile", "compile"),
    ("/jax/_src/distributed.py", "", "exchange"),
    ("/jax/_src/array.py", "", "collective"),
    ("/jax/_src/api.py", "block_until_ready", "collective"),
    ("/jax/_src/interpreters/pxla.py", "__call__", "collective"),
    ("/jax/experimental/multihost_utils.py", "", "collective"),
    ("/allranks/world/together.py", "result", "exchange"),
    ("/allranks/world/torch.py", "wait", "exchange"),
    ("/torch/utils/data/", "", "data"),
    ("/torch/distributed/checkpoint/", "", "save"),
    ("/torch/serialization.py", "save", "save"),
    ("/torch/serialization.py", "load", "load"),
    ("/safetensors/", "save", "save"),
    ("/safetensors/", "load", "load"),
    ("/torch/distributed/rendezvous.py", "", "exchange"),
    ("/torch/distributed/", "", "collective"),
)

# The same for the stages of a training. Here all frames are tried: an evaluation calls the user's code.
_STAGE_SIGNS = (
    ("/torch/distributed/checkpoint/", "", CHECKPOINT.name),
    ("/torch/serialization.py", "save", CHECKPOINT.name),
    ("/torch/serialization.py", "load", CHECKPOINT.name),
    ("/orbax/checkpoint/", "", CHECKPOINT.name),
    ("/safetensors/", "save", CHECKPOINT.name),
    ("/safetensors/", "load", CHECKPOINT.name),
    ("/pytorch/loops/evaluation_loop.py", "", EVALUATION.name),
    ("/pytorch_lightning/loops/evaluation_loop.py", "", EVALUATION.name),
    ("/transformers/trainer.py", "evaluation_loop", EVALUATION.name),
)


def classify_stack(stack: Sequence[Frame]) -> tuple[str, str]:
    """Return the phase of a stack, given from its innermost frame outwards, and the call in that phase.

    The phase is ``python`` if it is unknown.

    >>> classify([Frame("/x/torch/distributed/distributed_c10d.py", "all_reduce", 3252, False)]) ('collective',
    'all_reduce')
    """
    for frame in stack:
        if frame.users:
            break
        for path, function, phase in () if frame.function == "<module>" else _SIGNS:
            if path in frame.file and function in frame.function:
                library = "of JAX" if "/jax/" in path else "of torch"
                return phase, library if frame.function.startswith("_") else frame.function
    return PYTHON, ""


def stage_of_stack(stack: Sequence[Frame]) -> str:
    """Return the stage of a training that a library's frames in a stack show; "" if none does."""
    stages = (_stage_of_frame(frame.file, frame.function) for frame in stack if not frame.users)
    return next(filter(None, stages), "")


@lru_cache(maxsize=4096)  # a stack is read once a second
def _stage_of_frame(file: str, function: str) -> str:
    signs = () if function == "<module>" else _STAGE_SIGNS
    return next((stage for path, name, stage in signs if path in file and name in function), "")


def innermost_users_line(stack: Sequence[Frame]) -> str:
    """Return the innermost line of the user's code in a stack, e.g. ``data.py:41 in next_batch``.

    Return the innermost line of any code if there is no code of the user.
    """
    frame = next((frame for frame in stack if frame.users), stack[0] if stack else None)
    return f"{frame.file}:{frame.line} in {frame.function}" if frame else ""
