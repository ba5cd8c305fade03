"""Rank 1 holds up its job: ``holds_up.py FRAMEWORK WHERE``; none, torch, jax or init joins the ranks."""

import atexit
import os
import sys
import threading
import time

framework, where = sys.argv[1:]
rank = int(os.environ["RANK"])


def late():
    time.sleep(3600)


class Closed:
    def __del__(self, late=late):
        late()


def generator(late=late):
    try:
        yield
    finally:
        late()


if where == "start" and rank == 1:
    late()
if framework == "torch":
    import torch.distributed as dist

    dist.init_process_group("gloo")
elif framework == "jax":
    import jax

    jax.distributed.initialize()
elif framework == "init":
    import allranks

    allranks.init()
if rank == 1:
    if where == "main":
        late()
    elif where == "atexit":
        atexit.register(late)
    elif where == "thread":
        threading.Thread(target=late).start()
    elif where == "destructor":
        kept = Closed()
    elif where == "generator":
        kept = generator()
        next(kept)
