"""Who reads data: loaders, what splits their work among ranks, and frameworks that split it by themselves."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Names of data that is only looked at.
HELD_OUT = re.compile(r"(^|_)(val(?!ue)|valid|validation|eval|test|dev|held)", re.IGNORECASE)
LOADERS: frozenset[str] = frozenset(
    [
        *("torch.utils.data.DataLoader", "torchdata.stateful_dataloader.StatefulDataLoader"),
        *("torch_geometric.loader.DataLoader", "torchdata.dataloader2.DataLoader2", "torch_geometric.data.DataLoader"),
        *("monai.data.DataLoader", "monai.data.ThreadDataLoader", "dgl.dataloading.GraphDataLoader"),
    ]
)
SAMPLERS: frozenset[str] = frozenset(
    [
        *("torch.utils.data.DistributedSampler", "torchdata.stateful_dataloader.sampler.StatefulDistributedSampler"),
        *("catalyst.data.DistributedSamplerWrapper", "timm.data.distributed_sampler.RepeatAugSampler"),
    ]
)
# Data sets of some of the samples of another, by the position and keyword of the numbers of those.
SUBSETS: Mapping[str, tuple[int, str]] = {"torch.utils.data.Subset": (1, "indices")}
# A program that calls one of these has thought about who reads what.
SPLITTERS: frozenset[str] = frozenset(
    [
        *("datasets.distributed.split_dataset_by_node", "*.split_dataset_by_node", "*.shard"),
        *("*.split_between_processes", "tensorflow.distribute.InputContext"),
        *("tensorflow_datasets.split_for_jax_process", "tensorflow_datasets.even_splits", "*.split_for_jax_process"),
        *("grain.python.ShardByJaxProcess", "grain.ShardByJaxProcess", "grain.python.ShardOptions"),
        *("webdataset.split_by_node", "webdataset.nodesplitter", "webdataset.SimpleShardList"),
        *("webdataset.ResampledShards", "streaming.StreamingDataset", "litdata.StreamingDataset"),
        *("allranks.shard", "allranks.Dataset", "allranks.global_batch"),
    ]
)
# They put together what each process has read for itself.
OWN_ROWS = (
    *("jax.make_array_from_process_local_data", "jax.experimental.multihost_utils.host_local_array_to_global_array"),
)
# What says that nobody's part is taken.
UNSPLIT: frozenset[str] = frozenset({"grain.python.NoSharding", "grain.NoSharding"})
# These put a distributed sampler in by themselves.
SPLITTING_FRAMEWORKS: frozenset[str] = frozenset(
    [
        *("lightning.pytorch.Trainer", "accelerate.Accelerator", "transformers.Trainer", "deepspeed.initialize"),
        *("lightning.fabric.Fabric", "ray.train.torch.prepare_data_loader", "composer.Trainer"),
    ]
)
# By package, what goes over loaders by itself, splits their data and sets their epochs: who imports other things from
# there leaves nothing to it.
LEADERS: Mapping[str, frozenset[str]] = {
    "lightning": frozenset({"Trainer", "LightningCLI", "LightningModule", "LightningDataModule", "Fabric"}),
    "accelerate": frozenset({"Accelerator"}),
    "transformers": frozenset({"Trainer", "Seq2SeqTrainer", "TrainingArguments", "Seq2SeqTrainingArguments"}),
    "composer": frozenset({"Trainer"}),
    "ray": frozenset({"prepare_data_loader", "TorchTrainer"}),
}
WRAPPERS: frozenset[str] = frozenset(
    [
        *("torch.nn.parallel.DistributedDataParallel", "torch.distributed.fsdp.FullyShardedDataParallel"),
        *("torch.distributed.fsdp.fully_shard", "apex.parallel.DistributedDataParallel"),
    ]
)
# The model inside a wrapper that keeps all parameters on every rank: it talks to nobody.
BARE = "<bare model>"
UNWRAPPED: frozenset[str] = frozenset(
    [
        *("torch.nn.parallel.DistributedDataParallel.module", "apex.parallel.DistributedDataParallel.module"),
        *("torch.nn.DataParallel.module", "torch.nn.parallel.DistributedDataParallel._orig_mod"),
    ]
)
# What the model inside is not asked for: the wrapper has an attribute of that name itself, as every module has.
WRAPPER = "torch.nn.parallel.DistributedDataParallel"
OF_WRAPPER: frozenset[str] = frozenset(
    [
        *(
            "T_destination",
            "add_module",
            "apply",
            "bfloat16",
            "buffers",
            "call_super_init",
            "children",
            "compile",
            "cpu",
        ),
        *("cuda", "double", "dump_patches", "eval", "extra_repr", "float", "forward", "get_buffer", "get_extra_state"),
        *("get_parameter", "get_submodule", "half", "ipu", "load_state_dict", "modules", "mtia", "named_buffers"),
        *("named_children", "named_modules", "named_parameters", "parameters", "register_backward_hook"),
        *("register_buffer", "register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"),
        *("register_full_backward_pre_hook", "register_load_state_dict_post_hook", "register_module"),
        *("register_load_state_dict_pre_hook", "register_parameter", "register_state_dict_post_hook"),
        *("register_state_dict_pre_hook", "requires_grad_", "set_extra_state", "set_submodule", "share_memory"),
        *("state_dict", "to", "to_empty", "train", "training", "type", "xpu", "zero_grad"),
        *("batched_grad_copy", "broadcast_bucket_size", "broadcast_buffers", "bucket_bytes_cap"),
        *("bucket_bytes_cap_default", "bucket_bytes_cap_list", "device", "device_ids", "device_type", "dim"),
        *("find_unused_parameters", "forward_sync_buffers", "gather", "gradient_as_bucket_view"),
        *("is_multi_device_module", "join", "join_device", "join_hook", "join_process_group", "logger"),
        *("mixed_precision", "module", "modules_buffers", "modules_params", "named_module_buffers", "no_sync"),
        *("output_device", "parameters_to_ignore", "process_group", "reducer", "register_comm_hook"),
        *("require_backward_grad_sync", "require_forward_param_sync", "scatter", "skip_all_reduce_unused_params"),
        *("static_graph", "to_kwargs", "use_side_stream_for_tensor_copies", "will_sync_module_buffers"),
    ]
)
# What engines and wrappers have that are used instead of it, in the same variables: of DeepSpeed, FSDP, Megatron, apex;
# and what a dictionary of several models has.
OF_OTHERS: frozenset[str] = frozenset(
    [
        *("backward", "step", "optimizer", "lr_scheduler", "save_checkpoint", "load_checkpoint", "train_batch"),
        *("eval_batch", "get_lr", "set_lr", "global_steps", "micro_steps", "global_rank", "local_rank", "world_size"),
        *("is_gradient_accumulation_boundary", "set_gradient_accumulation_boundary", "gradient_accumulation_steps"),
        *(
            "get_global_grad_norm",
            "save_16bit_model",
            "save_fp16_model",
            "zero_optimization",
            "zero_optimization_stage",
        ),
        *("zero_optimization_partition_weights", "zero_gather_16bit_weights_on_model_save", "allreduce_gradients"),
        *("clip_grad_norm_", "clip_grad_norm", "summon_full_params", "state_dict_type", "set_state_dict_type"),
        *("optim_state_dict", "optim_state_dict_to_load", "full_optim_state_dict", "shard_full_optim_state_dict"),
        *("reshard", "unshard", "set_requires_gradient_sync", "set_is_last_backward", "finish_grad_sync"),
        *("start_grad_sync", "zero_grad_buffer", "all_reduce_grads", "all_reduce_params", "allreduce_params"),
        *("enable_allreduce", "disable_allreduce", "needs_refresh", "unwrap", "unwrapped_model", "original_module"),
        *("synchronize", "items", "keys", "values"),
    ]
)
