"""Detect hangs: send heartbeats of the training thread, find out which rank waits for which, and print one report."""
