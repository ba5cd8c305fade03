"""Let a program that asks for CUDA run on this machine's CPU."""
