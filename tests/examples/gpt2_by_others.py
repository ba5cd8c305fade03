"""Loads the exported folder of the first argument with safetensors and with transformers, and compares the logits.

The others are sizes of the example's model, as its config.json has them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "ddp_coordinator"))
from model import GPT2

folder = Path(sys.argv[1])
config = json.loads((folder / "config.json").read_text())
ours = GPT2(config)
ours.load_state_dict(load_file(folder / "model.safetensors"))  # strictly
theirs = AutoModelForCausalLM.from_pretrained(folder)
text = torch.randint(256, (3, config["n_positions"]), generator=torch.Generator().manual_seed(0))
with torch.no_grad():
    here, there = ours(text), theirs(text).logits
torch.testing.assert_close(there, here)
print(f"{type(theirs).__name__}: same logits, deviation {here.std():.3f}")
