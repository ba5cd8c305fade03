"""The probe of modules: their inputs, weights and buffers."""
