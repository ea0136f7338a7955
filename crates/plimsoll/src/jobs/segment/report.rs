//! The memory of the table of features, which is checked before any network is run.

use std::path::Path;

use plimsoll_infer::features_bytes;
use plimsoll_memory::Bytes;
use plimsoll_volume::VolumeFile;

use super::Job;
use crate::error::{Error, Outcome};

impl Job<'_> {
    /// Returns the least memory limit for the features of all labels of the task in an image.
    pub(super) fn least_limit_of_report(&self, image: &Path) -> Outcome<Bytes> {
        let shape = VolumeFile::open(image)?.geometry().shape();
        Ok(self.overhead_bytes() + features_bytes(shape, self.names().labels.len()))
    }

    /// Refuses an image for whose features the limit has no room. Returns the least limit for them; `None` if they are not requested.
    pub(super) fn expect_room_for_report(&self, case: &str, image: &Path) -> Outcome<Option<Bytes>> {
        if !self.request.extras.report {
            return Ok(None);
        }
        let (needed, limit) = (self.least_limit_of_report(image)?, self.budget.limit());
        if needed <= limit {
            return Ok(Some(needed));
        }
        let message = format!(
            "{case}: measuring the labels of {} in an image of this size needs {needed}, but the limit is {limit}",
            self.name
        );
        Err(Error::new(message, format!("raise the limit to ‹ram={needed}›")))
    }
}
