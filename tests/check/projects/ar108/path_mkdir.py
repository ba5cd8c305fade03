import pathlib
import jax

jax.distributed.initialize()
pathlib.Path("dump").mkdir()  # expect: AR108
