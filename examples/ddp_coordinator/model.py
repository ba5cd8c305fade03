"""A language model of GPT-2's shape and names, small enough for a CPU; and the text that it is to learn.

transformers loads its weights as they are: ``AutoModelForCausalLM.from_pretrained(folder)``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor, nn


class Conv1D(nn.Module):
    """A linear layer with GPT-2's weight: [features in, features out]."""

    def __init__(self, into: int, out: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(0.02 * torch.randn(into, out)), nn.Parameter(torch.zeros(out))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.c_attn, self.c_proj = Conv1D(width, 3 * width), Conv1D(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.c_attn(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.c_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class MLP(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.c_fc, self.c_proj = Conv1D(width, 4 * width), Conv1D(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width), Attention(width, heads)
        self.ln_2, self.mlp = nn.LayerNorm(width), MLP(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    """``config`` is what stands in config.json."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        width, layers = config["n_embd"], range(config["n_layer"])
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(config["vocab_size"], width),
                "wpe": nn.Embedding(config["n_positions"], width),
                "h": nn.ModuleList(Block(width, config["n_head"]) for _ in layers),
                "ln_f": nn.LayerNorm(width),
            }
        )
        for name in ("wte", "wpe"):
            nn.init.normal_(self.transformer[name].weight, std=0.02)

    def forward(self, text: Tensor) -> Tensor:
        """Return the logits [rows, time, 256] of the byte after each of ``text`` [rows, time]."""
        parts = self.transformer
        x = parts["wte"](text) + parts["wpe"](torch.arange(text.shape[1], device=text.device))
        for block in parts["h"]:
            x = block(x)
        return parts["ln_f"](x) @ parts["wte"].weight.T


def config_of(*, size: int, layers: int, heads: int, context: int) -> dict[str, Any]:
    """Return what transformers' ``config.json`` says of a GPT-2 of these sizes, over bytes."""
    shape = {"vocab_size": 256, "n_positions": context, "n_embd": size, "n_layer": layers, "n_head": heads}
    dropout = {"embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0}
    return {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "tie_word_embeddings": True, **shape, **dropout}


class Rows:
    """The first source files of Python's standard library, end to end, cut into rows of ``length`` bytes."""

    def __init__(self, length: int) -> None:
        files = sorted(Path(os.__file__).parent.glob("*.py"))[:20]
        self.text = np.frombuffer(b"".join(file.read_bytes() for file in files), np.uint8)
        self.length = length

    def __len__(self) -> int:
        return len(self.text) // self.length

    def __getitem__(self, number: int) -> dict[str, NDArray[np.uint8]]:
        return {"text": self.text[number * self.length : (number + 1) * self.length]}
