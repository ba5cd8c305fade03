import deepspeed, torch.distributed as dist, torch
engine, _, loader, _ = deepspeed.initialize(args=args, model=make())
for step, batch in enumerate(loader):
    loss = engine(batch)
    engine.backward(loss)
    engine.step()
    if step % 100 == 0:
        engine.save_checkpoint('out', tag=str(step))
    if dist.get_rank() == 0:
        print(loss.item())
