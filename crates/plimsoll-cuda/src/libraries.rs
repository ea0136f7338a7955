//! The libraries of NVIDIA's driver by their names on this system.

/// The interface of CUDA.
pub(crate) const CUDA: &str = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };

/// The management of cards. On Linux a name without a version exists for developers alone.
pub(crate) const MANAGEMENT: &str = if cfg!(windows) { "nvml.dll" } else { "libnvidia-ml.so.1" };
