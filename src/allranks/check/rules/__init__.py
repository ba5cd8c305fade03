"""One rule a file, named for the fault. `allranks.check.registry` finds them."""
