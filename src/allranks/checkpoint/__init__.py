"""A step, whole or not at all."""
