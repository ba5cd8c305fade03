"""What becomes of findings: suppressed, known, fixed, told."""
