//! Readings of this process and of its machine: one implementation for each system, with the same functions.

#[cfg(target_os = "macos")]
mod macos;
#[cfg(any(target_os = "macos", windows))]
mod no_groups;
#[cfg(not(any(target_os = "macos", windows)))]
mod procfs;
#[cfg(not(any(target_os = "macos", windows)))]
mod sysfs;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(target_os = "macos")]
pub(crate) use macos::*;
#[cfg(any(target_os = "macos", windows))]
pub(crate) use no_groups::*;
#[cfg(not(any(target_os = "macos", windows)))]
pub(crate) use procfs::*;
#[cfg(not(any(target_os = "macos", windows)))]
pub(crate) use sysfs::*;
#[cfg(unix)]
pub(crate) use unix::*;
#[cfg(windows)]
pub(crate) use windows::*;
