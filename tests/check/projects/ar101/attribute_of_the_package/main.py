import pkg
import jax
jax.distributed.initialize()
pkg.train({})
