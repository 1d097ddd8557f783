"""Speed of the GPU kernels, each after it has given what its reference gives."""
