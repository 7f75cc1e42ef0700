"""Many kernels optimized one after the other, and what became of them."""
