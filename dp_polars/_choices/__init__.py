"""Choices among candidates: `noisy_max`, `noisy_min`, `top_k` and `select_best`."""
