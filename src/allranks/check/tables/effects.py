"""Calls that change what other processes see: files, directories, trackers, downloads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal[
    "checkpoint", "file", "append", "delete", "mkdir", "tracker", "download", "publish", "print", "sample"
]


@dataclass(frozen=True, slots=True)
class Effect:
    """``pattern`` does ``kind`` to what the parameter ``path`` (position from 0, or keyword) names.

    ``path`` may name several parameters, first match first; empty where the call has none. ``receiver``: the receiver
    itself is the path (``Path(...).write_text``). ``modes``: it is an effect only if the argument of ``open``-like calls
    (position 1, or keyword ``mode``) holds one of these letters. ``unless``: (keyword, constant) under which it does
    nothing, or does it once by itself (``exist_ok=True``); the constant `...` stands for any value.
    """

    pattern: str
    kind: Kind
    path: tuple[int | str, ...] = ()
    receiver: bool = False
    modes: str = ""
    unless: tuple[tuple[str, object], ...] = ()


EFFECTS: tuple[Effect, ...] = (
    Effect("torch.save", "checkpoint", path=(1, "f")),
    Effect("pickle.dump", "checkpoint", path=(1, "file")),
    Effect("open", "file", path=(0, "file"), modes="wax+"),
    Effect("json.dump", "file", path=(1, "fp")),
    Effect("shutil.rmtree", "delete", path=(0, "path")),
    Effect("os.remove", "delete", path=(0, "path")),
    Effect("os.rename", "delete", path=(0, "src")),
    Effect("wandb.init", "tracker"),
    Effect("torch.utils.tensorboard.SummaryWriter", "tracker", path=(0, "log_dir")),
)
