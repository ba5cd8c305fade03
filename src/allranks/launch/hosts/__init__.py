"""Run one job on several hosts: the launchers find each other, and end together."""
