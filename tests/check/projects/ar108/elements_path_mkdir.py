import elements
import jax

jax.distributed.initialize()
elements.Path("dump").mkdir()
