// NVTX ranges exist with CUDA only.
