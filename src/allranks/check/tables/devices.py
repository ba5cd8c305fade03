"""Calls that give a process its GPU, and calls that use the one it has: GPU 0, as long as nothing was said."""

from __future__ import annotations

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
VISIBLE: frozenset[str] = frozenset(["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"])
