from pkg import train
import jax
jax.distributed.initialize()
train({})
