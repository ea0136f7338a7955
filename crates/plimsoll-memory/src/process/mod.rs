//! Readings of this process and of its machine: one implementation for each system, with the same functions.

#[cfg(target_os = "macos")]
mod macos;
#[cfg(not(any(target_os = "macos", windows)))]
mod procfs;
#[cfg(windows)]
mod windows;

#[cfg(target_os = "macos")]
pub(crate) use macos::*;
#[cfg(not(any(target_os = "macos", windows)))]
pub(crate) use procfs::*;
#[cfg(windows)]
pub(crate) use windows::*;
