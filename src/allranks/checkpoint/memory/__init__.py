"""Keep a copy of the newest step in the memory of the job's hosts, for a restore that is faster than from storage."""
