"""What is said where processes all read the same data, and what to do, in the words of the library that reads it."""

from __future__ import annotations

NO_SAMPLER = "every process loads the whole data set: the loader has no distributed sampler"
UNPREPARED = "every process reads the whole data set: this loader is never given to prepare() or setup_dataloaders()"
STREAMED = "every process reads the whole stream: nothing divides it"
STREAMED_AS_IT_IS = "every process reads the whole stream: neither Lightning nor this code divides it"
NOT_SHARDED = "every process reads all records: NoSharding splits nothing"
OF_TRAINER = "the trainer reads this loader as it is: nothing divides the data among the processes"
SAME_ROWS = "the batch is divided by the number of processes, and all read the same rows"
BY_WORKER = "the data is split among the workers of a loader, and every process reads all of it"
# A loader refuses a sampler for an IterableDataset.
OF_A_STREAM = "Give each process and worker its part: items[rank * workers + worker :: world_size * workers]."
OF_JAX = "Split what is read by jax.process_index() and jax.process_count()."
OF_GRAIN = "Use ShardByJaxProcess(drop_remainder=True)."
PREPARED = "Give the loader to accelerator.prepare(), with Fabric to setup_dataloaders()."
OF_A_TRAINER = "Return self.accelerator.prepare(loader), or leave the method out: the trainer's own loader is split."
