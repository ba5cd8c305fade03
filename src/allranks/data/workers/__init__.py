"""Transform samples in other processes, in order, even if a process dies."""

from allranks.data.workers.detect import WorkerPool as WorkerPool
from allranks.data.workers.detect import start_workers as start_workers
