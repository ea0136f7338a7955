//! An image in memory, as a case whose channels are files that only this process has.

use plimsoll_data::{Case, ChannelFile, Reading};
use plimsoll_memory::Budget;
use plimsoll_volume::{ElementType, Geometry, MemoryVolume, MemoryVolumeError};

/// The name of the case in errors.
pub(crate) const NAME: &str = "the image";

/// The channels of an image, copied.
pub(crate) struct MemoryCase {
    pub(crate) case: Case,
    volumes: Vec<MemoryVolume>,
}

impl MemoryCase {
    /// Copies channels of the same grid.
    pub(crate) fn copy(
        geometry: &Geometry,
        element: ElementType,
        channels: &[&[u8]],
        budget: &Budget,
    ) -> Result<MemoryCase, MemoryVolumeError> {
        let copy = |voxels: &&[u8]| MemoryVolume::new(geometry, element, voxels, budget);
        let volumes: Vec<MemoryVolume> = channels.iter().map(copy).collect::<Result<_, _>>()?;
        let file = |volume: &MemoryVolume| ChannelFile { path: volume.path().into(), index: 0 };
        let images = volumes.iter().map(file).collect();
        Ok(MemoryCase {
            case: Case { id: NAME.into(), images, label: None, reading: Reading::default() },
            volumes,
        })
    }

    /// A text in which channels are called by their numbers, where it calls them by their paths.
    pub(crate) fn named(&self, text: String) -> String {
        // Longer numbers first: one may begin with another.
        let mut paths: Vec<(usize, String)> =
            self.volumes.iter().map(|volume| volume.path().display().to_string()).enumerate().collect();
        paths.sort_by_key(|(_, path)| std::cmp::Reverse(path.len()));
        paths.iter().fold(text, |text, (channel, path)| text.replace(path, &format!("channel {channel}")))
    }
}
