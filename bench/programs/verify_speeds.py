"""How fast the bytes of a state are read for comparing them, beside reading them for nothing. argv: MB, times."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import jax
import numpy as np
import torch
from told import tell

from allranks.arrays.base import DeclaredArray
from allranks.arrays.detect import open_tree
from allranks.consistency import jax as on_jax
from allranks.consistency import torch as on_torch
from allranks.consistency.digests import digests_of_copies, fingerprints_of_copies
from allranks.consistency.fingerprint import WordLayout

words, times = int(sys.argv[1]) * 250_000, int(sys.argv[2])
array = np.random.default_rng(0).integers(0, 1 << 32, words, np.uint32)
wide = array.view(np.uint64)
on_device, tensor = jax.device_put(array), torch.from_numpy(array.view(np.int32))
tree = open_tree({"w": array}, rank=0, size=2)
copies, declared = [tree.copies_of_array(0)], tree.declared_arrays
word_layout = WordLayout(0, (words,), (1,))
assert isinstance(declared[0], DeclaredArray)

WAYS: dict[str, Callable[[], object]] = {
    "reading: np.bitwise_xor": lambda: np.bitwise_xor.reduce(wide),
    "verify, in the host's memory: XXH3-128": lambda: digests_of_copies(declared, copies, is_proof=False),
    "verify(proof=True): BLAKE3": lambda: digests_of_copies(declared, copies, is_proof=True),
    "tree_digest: fingerprint in NumPy": lambda: fingerprints_of_copies(declared, copies),
    "a JAX device (here a CPU): fingerprint": lambda: on_jax.fingerprints([([on_device], [word_layout])]),
    "a plain jax.jit sum of it": lambda: total(on_device).block_until_ready(),
    "a torch device (here a CPU, eager): fingerprint": lambda: on_torch.fingerprints([([tensor], [word_layout])]),
    "torch.hash_tensor (XOR)": lambda: torch.hash_tensor(tensor).item(),
}
total = jax.jit(lambda x: x.sum())
found: dict[str, float] = {}
for call in WAYS.values():
    call()
for _ in range(times):
    for way, call in WAYS.items():
        begin = time.perf_counter()
        call()
        found[way] = max(found.get(way, 0.0), array.nbytes / (time.perf_counter() - begin))
tell(**found)
