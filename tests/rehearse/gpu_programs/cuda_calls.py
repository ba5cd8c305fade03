"""Calls of torch.cuda and of devices in one program: each is right on a machine with a GPU per rank."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

local_rank, size = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
assert torch.cuda.device_count() == size
assert str(torch.device("cuda:0")) == "cuda:0"
torch.cuda.set_device(local_rank)
assert torch.cuda.current_device() == local_rank
with torch.cuda.device(0):
    assert torch.cuda.current_device() == 0
assert torch.cuda.current_device() == local_rank
try:
    torch.cuda.set_device(size)
except RuntimeError as error:
    assert "invalid device ordinal" in str(error)
else:
    raise AssertionError("the device does not exist")
major, minor = torch.cuda.get_device_capability()
assert torch.cuda.get_device_properties("cuda").major == major
assert torch.cuda.mem_get_info()[1] == torch.cuda.get_device_properties(0).total_memory
torch.cuda.empty_cache()
torch.cuda.nvtx.range_push("step")
torch.cuda.nvtx.range_pop()
assert torch.cuda.cudart().cudaProfilerStart() == 0

dist.init_process_group("nccl")
assert dist.get_backend() == "nccl"
group = dist.new_group(list(range(size)), backend="nccl", pg_options=dist.ProcessGroupNCCL.Options())
alone = [dist.new_group([rank], backend="nccl") for rank in range(size)][local_rank]
assert dist.get_world_size(alone) == dist.get_world_size(dist.split_group(split_ranks=[[0], [1]])) == 1
value = torch.full((4,), 1.0 + local_rank, device="cuda", dtype=torch.bfloat16)
dist.all_reduce(value, dist.ReduceOp.AVG, group=group)
assert value.tolist() == [(1 + size) / 2] * 4

with dist._coalescing_manager(device=torch.device("cuda", local_rank), async_ops=True) as pending:
    dist.all_gather_into_tensor(torch.empty(2 * size, device="cuda"), torch.ones(2, device="cuda"))
pending.wait()
assert nn.DataParallel(nn.Linear(2, 2).cuda()).eval()(torch.ones(1, 2).cuda()).shape == (1, 2)

# What was copied from the GPU does not change with it.
weights = nn.Linear(2, 2).eval().cuda()
kept = {name: value.cpu() for name, value in weights.state_dict().items()}
with torch.no_grad():
    weights.weight.zero_()
assert kept["weight"].any()
assert torch.zeros(2).to(local_rank).new_ones(2, device="cuda").sum() == 2
assert nn.Linear(2, 2).eval().to(local_rank)(torch.ones(1, 2, device=local_rank)).shape == (1, 2)
assert torch.cuda.FloatTensor([1.0]).type("torch.cuda.HalfTensor").dtype == torch.float16

# The CPU has one stream of random numbers and the device another.
torch.manual_seed(0)
torch.cuda.manual_seed(1 + local_rank)
drawn = torch.rand(1)
dropped = (nn.Dropout(0.5)(torch.full((64,), 1.0 + local_rank, device="cuda")) > 0).float()
masks = [torch.empty_like(dropped) for _ in range(size)]
draws = [torch.empty(1) for _ in range(size)]
dist.all_gather(masks, dropped)
dist.all_gather(draws, drawn)
assert draws[0] == draws[1]
assert not torch.equal(masks[0], masks[1])
states = torch.cuda.get_rng_state_all()
again = [torch.randn(2, device="cuda") for _ in range(2) if torch.cuda.set_rng_state_all(states) is None]
assert torch.equal(*again)

q = torch.randn(1, 2, 4, 8, device="cuda")
with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
    assert nn.functional.scaled_dot_product_attention(q, q, q).shape == q.shape
with torch.autocast("cuda"):
    assert torch.is_autocast_enabled()
    assert weights(torch.ones(1, 2, device="cuda")).dtype == torch.float16
torch.set_default_device("cuda")
assert torch.zeros(2).sum() == 0
torch.set_default_device("cpu")
try:
    import triton
except ImportError:
    triton = None
process = os.fork()
if not process:
    try:
        torch.ones(1).cuda()
    except RuntimeError as error:
        os._exit(0 if "Cannot re-initialize CUDA in forked subprocess" in str(error) else 1)
    os._exit(1)
assert os.waitpid(process, 0)[1] == 0
dist.destroy_process_group()
