"""Trees of 20,000 leaves and more: only the weights on the paths of a batch, and exact search."""
