"""Compute fingerprints of PyTorch tensors on their devices: on CUDA with one fused kernel, elsewhere in pieces.

torch has no arithmetic on unsigned words, so these are signed words with the same bits.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence

import torch

from allranks.consistency.fingerprint import MIX_1, MIX_2, WORD, Fingerprint, K, M, WordLayout

_PIECE = 1 << 22  # words: the steps of the eager version need a few times this memory
_CARRIERS = {1: torch.uint8, 2: torch.int16}

Sums = Callable[[torch.Tensor, int, Sequence[int]], torch.Tensor]


def fingerprints(leaves: Sequence[tuple[Sequence[torch.Tensor], Sequence[WordLayout]]]) -> list[list[Fingerprint]]:
    """Return the fingerprints of each leaf, one for each of its boxes.

    A leaf is given as one tensor for each device, and the layout of the words of each box.
    """
    with torch.no_grad():
        started = [torch.stack([_start_fingerprint(*one) for one in zip(*leaf, strict=True)]) for leaf in leaves]
    return [[(h & WORD, g & WORD) for h, g in found.tolist()] for found in started]


def _start_fingerprint(part: torch.Tensor, word_layout: WordLayout) -> torch.Tensor:
    words = _as_uint32(part.detach()).reshape(word_layout.lengths or (1,))
    steps = [_as_signed(stride * K) for stride in word_layout.strides or (0,)]
    if words.is_cuda:
        return _compiled_sums()(words, _as_signed(word_layout.base * K), steps)
    found = torch.zeros(2, dtype=torch.int64, device=words.device)
    high = max(1, _PIECE // max(1, words[:1].numel()))
    for top in range(0, len(words), high):
        found += _fingerprint_sums(words[top : top + high], _as_signed(word_layout.base * K + top * steps[0]), steps)
    return found


def _fingerprint_sums(words: torch.Tensor, start: int, steps: Sequence[int]) -> torch.Tensor:
    """Return both sums of a fingerprint. Only their low 32 bits count.

    The key of a word is ``start`` plus, for each dimension, its index times the item of ``steps``.
    """
    h = words.to(torch.int32)
    if words.dtype is torch.int16:
        h = h & 0xFFFF
    keys = torch.full((), start, dtype=torch.int32, device=words.device)
    for length, step in zip(words.shape, steps, strict=True):
        keys = keys[..., None] + torch.arange(length, dtype=torch.int32, device=words.device) * step
    h = h ^ keys
    h = (h ^ (h >> 16 & 0xFFFF)) * _MIX_1
    h = (h ^ (h >> 13 & 0x7FFFF)) * _MIX_2
    h = h ^ (h >> 16 & 0xFFFF)
    g = (h + keys) * M
    g = g ^ (g >> 15 & 0x1FFFF)
    return torch.stack([h.sum(dtype=torch.int64), g.sum(dtype=torch.int64)])


@functools.cache
def _compiled_sums() -> Sums:
    """Return ``_fingerprint_sums``, compiled to one kernel. If torch cannot compile it, warn and return it as it is."""
    compiled: Sums = torch.compile(_fingerprint_sums, dynamic=True)
    try:
        one = torch.ones(1, dtype=torch.int32, device="cuda")
        compiled(one, 0, [0])
    except Exception as error:  # any error of the compiler: the slower version works
        warnings.warn(
            f"allranks: torch.compile cannot compile the fingerprint ({type(error).__name__}: {error}): "
            "verify() will take several times as long.",
            RuntimeWarning,
            stacklevel=2,
        )
        return _fingerprint_sums
    return compiled


def _as_uint32(part: torch.Tensor) -> torch.Tensor:
    """Return the bits of a tensor as a one-dimensional tensor of words."""
    flat = part.resolve_conj().resolve_neg().contiguous().reshape(-1)
    return flat.view(_CARRIERS.get(part.dtype.itemsize, torch.int32))


def _as_signed(word: int) -> int:
    word &= WORD
    return word - (1 << 32) if word >> 31 else word


_MIX_1, _MIX_2 = _as_signed(MIX_1), _as_signed(MIX_2)
