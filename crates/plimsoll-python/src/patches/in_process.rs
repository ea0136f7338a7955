//! Values with threads and locks, which do not survive a fork.

use std::process;

use crate::Failure;

/// A value that is used and dropped in the process that made it.
///
/// A forked child has a copy of its memory but none of its threads, and its locks may be taken for ever. There the value is neither used nor
/// dropped.
pub struct InProcess<T> {
    /// `None` only while it is being dropped.
    value: Option<T>,
    process: u32,
}

impl<T> InProcess<T> {
    /// A value of this process.
    pub fn new(value: T) -> InProcess<T> {
        InProcess { value: Some(value), process: process::id() }
    }

    /// The value.
    ///
    /// # Errors
    /// If this process was forked from the one that made it.
    pub fn get(&self) -> Result<&T, Failure> {
        let (made, here) = (self.process, process::id());
        self.value.as_ref().filter(|_| made == here).ok_or_else(|| Failure::Failed {
            message: format!(
                "these patches were opened in process {made}, but are used in process {here}, which was forked from it without the threads \
                 that read them"
            ),
            remedy: Some(
                "use DataLoader(patches, batch_size=None, num_workers=0), or iterate over the patches directly: they are read ahead on \
                 threads of their own"
                    .into(),
            ),
        })
    }
}

impl<T> Drop for InProcess<T> {
    fn drop(&mut self) {
        if self.process != process::id() {
            // Dropping it would wait for threads that do not exist here.
            std::mem::forget(self.value.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_forked_child_neither_uses_nor_drops_the_value() {
        let value = Arc::new(());
        let own = InProcess::new(Arc::clone(&value));
        assert!(own.get().is_ok());
        drop(own);
        assert_eq!(Arc::strong_count(&value), 1);
        let forked = InProcess { value: Some(Arc::clone(&value)), process: process::id() + 1 };
        let failure = forked.get().unwrap_err();
        assert!(failure.to_string().contains(&process::id().to_string()), "{failure}");
        assert!(failure.remedy().unwrap().contains("num_workers=0"));
        drop(forked);
        assert_eq!(Arc::strong_count(&value), 2);
    }
}
