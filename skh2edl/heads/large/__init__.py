"""Trees of 20,000 leaves and more: the weights on the batch's paths alone, and exact search."""
