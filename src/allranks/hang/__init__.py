"""Who waits for whom: heartbeats of the training thread, a diagnosis, one report."""
