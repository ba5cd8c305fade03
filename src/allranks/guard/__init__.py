"""Guard unmodified programs, for ``allranks run --guard``: lockstep, the hang watch, a comparison of replicas."""
