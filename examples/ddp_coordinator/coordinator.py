"""The coordinator of the seed, as it was: transcribed, and not to be copied."""

from __future__ import annotations


class Coordinator:
    """Counts acks until there are as many as ranks. On rank 0."""

    def __init__(self, world_size: int) -> None:
        self.phase, self.acks_received, self.world_size, self.checkpoint_step = "Training", 0, world_size, 0

    def request_save(self, step: int) -> bool:
        if self.phase != "Training":
            return False
        self.phase, self.checkpoint_step, self.acks_received = "SaveRequested", step, 0
        return True

    def worker_ready(self) -> bool:
        self.acks_received += 1
        if self.acks_received < self.world_size:
            return False
        self.phase = "WeightsSynced"
        return True

    def start_writing(self) -> None:
        self.phase = "Writing"

    def complete(self) -> None:
        self.phase = "Complete"

    def resume_training(self) -> None:
        self.phase, self.acks_received = "Training", 0
