"""Reads training code, runs none of it, and finds what goes wrong with several processes."""
