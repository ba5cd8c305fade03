"""Programs of one process, whatever else they were once made for: one model on several GPUs, by threads."""

from __future__ import annotations

import re
from collections.abc import Iterable

_COPIES = re.compile(r"\bDataParallel\(")
# What brings the gradients of several processes together, or may: a wrapper, a reduction, an engine, a trainer.
_SHARES = re.compile(
    r"(?i)DistributedDataParallel|\bDDP\b|FSDP|fully_?shard|deepspeed|reduce|accelerat|fabric|horovod|\bhvd\b|"
    r"colossalai|bagua|\bTrainer\(|average_(grad|param|model)|sync_(grad|param|model)|broadcast|megatron|parallelize"
)


def learns_in_threads(texts: Iterable[str]) -> bool:
    """Return whether files of a program wrap a model in ``DataParallel``, and nothing in them brings the gradients of
    several processes together: each would learn by itself, and whoever starts it starts one."""
    whole = list(texts)
    return any(map(_COPIES.search, whole)) and not any(map(_SHARES.search, whole))
