"""Guard programs as they are, for ``allranks run --guard``: lockstep, the hang watch, a comparison of replicas."""
