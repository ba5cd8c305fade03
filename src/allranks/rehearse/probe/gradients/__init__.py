"""Record how gradients are reduced."""
