"""A program run for four processes at once, without running it: values, calls, effects, meetings."""
