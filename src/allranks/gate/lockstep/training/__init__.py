"""Observe what a training program does between its collectives."""
