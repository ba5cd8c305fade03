import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.distributed.initialize()
mesh = Mesh(np.array(jax.devices()).reshape(-1), ('data',))

import os
import pickle
from jax.experimental import multihost_utils

def save(folder, params, step):
    full = multihost_utils.process_allgather(params, tiled=True)
    if jax.process_index() == 0:
        path = os.path.join(folder, f'{step}.pkl')
        with open(path + '.tmp', 'wb') as file:
            pickle.dump(full, file)
        os.replace(path + '.tmp', path)
    multihost_utils.sync_global_devices('saved')

params = jax.device_put(np.zeros(8), NamedSharding(mesh, P('data')))
for step in range(100):
    params = params + 1
    if step % 10 == 0:
        save('/shared/run', params, step)
