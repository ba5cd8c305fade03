"""Samples transformed in other processes, in order, whatever happens to these processes."""

from allranks.data.workers.base import Workers as Workers
from allranks.data.workers.detect import start_workers as start_workers
