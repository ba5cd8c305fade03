"""What to do where processes all read the same data, in the words of the library that reads it."""

from __future__ import annotations

# A loader refuses a sampler for an IterableDataset.
OF_A_STREAM = "Give each process and worker its part: items[rank * workers + worker :: world_size * workers]."
OF_JAX = "Split what is read by jax.process_index() and jax.process_count()."
OF_GRAIN = "Use ShardByJaxProcess(drop_remainder=True)."
PREPARED = "Give the loader to accelerator.prepare(), with Fabric to setup_dataloaders()."
OF_A_TRAINER = "Return self.accelerator.prepare(loader), or leave the method out: the trainer's own loader is split."
