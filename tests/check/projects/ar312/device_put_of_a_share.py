import jax, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ('d',))

def batches(rows):
    mine = rows[jax.process_index()::jax.process_count()]
    for at in range(0, len(mine), 8):
        yield jax.device_put(mine[at:at + 8], NamedSharding(mesh, P('d')))  # expect: AR312
for batch in batches(np.load('rows.npy')):
    print(batch.shape)
