import time
import jax
import orbax.checkpoint as ocp

jax.distributed.initialize()
run = f"runs/{time.strftime('%H%M%S')}"
if jax.process_index() == 0:
    print(run)
manager = ocp.CheckpointManager(run)  # expect: AR107
same = ocp.CheckpointManager("runs/last")
