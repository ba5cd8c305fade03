import jax
from clu import metric_writers
jax.distributed.initialize()
metric_writers.create_default_writer(logdir='w', just_logging=jax.process_index() > 0)
