"""``allranks rehearse``: run an unmodified program as N ranks on one machine; report what would fail on a cluster."""
