"""Calls that give a process its GPU, and calls that use the one it has: GPU 0, as long as nothing was said."""

from __future__ import annotations

import re

_LIBRARIES = "torch.cuda torch.npu torch.mlu torch.xpu torch.musa torch.hpu torch.accelerator"
BINDERS: frozenset[str] = frozenset(
    [
        *(f"{library}.set_device" for library in _LIBRARIES.split()),
        *("torch.accelerator.set_device_index", "torch.accelerator.set_device_idx", "torch.accelerator.device_index"),
        *("torch.distributed.device_mesh.init_device_mesh", "torch.distributed.init_device_mesh"),
        *("accelerate.Accelerator", "accelerate.PartialState", "lightning.fabric.Fabric", "lightning.pytorch.Trainer"),
        *("transformers.TrainingArguments", "transformers.Trainer", "transformers.HfArgumentParser"),
        *("transformers.Seq2SeqTrainingArguments", "transformers.Seq2SeqTrainer"),
        *(
            f"trl.{method}{part}"
            for method in ("SFT", "DPO", "GRPO", "KTO", "Reward")
            for part in ("Config", "Trainer")
        ),
        *("deepspeed.initialize", "deepspeed.init_inference", "cupy.cuda.Device", "numba.cuda.select_device"),
        *("mmengine.dist.init_dist", "mmengine.dist.init_pytorch_dist", "composer.utils.dist.initialize_dist"),
        *("composer.utils.get_device", "composer.utils.dist.get_device", "ray.train.torch.get_device"),
        *("ray.train.torch.prepare_model", "megatron.initialize.initialize_megatron", "detectron2.engine.launch"),
        *("detectron2.engine.default_setup", "ignite.distributed.Parallel", "ignite.distributed.initialize"),
    ]
)
CONTEXTS: frozenset[str] = frozenset(f"{library}.device" for library in _LIBRARIES.split())
# Packages whose own start binds a GPU, or that start a process for each.
BINDING_PACKAGES: frozenset[str] = frozenset(
    [
        *("accelerate", "lightning", "ray", "colossalai", "composer", "mmengine", "mmcv", "jax", "torch_xla"),
        *("detectron2", "fairseq2", "ignite", "megatron", "nemo", "torchtnt", "horovod", "bmtrain"),
    ]
)
# What a function is called that does so, wherever it comes from.
BINDS = re.compile(r"(?i)^_?(bind|(set|init|setup|choose|select|assign|configure)_?\w*(device|gpu|cuda|dist\w*$))")
JOINS: frozenset[str] = frozenset(["torch.distributed.init_process_group", "deepspeed.init_distributed"])
# They send what they are given through the current GPU, or wait there.
MEETS: frozenset[str] = frozenset(
    f"torch.distributed.{word}"
    for word in (
        *("broadcast_object_list", "all_gather_object", "gather_object", "scatter_object_list"),
        *("send_object_list", "recv_object_list", "barrier"),
    )
)
VISIBLE: frozenset[str] = frozenset(["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"])
