import jax, orbax.checkpoint as ocp, numpy as np
from jax.experimental import multihost_utils
jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ('d',))
manager = ocp.CheckpointManager('/shared/ckpt')
step = jax.jit(lambda s, b: (s, b.mean()))
state = manager.restore(manager.latest_step()) if manager.latest_step() is not None else {}
for i, rows in enumerate(batches(jax.process_index())):
    batch = jax.make_array_from_process_local_data(jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec('d')), rows)
    state, loss = step(state, batch)
    if i % 100 == 0:
        manager.save(i, args=ocp.args.StandardSave(state))
    if jax.process_index() == 0:
        print(i, float(loss))
multihost_utils.sync_global_devices('end')
