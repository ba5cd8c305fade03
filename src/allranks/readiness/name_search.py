"""Search the installed packages and the program for a variable's name: code that reads it contains the name."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

# The packages that may read a variable, by its prefix. NCCL is a package beside torch and JAX's plugins.
_PACKAGES = {
    "JAX_": ("jax", "jaxlib", "libtpu", "jax_plugins"),
    "XLA_": ("jaxlib", "jax", "libtpu", "jax_plugins", "torch_xla"),
    "TORCH_": ("torch",),
    "GLOO_": ("torch", "jaxlib"),
    "NCCL_": ("nvidia", "torch", "jaxlib", "jax_plugins"),
}
_PART = re.compile(rb"\w")
_KINDS = (".py", ".so")


def contains_name(name: str, program_files: Iterable[Path]) -> bool:
    """Return whether the program's files, or a package that could read ``name``, contain it as a complete word.

    For example, _DEFAULT_PG_NCCL_TIMEOUT does not contain NCCL_TIMEOUT. JAX derives the names of its variables from its
    options, in capitals, so the name in small letters counts too. If no file contains the name, all files are read.
    """
    words = (name.encode(), name.lower().encode()) if name.startswith("JAX_") else (name.encode(),)
    packages = next(found for prefix, found in _PACKAGES.items() if name.startswith(prefix))
    return any(_contains_word(path, words) for path in chain(program_files, _source_files(packages)))


def _source_files(packages: Iterable[str]) -> Iterator[Path]:
    for package in packages:
        spec = find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            yield from (path for path in Path(folder).rglob("*") if _is_code(path))


def _is_code(path: Path) -> bool:
    return path.suffix in _KINDS or ".so." in path.name


def _contains_word(path: Path, words: tuple[bytes, ...]) -> bool:
    with path.open("rb") as file:
        if not file.seek(0, 2):
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return any(_has_word(word, data) for word in words)


def _has_word(word: bytes, data: mmap.mmap) -> bool:
    at = data.find(word)
    while at >= 0:
        end = at + len(word)
        if not _PART.match(data[max(0, at - 1) : at]) and not _PART.match(data[end : end + 1]):
            return True
        at = data.find(word, end)
    return False
