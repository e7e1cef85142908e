"""The fast path: low-precision weights, attention, element-wise kernels, the optimiser and CUDA graphs."""
