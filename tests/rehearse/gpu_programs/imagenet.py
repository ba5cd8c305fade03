"""In the style of torchvision's ImageNet example: SyncBatchNorm, channels last, pinned loader, CUDA's random state."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

gpu = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(gpu)
dist.init_process_group(backend="nccl", init_method="env://")
torch.manual_seed(0)
torch.cuda.manual_seed(1 + dist.get_rank())
torch.backends.cudnn.benchmark = True
model = nn.Sequential(
    nn.Conv2d(3, 4, 3),
    nn.BatchNorm2d(4),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Dropout(0.2),
    nn.Linear(4, 10),
)
model = nn.SyncBatchNorm.convert_sync_batchnorm(model).cuda(gpu).to(memory_format=torch.channels_last)
ddp = nn.parallel.DistributedDataParallel(model, device_ids=[gpu], output_device=gpu)
criterion = nn.CrossEntropyLoss(label_smoothing=0.1).cuda(gpu)
optimizer = torch.optim.SGD(ddp.parameters(), 0.1, momentum=0.9, weight_decay=1e-4, foreach=True)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)
scaler = torch.amp.GradScaler("cuda")
data = TensorDataset(torch.randn(48, 3, 8, 8), torch.randint(10, (48,)))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler, num_workers=2, pin_memory=True, drop_last=True)
stream = torch.cuda.Stream()
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
for epoch in range(2):
    sampler.set_epoch(epoch)
    ddp.train()
    for images, target in loader:
        with torch.cuda.stream(stream):
            images = images.cuda(gpu, non_blocking=True, memory_format=torch.channels_last)
            target = target.to(gpu, non_blocking=True)
        torch.cuda.current_stream().wait_stream(stream)
        images.record_stream(torch.cuda.current_stream())
        start.record()
        with torch.amp.autocast("cuda", dtype=torch.float16):
            loss = criterion(ddp(images), target)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        end.record()
        end.synchronize()
        assert start.elapsed_time(end) >= 0
    scheduler.step()
    correct = torch.tensor([loss.item(), 1.0], device=gpu)
    dist.all_reduce(correct, dist.ReduceOp.SUM, async_op=False)
states = [None] * dist.get_world_size()
dist.all_gather_object(states, torch.cuda.get_rng_state(gpu))
if dist.get_rank() == 0:
    torch.save({"model": model.state_dict(), "scaler": scaler.state_dict(), "rng": states}, "checkpoint.pth.tar")
dist.barrier(device_ids=[gpu])
checkpoint = torch.load("checkpoint.pth.tar", map_location=f"cuda:{gpu}", weights_only=False)
model.load_state_dict(checkpoint["model"])
torch.cuda.set_rng_state(checkpoint["rng"][dist.get_rank()].cpu(), gpu)
first = torch.rand(3, device=gpu)
torch.cuda.set_rng_state(checkpoint["rng"][dist.get_rank()].cpu(), gpu)
assert torch.equal(first, torch.rand(3, device="cuda"))
assert not torch.equal(checkpoint["rng"][0].cpu(), checkpoint["rng"][1].cpu())
dist.destroy_process_group()
