"""``allranks run --guard``: lockstep, the hang watch and a comparison of replicas, for programs as they are."""
