//! Small disks in memory, for tests that fill them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A small disk, which is unmounted when it is dropped.
pub struct SmallDisk(pub PathBuf);

impl SmallDisk {
    /// Mounts a disk, or returns `None` if this user may not.
    pub fn mount(place: &Path, size: &str) -> Option<SmallDisk> {
        fs::create_dir(place).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(place);
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        mounted.then(|| SmallDisk(place.into()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}
