"""The fast path: attention, element-wise kernels, the optimiser and CUDA graphs."""
