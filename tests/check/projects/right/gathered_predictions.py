import os
import torch
import torch.distributed as dist

local_rank = int(os.environ['LOCAL_RANK'])
torch.cuda.set_device(local_rank)
dist.init_process_group('nccl')
rank, world = dist.get_rank(), dist.get_world_size()

import json

def predict(model, rows):
    out = []
    for row in rows[rank::world]:
        out.append({'id': row['id'], 'text': model(row)})
    every = [None] * world
    dist.all_gather_object(every, out)
    if rank == 0:
        with open('predictions.json', 'w') as file:
            json.dump([one for part in every for one in part], file)

if __name__ == '__main__':
    predict(make(), load())
