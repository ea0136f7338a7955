//! One process trains a fold at a time.
//!
//! The lock is the system's (`flock`, on Windows `LockFileEx`), so it ends with its process. The file names the holder. A process that ends in order empties the
//! file; the name in a free lock is therefore of a process that was killed.

use std::io::{Read, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime};

use plimsoll_disk::File;
use plimsoll_memory::{System, oom_kills};
use serde::{Deserialize, Serialize};

use crate::{FoldFolder, RunError};

/// The number of attempts, and the time between two of them.
const TRIES: usize = 10;
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// The most that is read of the file.
const MOST: u64 = 4096;

/// The last second of the year 9999, beyond which RFC 3339 has no dates.
const LAST_SECOND: u64 = 253_402_300_799;

/// A process that trains a fold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Holder {
    /// The machine's name.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// The time of its start, in seconds since 1970.
    pub started: u64,
    /// The number of processes that the kernel had killed for memory in the process's control group at its start; `None` if the kernel
    /// does not report it.
    pub oom_kills: Option<u64>,
}

impl Holder {
    /// This process.
    pub fn this_process() -> Holder {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Holder {
            host: plimsoll_memory::host::name(),
            pid: std::process::id(),
            // A clock before 1970 is wrong anyway.
            started: since.map_or(0, |since| since.as_secs()),
            oom_kills: oom_kills(&System::default()),
        }
    }

    /// The number of processes killed for memory since then; `None` if the kernel does not report it, or the count is of another machine.
    pub fn kills_since(&self) -> Option<u64> {
        let now = Holder::this_process();
        let same = now.host == self.host;
        now.oom_kills.zip(self.oom_kills).filter(|_| same).map(|(now, then)| now.saturating_sub(then))
    }
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} on {}", self.pid, self.host)?;
        // The number in a file may be out of the range of times.
        if self.started <= LAST_SECOND {
            let started = SystemTime::UNIX_EPOCH + Duration::from_secs(self.started);
            write!(f, ", since {}", humantime::format_rfc3339_seconds(started))?;
        }
        Ok(())
    }
}

/// The right to write into the folder of a fold, as long as it lives.
#[derive(Debug)]
pub struct Lock {
    file: File,
    abandoned: Option<Holder>,
}

impl Lock {
    /// Takes the lock of a fold whose folder exists.
    ///
    /// # Errors
    /// Returns an error if another process holds it, which the error names, or the folder cannot be written.
    pub fn take(folder: &FoldFolder) -> Result<Lock, RunError> {
        let path = folder.lock();
        let io = |source| RunError::io(&path, source);
        let mut file = File::append(&path).map_err(io)?;
        // Whoever only asks who has it has it for a moment.
        let mut is_ours = file.try_lock().map_err(io)?;
        for _ in 0..TRIES {
            if is_ours {
                break;
            }
            thread::sleep(BETWEEN_TRIES);
            is_ours = file.try_lock().map_err(io)?;
        }
        let found = read(&mut file);
        if !is_ours {
            let holder = found.map_or("another process".into(), |holder| holder.to_string());
            return Err(RunError::Locked { folder: folder.path().into(), holder });
        }
        let mut lock = Lock { file, abandoned: found };
        lock.say(&Holder::this_process()).map_err(io)?;
        Ok(lock)
    }

    /// The last holder, if it did not end in order.
    pub fn abandoned(&self) -> Option<&Holder> {
        self.abandoned.as_ref()
    }

    fn say(&mut self, holder: &Holder) -> std::io::Result<()> {
        let text = serde_json::to_vec(holder)?;
        self.file.set_len(0)?;
        self.file.write_all(&text)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // If this fails, the next process reports one that did not end in order, which is nearly true.
        let _ = self.file.set_len(0);
    }
}

/// The holder of the lock of a fold, and `true` if it holds it now; `None` if the fold is free.
pub fn holder(folder: &FoldFolder) -> Option<(Holder, bool)> {
    let path = folder.lock();
    let mut file = if Path::new(&path).is_file() { File::append(&path).ok()? } else { return None };
    let is_free = file.try_lock().ok()?;
    Some((read(&mut file)?, !is_free))
}

fn read(file: &mut File) -> Option<Holder> {
    let mut text = Vec::new();
    #[expect(clippy::disallowed_methods, reason = "`take` limits the bytes")]
    Read::by_ref(file).take(MOST).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FoldName, RunFolder};

    fn fold() -> (tempfile::TempDir, FoldFolder) {
        let dir = tempfile::tempdir().unwrap();
        let fold = RunFolder::new(dir.path()).fold(FoldName::Number(0));
        std::fs::create_dir_all(fold.path()).unwrap();
        (dir, fold)
    }

    #[test]
    fn a_second_process_is_told_who_has_the_lock_and_a_later_one_that_it_was_given_back() {
        let (_dir, fold) = fold();
        assert_eq!(holder(&fold), None);
        let first = Lock::take(&fold).unwrap();
        assert_eq!(first.abandoned(), None);
        let (by, has_it) = holder(&fold).unwrap();
        assert_eq!((by.pid, has_it), (std::process::id(), true));
        let error = Lock::take(&fold).unwrap_err().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        drop(first);
        assert_eq!(holder(&fold), None);
        assert_eq!(Lock::take(&fold).unwrap().abandoned(), None);
    }

    #[test]
    fn a_lock_whose_process_ended_without_a_word_is_taken_over_and_said_so() {
        let (_dir, fold) = fold();
        let dead = Holder { host: "there".into(), pid: 7, started: 1_000_000_000, oom_kills: Some(2) };
        std::fs::write(fold.lock(), serde_json::to_vec(&dead).unwrap()).unwrap();
        assert_eq!(holder(&fold), Some((dead.clone(), false)));
        let lock = Lock::take(&fold).unwrap();
        assert_eq!(lock.abandoned(), Some(&dead));
        assert_eq!(dead.to_string(), "process 7 on there, since 2001-09-09T01:46:40Z");
        // Another machine's count says nothing about this one's.
        assert_eq!(dead.kills_since(), None);
    }

    #[test]
    fn a_holder_since_a_time_that_has_no_date_is_told_without_one() {
        let since = |started| Holder { host: "h".into(), pid: 7, started, oom_kills: None }.to_string();
        assert_eq!(since(0), "process 7 on h, since 1970-01-01T00:00:00Z");
        assert_eq!(since(LAST_SECOND), "process 7 on h, since 9999-12-31T23:59:59Z");
        for never in [LAST_SECOND + 1, u64::MAX] {
            assert_eq!(since(never), "process 7 on h");
        }
    }
}
