import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.distributed.initialize()
mesh = Mesh(mesh_utils.create_device_mesh((jax.device_count(),)), ("data",))
cut, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
x = jax.make_array_from_process_local_data(cut, np.ones((4, 4)))
first = jax.process_index() == 0
if first:
    print(float(x.mean()))  # expect: AR204
