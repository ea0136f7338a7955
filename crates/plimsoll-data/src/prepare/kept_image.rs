//! The image as networks see it, in a file without a name: the first network that looks at it writes it, and others that see the same read it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_disk::ScratchFile;
use plimsoll_volume::VoxelBox;

use crate::patch::zoom::Zoom;
use crate::prepare::PrepareError;
use crate::prepare::window::Part;

/// The image that networks see: the stored image it is made of, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Seen {
    pub(super) zoom: Zoom,
    pub(super) stored: [usize; 3],
    /// `true` if stored values are truncated to whole numbers.
    pub(super) is_truncated: bool,
    pub(super) channels: usize,
}

impl Seen {
    /// Bytes of all voxels; `None` if they cannot be counted.
    fn bytes(&self) -> Option<u64> {
        let voxels = VoxelBox::whole(self.zoom.shape()).voxel_count()?.checked_mul(self.channels)?;
        (voxels as u64).checked_mul(size_of::<f32>() as u64)
    }

    /// The place of a voxel of a channel among all voxels.
    fn place(&self, channel: usize, [d, h, w]: [usize; 3]) -> usize {
        let [depth, height, width] = self.zoom.shape();
        ((channel * depth + d) * height + h) * width + w
    }
}

/// An image that several models see at the same spacing. It takes four bytes of disk for each voxel that networks see, and no memory.
#[derive(Debug)]
pub struct KeptImage {
    /// The file beside which the voxels are kept.
    beside: PathBuf,
    found: Option<FoundImage>,
}

/// The voxels of an image, all of which are kept.
#[derive(Clone, Debug)]
pub(super) struct FoundImage {
    seen: Seen,
    /// The box of voxels that are not zero.
    pub(super) nonzero: VoxelBox,
    beside: PathBuf,
    file: Arc<Mutex<ScratchFile>>,
}

/// The voxels of an image, which are being written.
pub(super) struct GrowingImage {
    seen: Seen,
    file: ScratchFile,
}

impl KeptImage {
    /// Nothing yet; voxels will be kept on the disk of `beside`, a file that need not exist.
    pub fn beside(beside: &Path) -> KeptImage {
        KeptImage { beside: beside.into(), found: None }
    }

    /// The voxels, if these are kept.
    pub(super) fn found(&self, seen: &Seen) -> Option<FoundImage> {
        self.found.clone().filter(|found| found.seen == *seen)
    }

    /// Begins to keep voxels; `None` if the disk has no room for them.
    pub(super) fn begin(&self, seen: Seen) -> Option<GrowingImage> {
        let file = ScratchFile::beside(&self.beside, seen.bytes()?).ok()?;
        Some(GrowingImage { seen, file })
    }

    /// Keeps voxels of which all have been written.
    pub(super) fn keep(&mut self, grown: GrowingImage, nonzero: VoxelBox) -> FoundImage {
        let GrowingImage { seen, file } = grown;
        let beside = self.beside.clone();
        self.found.insert(FoundImage { seen, nonzero, beside, file: Arc::new(Mutex::new(file)) }).clone()
    }
}

impl GrowingImage {
    /// Writes a part of a channel.
    ///
    /// # Errors
    /// Returns an error if the disk fails.
    pub(super) fn write(&mut self, channel: usize, part: VoxelBox, voxels: &[f32]) -> io::Result<()> {
        let [_, rows, columns] = part.shape;
        let [_, _, width] = self.seen.zoom.shape();
        // Rows of the whole width lie one after the other.
        let run = if columns == width { rows * columns } else { columns };
        for (number, run) in voxels.chunks_exact(run.max(1)).enumerate() {
            let [d, h, w] = part.start;
            let row =
                if columns == width { [d + number, h, w] } else { [d + number / rows, h + number % rows, w] };
            let offset = self.seen.place(channel, row) * size_of::<f32>();
            self.file.write_all_at(offset as u64, bytemuck::cast_slice(run))?;
        }
        Ok(())
    }
}

impl FoundImage {
    /// Fills a part of a window `[d][h][w]` of shape `window` with voxels of a channel, some rows at a time.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub(super) fn pull(
        &self,
        channel: usize,
        part: Part,
        out: &mut [f32],
        window: [usize; 3],
        memory: &mut [f32],
    ) -> Result<(), PrepareError> {
        let ([first, down, right], [depth, height, width]) = (part.of_grid.start, part.of_grid.shape);
        let [_, _, across] = self.seen.zoom.shape();
        // From the first voxel of a row to the last voxel of another all that lies between is read, unless that takes too much.
        let at_once = ((memory.len() + across).saturating_sub(width) / across).clamp(1, height.max(1));
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let mut places = part.rows(window);
        for d in 0..depth {
            for h in (0..height).step_by(at_once) {
                let rows = at_once.min(height - h);
                let begin = self.seen.place(channel, [first + d, down + h, right]);
                let mut read = |from: usize, values: &mut [f32]| {
                    let offset = (from * size_of::<f32>()) as u64;
                    let done = file.read_exact_at(offset, bytemuck::cast_slice_mut(values));
                    done.map_err(|source| PrepareError::Kept { beside: self.beside.clone(), source })
                };
                let all = (rows - 1) * across + width;
                let Some(values) = memory.get_mut(..all) else {
                    // A row for which there is no room.
                    places.by_ref().take(rows).try_for_each(|row| read(begin, &mut out[row]))?;
                    continue;
                };
                read(begin, values)?;
                for (row, place) in places.by_ref().take(rows).enumerate() {
                    out[place].copy_from_slice(&values[row * across..][..width]);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_volume::{Reorientation, Spacing};

    #[test]
    fn parts_are_read_back_as_they_were_written_with_whatever_room() {
        let folder = tempfile::tempdir().unwrap();
        let shape = [4, 5, 6];
        let zoom =
            Zoom::new(VoxelBox::whole(shape), Reorientation::IDENTITY, Spacing([1.0; 3]), Spacing([1.0; 3]));
        let seen = Seen { zoom, stored: shape, is_truncated: false, channels: 2 };
        let mut kept = KeptImage::beside(&folder.path().join("image.nii"));
        assert!(kept.found(&seen).is_none());
        let mut grown = kept.begin(seen).unwrap();
        let value = |channel: usize, [d, h, w]: [usize; 3]| (((channel * 4 + d) * 5 + h) * 6 + w) as f32;
        let voxels = |channel: usize, part: VoxelBox| -> Vec<f32> {
            let [depth, height, width] = part.shape;
            let at = |index: usize| [index / (height * width), index / width % height, index % width];
            let place = |index: usize| [0, 1, 2].map(|axis| part.start[axis] + at(index)[axis]);
            (0..depth * height * width).map(|index| value(channel, place(index))).collect()
        };
        for channel in 0..2 {
            for part in [
                VoxelBox { start: [0; 3], shape: [1, 5, 6] },
                VoxelBox { start: [1, 0, 0], shape: [3, 5, 2] },
                VoxelBox { start: [1, 0, 2], shape: [3, 5, 4] },
            ] {
                grown.write(channel, part, &voxels(channel, part)).unwrap();
            }
        }
        let found = kept.keep(grown, VoxelBox::whole(shape));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(kept.found(&seen).is_some() && kept.found(&Seen { is_truncated: true, ..seen }).is_none());
        let of_grid = VoxelBox { start: [1, 1, 2], shape: [3, 4, 3] };
        let window = [5, 6, 7];
        for room in [1, 3, 9, 10, 21, 1000] {
            for channel in 0..2 {
                let mut out = vec![-1.0; 5 * 6 * 7];
                let part = Part { of_grid, in_window: [2, 1, 4] };
                found.pull(channel, part, &mut out, window, &mut vec![0.0; room]).unwrap();
                let mut expected = vec![-1.0; 5 * 6 * 7];
                let rows = voxels(channel, of_grid);
                for (row, values) in rows.chunks_exact(3).enumerate() {
                    let at = ((2 + row / 4) * 6 + 1 + row % 4) * 7 + 4;
                    expected[at..at + 3].copy_from_slice(values);
                }
                assert_eq!(out, expected, "{room} {channel}");
            }
        }
    }
}
