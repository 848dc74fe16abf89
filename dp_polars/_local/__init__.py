"""The local model: randomized response on a column, one value per unit."""
