"""Known answers: whether the collectives of this machine compute what they should."""
