"""Files of a project as Python's import system sees them."""
