"""From the entries down: which programs there are, who reaches what in several processes, and where they part."""
