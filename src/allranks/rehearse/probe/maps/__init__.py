"""The probe of functions that JAX runs on each device."""
