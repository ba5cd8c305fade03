"""A program run for four ranks at once, without its libraries: what each rank calls, with which values."""
