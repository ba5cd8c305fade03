"""A decoder-only transformer over bytes, in Equinox: what it computes, and nothing about how it is split."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

VOCABULARY = 256


class Block(eqx.Module):
    """Attention and MLP side by side (as in GPT-J and PaLM): one matrix in, one matrix out, so two gathers a block."""

    into: Array  # [size, 3 size + 4 size]: queries, keys, values; the MLP
    out: Array  # [size + 4 size, size]
    scale: Array  # [2, size / heads]: of normalised queries and keys
    heads: int = eqx.field(static=True)
    context: int = eqx.field(static=True)

    def __init__(self, size: int, heads: int, context: int, *, layers: int, key: Array) -> None:
        first, second = jax.random.split(key)
        self.into = jax.random.normal(first, (size, 7 * size)) * size**-0.5
        self.out = jax.random.normal(second, (5 * size, size)) * (5 * size * 2 * layers) ** -0.5
        self.scale = jnp.ones((2, size // heads))
        self.heads = heads
        self.context = context

    def __call__(self, x: Array, at: Array, past: tuple[Array, Array] | None = None) -> tuple[Array, tuple]:
        """Return the block's [time, size] for positions ``at`` [time], and the keys and values seen so far.

        Without ``past``, x is the whole text; with it, x is what comes next, and ``past`` has room for it.
        """
        size = x.shape[-1]
        qkv, hidden = jnp.split(normalise(x) @ self.into, [3 * size], axis=-1)
        q, k, v = jnp.moveaxis(qkv.reshape(len(x), 3, self.heads, -1), 1, 0)
        q, k = (rotate(normalise(a) * scale, at) for a, scale in zip((q, k), self.scale, strict=True))
        if past is not None:
            k, v = (old.at[at].set(new) for old, new in zip(past, (k, v), strict=True))
        distance = at[:, None] - jnp.arange(len(k))
        seen = (distance >= 0) & (distance < self.context)
        attended = jax.nn.dot_product_attention(q, k, v, mask=seen[None])
        both = jnp.concatenate([attended.reshape(len(x), size), jax.nn.gelu(hidden)], axis=-1)
        return x + both @ self.out, (k, v)


class Transformer(eqx.Module):
    embedding: Array  # [256, size]
    blocks: Block  # all layers in one: every leaf has them as its second axis, since the first is what FSDP cuts
    output: Array  # [size, 256]; zeros at first, so that training starts from log(256) = 5.55 nats a byte

    def __init__(self, *, size: int, layers: int, heads: int, context: int, key: Array) -> None:
        first, *rest = jax.random.split(key, layers + 1)
        self.embedding = jax.random.normal(first, (VOCABULARY, size))
        self.blocks = jax.vmap(lambda key: Block(size, heads, context, layers=layers, key=key), out_axes=1)(
            jnp.stack(rest)
        )
        self.output = jnp.zeros((size, VOCABULARY))

    def __call__(self, text: Array, at: Array, past: tuple[Array, Array] | None = None) -> tuple[Array, tuple]:
        """Return the logits [time, 256] of the byte after each, and what ``past`` is for the next call.

        ``past`` are keys and values, each [layers, time, heads, features].
        """
        x, seen = normalise(self.embedding[text]), []
        for number in range(self.layers):
            x, kept = self.layer(number)(x, at, past and (past[0][number], past[1][number]))
            seen.append(kept)
        return normalise(x) @ self.output, jax.tree.map(lambda *kept: jnp.stack(kept), *seen)

    @property
    def layers(self) -> int:
        return self.blocks.into.shape[1]

    def layer(self, number: int) -> Block:
        return jax.tree.map(lambda leaf: leaf[:, number], self.blocks)


def normalise(x: Array) -> Array:
    """RMS norm, without a scale: the matrix that follows has one."""
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + 1e-6)


def rotate(x: Array, at: Array) -> Array:
    """Rotary positions for x [time, heads, features]."""
    half = x.shape[-1] // 2
    angle = at[:, None, None] * 10_000 ** (-jnp.arange(half) / half)
    cos, sin = jnp.cos(angle).astype(x.dtype), jnp.sin(angle).astype(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def mean_loss(model: Transformer, rows: Array) -> Array:
    """Return the mean loss in nats a byte over rows [rows, time + 1], each byte predicted from those before it."""
    at = jnp.arange(rows.shape[1] - 1)
    logits, _ = jax.vmap(model, in_axes=(0, None))(rows[:, :-1], at)
    return optax.softmax_cross_entropy_with_integer_labels(logits.astype(jnp.float32), rows[:, 1:]).mean()


def generate(model: Transformer, prompt: Array, key: Array, *, length: int, temperature: float = 0.8) -> Array:
    """Return ``prompt`` continued to ``length`` bytes."""
    _, layers, features = model.blocks.scale.shape
    empty = jnp.zeros((layers, length, model.blocks.heads, features), model.embedding.dtype)

    def step(carry: tuple, t: Array) -> tuple[tuple, Array]:
        byte, past = carry
        logits, past = model(byte[None], t[None], past)
        drawn = jax.random.categorical(jax.random.fold_in(key, t), logits[0].astype(jnp.float32) / temperature)
        following = jnp.where(t + 1 < len(prompt), prompt[jnp.minimum(t + 1, len(prompt) - 1)], drawn)
        return (following.astype(prompt.dtype), past), byte

    return jax.lax.scan(step, (prompt[0], (empty, empty)), jnp.arange(length))[1]
