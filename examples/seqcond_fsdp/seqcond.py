"""A language model over bytes, of transformer blocks or of blocks that condense what they have read; no ranks in it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

sys.path.append(str(Path(__file__).parents[1]))

from jax_fsdp_lm.model import VOCABULARY, Block, normalise

# size: (width, layers)
SIZES = {"tiny": (32, 1), "small": (256, 6), "medium": (960, 24), "large": (1440, 48)}


class SeqCond(eqx.Module):
    """Every head keeps one summary of all that it has read, which it lets fade; query heads read it through gates.

    The summary is a mean of values, each with a weight that the byte chose when it was read, times all the fading
    since. Both are learned from the input. Reading n bytes costs n, and generating needs no past but the summary.
    """

    into: Array  # [size, heads (features + 2) + query_heads features]: values, weights, what is kept; gates
    slow: Array  # [heads]: how slowly a head forgets, before any input
    out: Array  # [query_heads features, size]
    heads: int = eqx.field(static=True)
    query_heads: int = eqx.field(static=True)

    def __init__(self, size: int, *, expand: float, heads: int, query_heads: int, layers: int, key: Array) -> None:
        if query_heads % heads:
            raise ValueError(f"{query_heads} query heads cannot be shared out among {heads} heads.")
        features = int(size * expand) // query_heads
        first, second = jax.random.split(key)
        columns = heads * (features + 2) + query_heads * features
        self.into = jax.random.normal(first, (size, columns)) * size**-0.5
        self.slow = jnp.linspace(-1.0, 5.0, heads)  # a byte to a hundred and fifty
        self.out = jax.random.normal(second, (query_heads * features, size)) * (size * expand * 2 * layers) ** -0.5
        self.heads = heads
        self.query_heads = query_heads

    @property
    def features(self) -> int:
        return self.out.shape[0] // self.query_heads

    def __call__(self, x: Array, at: Array, past: Array | None = None) -> tuple[Array, Array]:
        """Return the block's [time, size], and the summary [heads, features + 1] after the last of them.

        Without ``past``, x is the whole text; with it, the one byte that comes next.
        """
        del at  # what is newer has faded less: no other positions are needed
        kept, read, gates = self.reading(x)
        summary = condense(kept, read) if past is None else kept * past + read
        mean = summary[..., :-1] / (summary[..., -1:] + 1e-6)
        seen = jnp.repeat(mean, self.query_heads // self.heads, axis=1) * jax.nn.silu(gates)
        return x + normalise(seen.reshape(len(x), -1)) @ self.out, summary[-1]

    def reading(self, x: Array) -> tuple[Array, Array, Array]:
        """Return what is kept [time, heads, 1], what is read [time, heads, features + 1], and gates, from x."""
        heads, features = self.heads, self.features
        sizes = [heads * features, heads, heads]
        values, weights, keeping, gates = jnp.split(
            normalise(x) @ self.into, [sum(sizes[: n + 1]) for n in range(3)], axis=-1
        )
        weights = jax.nn.sigmoid(weights)[..., None]
        values = values.reshape(len(x), heads, features)
        read = jnp.concatenate([weights * values, weights], axis=-1)  # the last column is what a mean is divided by
        kept = jax.nn.sigmoid(keeping + self.slow)[..., None]
        return kept, read, gates.reshape(len(x), self.query_heads, features)

    def empty(self, length: int, dtype: Any) -> Array:
        """Return the summary of nothing."""
        del length
        return jnp.zeros((self.heads, self.features + 1), dtype)


class Attention(Block):
    """The block of the transformer beside this example, whose past has room for ``length`` bytes."""

    def empty(self, length: int, dtype: Any) -> tuple[Array, Array]:
        keys = jnp.zeros((length, self.heads, self.scale.shape[-1]), dtype)
        return keys, keys


def condense(kept: Array, read: Array) -> Array:
    """Return s, where s[t] = kept[t] s[t - 1] + read[t], for all t at once: in log2(time) rounds, not in time steps."""

    def join(earlier: tuple[Array, Array], later: tuple[Array, Array]) -> tuple[Array, Array]:
        return earlier[0] * later[0], later[0] * earlier[1] + later[1]

    return jax.lax.associative_scan(join, (kept, read))[1]


class LanguageModel(eqx.Module):
    embedding: Array  # [256, size]
    blocks: Any  # all layers in one: every leaf has them as its last axis, since the first is what FSDP cuts
    output: Array  # [size, 256]; zeros at first, so that training starts from log(256) = 5.55 nats a byte

    def __init__(self, size: int, layers: int, block: Callable[[Array], Any], *, key: Array) -> None:
        first, *rest = jax.random.split(key, layers + 1)
        self.embedding = jax.random.normal(first, (VOCABULARY, size))
        self.blocks = jax.vmap(block, out_axes=-1)(jnp.stack(rest))
        self.output = jnp.zeros((size, VOCABULARY))

    def __call__(self, text: Array, at: Array, past: Any = None) -> tuple[Array, Any]:
        """Return the logits [time, 256] of the byte after each, and what ``past`` is for the next byte."""

        def layer(x: Array, of: tuple[Any, Any]) -> tuple[Array, Any]:
            block, past = of
            return block(x, at, past)

        layers = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, -1, 0), self.blocks)
        x, kept = jax.lax.scan(jax.checkpoint(layer), normalise(self.embedding[text]), (layers, past))
        return normalise(x) @ self.output, kept

    def empty(self, length: int) -> Any:
        """Return the past of a text that has not begun, and will have ``length`` bytes."""
        layers = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, -1, 0), self.blocks)
        return jax.vmap(lambda block: block.empty(length, self.embedding.dtype))(layers)


def language_model(args: Any, *, key: Array) -> LanguageModel:
    """Return the model that the flags describe."""
    width, layers = SIZES[args.size]
    layers = args.num_layers or layers
    heads, query_heads = args.seqcond_heads, args.seqcond_query_heads or args.seqcond_heads

    def block(key: Array) -> Any:
        if args.model == "transformer":
            return Attention(width, args.heads, args.seq_len, layers=layers, key=key)
        return SeqCond(width, expand=args.expand, heads=heads, query_heads=query_heads, layers=layers, key=key)

    return LanguageModel(width, layers, block, key=key)


def generate(model: LanguageModel, prompt: Array, key: Array, *, length: int, temperature: float = 0.8) -> Array:
    """Return ``prompt`` continued to ``length`` bytes."""

    def step(carry: tuple[Array, Any], t: Array) -> tuple[tuple[Array, Any], Array]:
        byte, past = carry
        logits, past = model(byte[None], t[None], past)
        drawn = jax.random.categorical(jax.random.fold_in(key, t), logits[0].astype(jnp.float32) / temperature)
        following = jnp.where(t + 1 < len(prompt), prompt[jnp.minimum(t + 1, len(prompt) - 1)], drawn)
        return (following.astype(prompt.dtype), past), byte

    return jax.lax.scan(step, (prompt[0], model.empty(length)), jnp.arange(length))[1]
