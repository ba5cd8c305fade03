"""All ranks make the same calls in the same order, or learn who does not before they enter."""
