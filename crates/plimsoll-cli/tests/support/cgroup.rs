//! Memory control groups of tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A memory cgroup of our own, gone when it is dropped.
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// With a limit; none if groups cannot be made here.
    pub fn new(bytes: u64) -> Option<Cgroup> {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("plimsoll_test_{}_{number}", std::process::id());
        let places = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        places.into_iter().find_map(|(root, file)| {
            let group = Path::new(root).join(&name);
            fs::create_dir(&group).ok()?;
            let group = Cgroup(group);
            let limited =
                group.0.join(file).exists() && fs::write(group.0.join(file), bytes.to_string()).is_ok();
            limited.then_some(group)
        })
    }

    /// Shell that puts itself into the group.
    pub fn enter(&self) -> String {
        format!("echo $$ > {}/cgroup.procs", self.0.display())
    }

    /// The processes of the group that the kernel has killed for memory.
    pub fn kills(&self) -> Option<u64> {
        let text = ["memory.oom_control", "memory.events"]
            .iter()
            .find_map(|name| fs::read_to_string(self.0.join(name)).ok())?;
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "))?;
        count.trim().parse().ok()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}
