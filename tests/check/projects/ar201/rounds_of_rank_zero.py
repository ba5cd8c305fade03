import torch.distributed as dist

dist.init_process_group("gloo")
rounds = 10 if dist.get_rank() == 0 else 5
for _ in range(rounds):
    dist.barrier()  # expect: AR201
