"""Watch for hangs: heartbeats of the training thread, a diagnosis of who waits for whom, one report."""
