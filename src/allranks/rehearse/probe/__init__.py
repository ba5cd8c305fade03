"""The probe: what a rank records of itself while it is rehearsed."""
