//! A whole image in memory, in its stored type.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_memory::{Budget, Bytes, MapError, Mapped};

use crate::content::Content;
use crate::file::{check_buffer, check_region, decode_error};
use crate::region::runs;
use crate::{
    DecodeError, ElementType, Geometry, Scaling, VolumeError, VolumeFile, VoxelBox, decode_f32, decode_labels,
};

/// Bytes that are read between two looks at whether to stop.
const PIECE: usize = 1 << 20;

/// A whole image in memory in its stored type, usually a half or a quarter of the size in f32. Regions are decoded on
/// request.
#[derive(Debug)]
pub struct StoredVolume {
    path: PathBuf,
    geometry: Geometry,
    channels: usize,
    element_type: ElementType,
    scaling: Scaling,
    data: Mapped<u8>,
}

impl StoredVolume {
    /// The bytes that an image of `stored_bytes` (see [`VolumeFile::stored_bytes`]) reserves: whole pages. `None` if
    /// that cannot be addressed.
    pub fn reserves(stored_bytes: u64) -> Option<Bytes> {
        Mapped::<u8>::bytes(usize::try_from(stored_bytes).ok()?).ok()
    }

    /// Reads all voxels of all channels of the image `path`. Their bytes are reserved from `budget` under the name
    /// `holder` first.
    ///
    /// # Errors
    /// Returns an error if the file cannot be used (see [`VolumeFile::open`]) or is damaged, or the budget can never
    /// hold it.
    pub fn read(path: impl AsRef<Path>, budget: &Budget, holder: &str) -> Result<StoredVolume, VolumeError> {
        let (mut file, mut volume) = StoredVolume::open(path.as_ref(), Content::Intensities, budget, holder)?;
        file.decode(budget)?;
        let whole = VoxelBox::whole(volume.geometry.shape());
        let channel_bytes = volume.data.len() / volume.channels;
        for (channel, voxels) in volume.data.chunks_exact_mut(channel_bytes).enumerate() {
            file.read_region(channel, whole, voxels)?;
        }
        Ok(volume)
    }

    /// Reads a file like [`read`](Self::read), some planes at a time: `None` as soon as `stop` is set. The memory for decoding a picture is
    /// reserved from `decoding`.
    ///
    /// # Errors
    /// Returns the errors of [`read`](Self::read).
    pub fn read_unless(
        path: impl AsRef<Path>,
        content: Content,
        budget: &Budget,
        holder: &str,
        decoding: &Budget,
        stop: &AtomicBool,
    ) -> Result<Option<StoredVolume>, VolumeError> {
        let (mut file, mut volume) = StoredVolume::open(path.as_ref(), content, budget, holder)?;
        file.decode(decoding)?;
        let [depth, height, width] = volume.geometry.shape();
        let channel_bytes = volume.data.len() / volume.channels;
        let plane_bytes = channel_bytes / depth;
        // Chunks are decoded once: pieces end where they do.
        let planes = (PIECE / plane_bytes).max(1).next_multiple_of(file.chunk_depth().min(depth));
        for (channel, voxels) in volume.data.chunks_exact_mut(channel_bytes).enumerate() {
            for (piece, voxels) in voxels.chunks_mut(planes * plane_bytes).enumerate() {
                if stop.load(Ordering::Relaxed) {
                    return Ok(None);
                }
                let region = VoxelBox {
                    start: [piece * planes, 0, 0],
                    shape: [voxels.len() / plane_bytes, height, width],
                };
                file.read_region(channel, region, voxels)?;
            }
        }
        Ok(Some(volume))
    }

    /// Opens a file, and reserves room for its voxels.
    fn open(
        path: &Path,
        content: Content,
        budget: &Budget,
        holder: &str,
    ) -> Result<(VolumeFile, StoredVolume), VolumeError> {
        let file = VolumeFile::open_as(path, content)?;
        let memory = |problem: MapError| VolumeError::memory(file.path(), problem);
        let bytes = usize::try_from(file.stored_bytes())
            .map_err(|_| memory(MapError::TooLarge { count: usize::MAX, size: 1 }))?;
        let data = Mapped::<u8>::zeroed(budget, holder, bytes).map_err(memory)?;
        let volume = StoredVolume {
            path: file.path().into(),
            geometry: *file.geometry(),
            channels: file.channels(),
            element_type: file.element_type(),
            scaling: file.scaling(),
            data,
        };
        Ok((file, volume))
    }

    /// The file that it was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The grid.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The number of channels.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// The type of a stored voxel.
    pub fn element_type(&self) -> ElementType {
        self.element_type
    }

    /// The scaling from stored to real values.
    pub fn scaling(&self) -> Scaling {
        self.scaling
    }

    /// The stored voxels, `[channel][depth][height][width]`, in this machine's byte order.
    pub fn bytes(&self) -> &[u8] {
        &self.data
    }

    /// The bytes reserved for it.
    pub fn reserved(&self) -> Bytes {
        self.data.reserved()
    }

    /// The voxels of a region as real values: scaled, in f32.
    ///
    /// # Errors
    /// Returns an error if the channel or the region is not in the image, or the length of `voxels` does not match the
    /// region.
    pub fn region_f32(
        &self,
        channel: usize,
        region: VoxelBox,
        voxels: &mut [f32],
    ) -> Result<(), VolumeError> {
        self.decode_region(channel, region, voxels, decode_f32)
    }

    /// Calls `visit` with the index and the real values of each plane of a channel, in order, as it stands in `plane`.
    ///
    /// # Errors
    /// Returns the errors of [`region_f32`](Self::region_f32) and of `visit`.
    pub fn for_each_plane_f32<E: From<VolumeError>>(
        &self,
        channel: usize,
        plane: &mut [f32],
        mut visit: impl FnMut(usize, &mut [f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let [depth, height, width] = self.geometry.shape();
        for d in 0..depth {
            self.region_f32(channel, VoxelBox { start: [d, 0, 0], shape: [1, height, width] }, plane)?;
            visit(d, plane)?;
        }
        Ok(())
    }

    /// The voxels of a region as labels.
    ///
    /// # Errors
    /// Returns the errors of [`region_f32`](Self::region_f32), and an error if a voxel is not a whole number from 0
    /// to 255.
    pub fn region_labels(
        &self,
        channel: usize,
        region: VoxelBox,
        labels: &mut [u8],
    ) -> Result<(), VolumeError> {
        self.decode_region(channel, region, labels, decode_labels)
    }

    fn decode_region<T>(
        &self,
        channel: usize,
        region: VoxelBox,
        voxels: &mut [T],
        decode: impl Fn(ElementType, Scaling, &[u8], &mut [T]) -> Result<(), DecodeError>,
    ) -> Result<(), VolumeError> {
        check_region(&self.path, &self.geometry, self.channels, channel, region)?;
        check_buffer(&self.path, region.shape.iter().product(), voxels.len())?;
        let size = self.element_type.size();
        let channel_start = channel * self.geometry.voxel_count();
        for run in runs(self.geometry.shape(), region) {
            let part = &mut voxels[run.region];
            let first = channel_start + run.source;
            let stored = &self.data[first * size..(first + part.len()) * size];
            decode(self.element_type, self.scaling, stored, part)
                .map_err(|error| decode_error(&self.path, &self.geometry, channel, run.source, error))?;
        }
        Ok(())
    }
}
