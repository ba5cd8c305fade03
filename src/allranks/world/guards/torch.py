"""Guard torch.distributed: inside a section, an operation that needs other ranks of a group raises before it starts.

All collectives (``torch.distributed``, functional, DTensor, FSDP, DDP's C++ reducer) end as dispatcher operations that
take a process group. A dispatch mode, active only in the section, sees all these operations. The creation of a group is
not an operation, so the function that all creators call first is wrapped, once. Point-to-point calls are allowed: one
sender and one receiver may be intended. Collectives of a group whose only rank is this one are allowed, too.

The mode follows the backward pass into autograd's threads, but not into threads that the user starts. It costs some
microseconds for each operation on a tensor.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from allranks.world.main_rank_section import MainRankSection, refuse_collective

_c10d: Any = dist.distributed_c10d
_NAMESPACES = {"c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "symm_mem"}
_GROUP_ARGUMENTS = {"process_group", "group_name"}
_POINT_TO_POINT = {"send", "recv_", "recv_any_source_", "isend", "irecv", "batch_p2p_ops"}


@contextmanager
def guard(section: MainRankSection) -> Iterator[None]:
    """Make collectives of torch.distributed raise CollectiveOnOneRank in this thread, while the ``with`` block runs."""
    if not dist.is_available():
        yield
        return
    _wrap_group_making()
    with _OperationWatch(section):
        yield


class _OperationWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that sees every operation on tensors, also in compiled code and in autograd's threads."""

    supports_higher_order_operators = True

    def __init__(self, section: MainRankSection) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._section = section

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        # Otherwise torch.compile gives a function up for ever that is first called in a section.
        return True

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "namespace", "") in _NAMESPACES and _needs_others(func, args, kwargs):
            refuse_collective(f"torch.distributed {func._schema.name.partition('::')[2].strip('_')}", self._section)
        # A tensor subclass (DTensor) does its collectives in its own dispatch: let it go first, with us still watching.
        if any(not kind.__module__.startswith("torch._subclasses") for kind in types):
            return NotImplemented
        return func(*args, **kwargs)


def _needs_others(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether an operation is a collective of a group of more than one rank."""
    if func._schema.name.partition("::")[2] in _POINT_TO_POINT:
        return False
    for position, argument in enumerate(func._schema.arguments):
        if argument.name in _GROUP_ARGUMENTS:
            group = args[position] if position < len(args) else kwargs[argument.name]
            return _group_size(group) > 1
    return False


def _group_size(group: Any) -> int:
    if isinstance(group, str):
        group = _c10d._resolve_process_group(group)
    if isinstance(group, torch.ScriptObject):
        group = dist.ProcessGroup.unbox(group)
    return int(group.size())


@functools.cache
def _wrap_group_making() -> None:
    """Make ``new_group``, ``split_group``, ``init_device_mesh``, ... raise in a section.

    All of them first take the next group's name. If only one rank took a name, its later names would differ from the
    other ranks' names.
    """
    original: Callable[..., Any] | None = getattr(_c10d, "_process_group_name", None)
    if original is None:
        warnings.warn(
            f"allranks does not know torch {torch.__version__}: new_group() on one rank is not refused, and may hang.",
            RuntimeWarning,
            stacklevel=2,
        )
        return

    @functools.wraps(original)
    def next_name(*args: Any, **kwargs: Any) -> Any:
        if dist.is_initialized() and dist.get_world_size() > 1:
            refuse_collective("torch.distributed new_group")
        return original(*args, **kwargs)

    _c10d._process_group_name = next_name
