"""FSDP2 on a mesh of CUDA devices with mixed precision and a distributed checkpoint, and then FSDP1."""

import functools
import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullStateDictConfig, MixedPrecision, MixedPrecisionPolicy, StateDictType, fully_shard
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy

rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
options.config.max_ctas = 4
dist.init_process_group("cpu:gloo,cuda:nccl", device_id=torch.device("cuda", local_rank), pg_options=options)
mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("dp",))
bf16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


def net():
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16))


def train(model, optimizer):
    numbers = torch.Generator(device="cuda").manual_seed(rank)
    for _ in range(3):
        x = torch.randn(4, 16, device="cuda", generator=numbers)
        model(x).float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


with torch.device("meta"):
    model = net()
for layer in model:
    if isinstance(layer, nn.Linear):
        fully_shard(layer, mesh=mesh["dp"], mp_policy=bf16)
fully_shard(model, mesh=mesh, mp_policy=bf16)
model.set_gradient_divide_factor(4.0)
model.to_empty(device="cuda")
torch.manual_seed(0)
for layer in model:
    if isinstance(layer, nn.Linear):
        layer.reset_parameters()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
train(model, optimizer)
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
weights, state = get_state_dict(model, optimizer)
dcp.save({"model": weights, "optimizer": state}, checkpoint_id="dcp")

torch.manual_seed(0)
wrapped = FSDP(
    net().to(local_rank),
    auto_wrap_policy=functools.partial(size_based_auto_wrap_policy, min_num_params=500),
    device_id=torch.cuda.current_device(),
    mixed_precision=MixedPrecision(torch.bfloat16, torch.bfloat16, torch.bfloat16),
    sync_module_states=True,
    use_orig_params=True,
)
train(wrapped, torch.optim.SGD(wrapped.parameters(), lr=0.1))
wrapped.clip_grad_norm_(1.0)
with FSDP.state_dict_type(wrapped, StateDictType.FULL_STATE_DICT, FullStateDictConfig(True, True)):
    full = wrapped.state_dict()
if rank == 0:
    torch.save(full, "fsdp1.pt")
dist.barrier()
dist.destroy_process_group()
