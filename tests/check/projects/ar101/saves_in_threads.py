import threading
from concurrent.futures import ThreadPoolExecutor
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
pool = ThreadPoolExecutor()
threading.Thread(target=torch.save, args=({}, "a.pt")).start()  # expect: AR101
pool.submit(torch.save, {}, "b.pt")  # expect: AR101
if dist.get_rank() == 0:
    threading.Thread(target=torch.save, args=({}, "c.pt")).start()
    pool.submit(torch.save, {}, "d.pt")
pool.submit(torch.save, {}, f"e{dist.get_rank()}.pt")
