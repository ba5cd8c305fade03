"""The HF Trainer with bf16 and a fused optimizer, saved twice."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        tokens = torch.randint(0, 64, (16,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


sizes = {"vocab_size": 64, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}
model = GPT2LMHeadModel(GPT2Config(**sizes, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))
arguments = TrainingArguments(
    "trainer",
    max_steps=6,
    per_device_train_batch_size=2,
    bf16=True,
    save_steps=3,
    report_to=[],
    optim="adamw_torch_fused",
)
assert arguments.device.type == "cuda"
Trainer(model, arguments, train_dataset=Tokens()).train()
