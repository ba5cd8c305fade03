"""The probe: record what a rank does while it is rehearsed."""
