"""Train a network end to end, or a head on fixed features."""
