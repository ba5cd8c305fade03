"""Public programs under ``allranks rehearse``: what it finds in them, and how long it takes."""
