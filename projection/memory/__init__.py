"""Memory per pipeline rank: parameters and their states, activations in flight, transients."""
