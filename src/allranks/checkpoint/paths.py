"""Name the files and folders of a run, and parse their names. Files with other names are left alone."""

from __future__ import annotations

import re
from dataclasses import dataclass

MANIFEST = "manifest.json"
FENCES = "fence"
HOLDS = "hold"
# The manifest of the step that is in the memory of a job's hosts.
MEMORY = "memory.json"

# Just as Python writes the number: checkpoint-007 is not a step of ours.
_STEP = re.compile(r"checkpoint-(0|[1-9][0-9]{0,17})")
_ITEM = "[A-Za-z0-9_-]{1,64}"
_SHARD_FILE = re.compile(
    rf"rank-([0-9]{{5,10}})-of-([0-9]{{5,10}})\.([0-9a-f]{{8}})(?:\.({_ITEM}))?\.safetensors(\.zst)?"
)
_HOLD = re.compile(r"(0|[1-9][0-9]{0,17})\.[0-9a-f]{8}\.json")
_FENCE = re.compile(r"([0-9]{8,18})\.json")


@dataclass(frozen=True, slots=True)
class ShardFile:
    """The parts of a shard file's name. ``nonce``: the first 8 digits of the save's nonce. ``item``: "" for no item."""

    rank: int
    size: int
    nonce: str
    item: str = ""
    compressed: bool = False


def step_folder(step: int) -> str:
    """Return the name of a step's folder, relative to the run."""
    return f"checkpoint-{step}"


def parse_step_folder(folder: str) -> int | None:
    """Return the step number in a folder's name; None for any other name."""
    found = _STEP.fullmatch(folder)
    return int(found[1]) if found else None


def manifest_path(step: int) -> str:
    """Return the path of a step's manifest, relative to the run."""
    return f"{step_folder(step)}/{MANIFEST}"


def is_item_name(name: object) -> bool:
    """Return whether an item may have this name. The item's file names contain it."""
    return isinstance(name, str) and re.fullmatch(_ITEM, name) is not None


def shard_file_name(rank: int, size: int, nonce: str, item: str = "", *, is_compressed: bool = False) -> str:
    """Return the name of the file that a rank writes into the step's folder.

    ``nonce``: the nonce of the save (32 digits). ``item``: the item whose arrays are in the file, "" for those of no
    item.
    """
    end = ".safetensors.zst" if is_compressed else ".safetensors"
    return f"rank-{rank:05}-of-{size:05}.{nonce[:8]}{'.' if item else ''}{item}{end}"


def parse_shard_file(name: str) -> ShardFile | None:
    """Parse the name of a shard file; None for any other name."""
    found = _SHARD_FILE.fullmatch(name)
    if not found:
        return None
    said = ShardFile(int(found[1]), int(found[2]), found[3], found[4] or "", bool(found[5]))
    whole = shard_file_name(said.rank, said.size, said.nonce, said.item, is_compressed=said.compressed)
    return said if said.rank < said.size and whole == name else None


def is_file_of_save(path: str, nonce: str) -> bool:
    """Return whether a path is that of a shard file of the save with this nonce; False if the nonce is ""."""
    said = parse_shard_file(path.rpartition("/")[2])
    return said is not None and bool(nonce) and nonce.startswith(said.nonce)


def fence_path(fence_number: int) -> str:
    """Return the path of a fence, relative to the run."""
    return f"{FENCES}/{fence_number:08}.json"


def parse_fence_name(name: str) -> int | None:
    """Return the number of a fence from its file name; None for any other name."""
    found = _FENCE.fullmatch(name)
    number = int(found[1]) if found else 0
    return number if found and fence_path(number) == f"{FENCES}/{name}" else None


def hold_path(step: int, nonce: str) -> str:
    """Return the path of a reader's hold on a step, relative to the run; ``nonce`` has 8 digits."""
    return f"{HOLDS}/{step}.{nonce}.json"


def parse_hold_name(name: str) -> int | None:
    """Return the step of a hold from its file name; None for any other name."""
    found = _HOLD.fullmatch(name)
    return int(found[1]) if found else None
