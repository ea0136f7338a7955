//! Reading regions of an image file.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use plimsoll_memory::{Budget, Bytes, Mapped};

use crate::content::Content;
use crate::format;
use crate::layout::Layout;
use crate::nifti::NiftiHeader;
use crate::reader::{Destination, Reader, Readers, SCRATCH, StoredGrid};
use crate::region::runs_by_chunk;
use crate::source::{Opened, VoxelSource};
use crate::{
    DecodeError, ElementType, Geometry, IndexFolder, LabelValues, Scaling, SegmentCoding, Segments, Spacing,
    VolumeError, VoxelBox, decode_f32, decode_labels,
};

/// An image in a file, or in a folder of files, of any format that `docs/formats.md` of the project lists.
///
/// Opening reads the header and checks it against the length of the file. Voxels are read by regions with a fixed
/// amount of memory (at most [`REGION_BYTES`](Self::REGION_BYTES)), however large the image, and what [`decode`](Self::decode) reserves. From a plain file only the
/// region itself is read. A compressed file is decompressed up to the region's end: reading forward continues from the last read, reading
/// backward starts again from the first byte, or both from the last [access point](Self::index_in) before the region. Its checksum is
/// verified when its last voxel is read. A picture is decoded as a whole before regions of it are read; of pages and slices, and of
/// chunks, one at a time is.
pub struct VolumeFile {
    path: PathBuf,
    readers: Readers,
    header: Option<Box<NiftiHeader>>,
    layout: Layout,
    segments: Option<Box<Segments>>,
}

impl VolumeFile {
    /// The most that an open file holds beside what it decodes, if it is read plane by plane: buffers, a decompressor with its window and
    /// tables, the access points of a compressed file and one of their windows. Most is held while the points of channels that are stored together
    /// are found.
    pub const OPEN_BYTES: Bytes = Bytes(768 << 10);

    /// The same as [`OPEN_BYTES`](Self::OPEN_BYTES) for regions of several planes: of a file whose [access points](Self::index_in) are known a second
    /// decompressor takes a part of them, on a thread with a stack of its own.
    pub const REGION_BYTES: Bytes = Bytes(1280 << 10);

    /// Opens the image `path`: a file, either file of a pair `.hdr` and `.img`, or a folder whose files are one image. Its format follows
    /// from what it begins with.
    ///
    /// # Errors
    /// Returns an error if a file is missing, the header is not usable (the error names the field), or the file is too
    /// short for what the header describes. No memory is allocated in proportion to the header's numbers before that
    /// check.
    pub fn open(path: impl AsRef<Path>) -> Result<VolumeFile, VolumeError> {
        VolumeFile::open_as(path, Content::Intensities)
    }

    /// Opens a label map like [`open`](Self::open).
    ///
    /// # Errors
    /// Returns the errors of [`open`](Self::open), and an error if the image is a picture that is lossy or has colours.
    pub fn open_labels(path: impl AsRef<Path>) -> Result<VolumeFile, VolumeError> {
        VolumeFile::open_as(path, Content::Labels)
    }

    /// Opens voxels of this content like [`open`](Self::open) and [`open_labels`](Self::open_labels).
    ///
    /// # Errors
    /// Returns the errors of these functions.
    pub fn open_as(path: impl AsRef<Path>, content: Content) -> Result<VolumeFile, VolumeError> {
        Ok(VolumeFile::from_opened(format::open(path.as_ref(), content)?))
    }

    pub(crate) fn from_opened(opened: Opened) -> VolumeFile {
        let Opened { path, layout, header, source, segments } = opened;
        VolumeFile { path, readers: Readers::new(source), header, layout, segments }
    }

    /// Makes regions of deflated voxels cost what they hold and a little more: takes their access points from a folder, or finds them while
    /// the file is read from its first voxel to its last, and keeps them there for the next time. Does nothing of other files. Regions
    /// are the same with and without.
    pub fn index_in(&mut self, folder: &IndexFolder) {
        self.readers.changing().index_in(folder);
    }

    /// Makes regions cheap like [`index_in`](Self::index_in), but reads a compressed file to its end to find access points that are not known.
    /// Once `stop` is set, the file is left without.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is damaged.
    pub fn index_now(&mut self, folder: &IndexFolder, stop: &AtomicBool) -> Result<(), VolumeError> {
        self.readers.changing().index_in(folder);
        self.readers.changing().find_points(stop)
    }

    /// Bytes that [`decode`](Self::decode) reserves while it runs: for a picture, whose pixels stay reserved; of pages and
    /// slices, the bytes of one; for Zstandard, its window. 0 of files whose regions are read from them.
    pub fn decoding_bytes(&self) -> Bytes {
        self.source().decoding_bytes()
    }

    /// Decodes a picture within a budget, for as long as the file is open; of several pages or slices, makes room for one. Does nothing
    /// for files whose regions are read from them.
    ///
    /// # Errors
    /// Returns an error if the budget has no room, or the picture is damaged.
    pub fn decode(&mut self, budget: &Budget) -> Result<(), VolumeError> {
        self.readers.first.source.decode(budget)
    }

    /// The names that the file gives its values, if it was opened as [`Content::Segments`] and gives them names.
    pub fn segments(&self) -> Option<&Segments> {
        self.segments.as_deref()
    }

    /// Checks that classes of its voxels are known: where values mean nothing by themselves, they follow from names.
    ///
    /// # Errors
    /// Returns an error if the classes are not known.
    pub fn expect_values(&self, values: Option<&LabelValues>) -> Result<(), VolumeError> {
        let by_name = self.segments().is_some_and(|segments| segments.coding != SegmentCoding::Values);
        if !by_name || values.is_some() {
            return Ok(());
        }
        let why =
            "which classes its segments are follows from their names, and no data set has classes of these";
        Err(VolumeError::UnnamedClasses { path: self.path.clone(), why: why.into() })
    }

    /// The file with the voxels, or that which names it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The header of NIfTI, which can serve as the template of images written on the same grid.
    pub fn header(&self) -> Option<&NiftiHeader> {
        self.header.as_deref()
    }

    /// Returns `true` for a picture, which has one plane and no place in the world.
    pub fn is_picture(&self) -> bool {
        self.source().is_picture()
    }

    /// The grid.
    pub fn geometry(&self) -> &Geometry {
        &self.layout.geometry
    }

    /// Millimetres in the unit of length that the header states: 1 where it states none.
    pub fn millimetres_per_unit(&self) -> f64 {
        let of_source = self.source().millimetres_per_unit();
        // A header whose unit is not known was refused when it was opened.
        self.header().map_or(of_source, |header| header.millimetres_per_unit().unwrap_or(of_source))
    }

    /// Millimetres between voxels along (depth, height, width) as the file states them, where its affine says the same: the columns of
    /// an oblique affine have these lengths up to rounding alone. Otherwise the lengths of the affine.
    pub fn stated_spacing(&self) -> Spacing {
        const ROUNDING: f64 = 1e-3;
        let of_grid = self.geometry().spacing();
        let stated = self.header().and_then(NiftiHeader::stated_spacing);
        let agrees = |stated: &Spacing| {
            stated.0.iter().zip(of_grid.0).all(|(stated, found)| (stated - found).abs() <= ROUNDING * found)
        };
        stated.filter(agrees).unwrap_or(of_grid)
    }

    /// The number of channels: the product of the dimensions beyond the third. Voxels are stored as
    /// `[channel][depth][height][width]`.
    pub fn channels(&self) -> usize {
        self.layout.channels
    }

    /// The type of a stored voxel.
    pub fn element_type(&self) -> ElementType {
        self.layout.element_type
    }

    /// The scaling from stored to real values.
    pub fn scaling(&self) -> Scaling {
        self.layout.scaling
    }

    /// The bytes of all voxels of all channels, decompressed, in their stored type.
    pub fn stored_bytes(&self) -> u64 {
        self.layout.bytes
    }

    /// Returns `true` if a region can be read without what precedes it in the file: unless the file is compressed, not decoded, and its
    /// access points are not known.
    pub fn is_random_access(&self) -> bool {
        self.source().is_random_access()
    }

    /// Returns `true` if reading a region costs little more than its own bytes: in the file as it is, or once its [access points](Self::index_in)
    /// are known. This is not so if a whole plane is decoded for it, or everything before it; of chunks those that it meets are decoded,
    /// which is little unless one of them is a large part of the image.
    pub fn has_cheap_regions(&self) -> bool {
        /// The bytes that are decoded in a few milliseconds.
        const LITTLE: u64 = 4 << 20;
        const PART: u64 = 8;
        let can_be_read = self.is_random_access() || self.source().can_be_indexed();
        let size = self.element_type().size() as u64;
        let is_little = self.source().chunks().is_some_and(|chunk| {
            let bytes = chunk.iter().fold(size, |bytes, extent| bytes.saturating_mul(*extent as u64));
            bytes <= LITTLE.max(self.stored_bytes() / PART)
        });
        can_be_read && (self.decoding_bytes() == Bytes::ZERO || is_little)
    }

    /// The number of planes that are decoded together.
    pub(crate) fn chunk_depth(&self) -> usize {
        self.source().chunks().map_or(1, |[depth, ..]| depth.max(1))
    }

    /// Returns `true` if everything before a region in the file has to be decompressed to read it.
    pub fn is_compressed(&self) -> bool {
        self.source().is_compressed()
    }

    /// The unique identifier of the frame of reference that positions are in, if the file states one: positions in two frames of reference
    /// cannot be compared.
    pub fn frame_of_reference(&self) -> Option<&str> {
        self.source().frame_of_reference()
    }

    /// Warnings for the user: an earlier loss, or something unusual.
    pub fn warnings(&self) -> Vec<String> {
        self.source().warnings()
    }

    /// Decompresses a compressed file into one without a name beside a path, which is gone when this is dropped: regions are then read from
    /// there, without what precedes them. Of others does nothing. Once `stop` is set, it is left as it was.
    ///
    /// # Errors
    /// [`VolumeError::Decompress`] if the disk beside the path refuses it; else if the file cannot be read or is damaged.
    pub fn decompress_beside(&mut self, beside: &Path, stop: &AtomicBool) -> Result<(), VolumeError> {
        self.readers.changing().decompress_beside(beside, stop)
    }

    /// Reads the voxels of a region in their stored type and this machine's byte order, without scaling.
    ///
    /// # Errors
    /// Returns an error if the channel or the region is not in the image, the length of `voxels` does not match the
    /// region in bytes, or the file cannot be read or is damaged.
    pub fn read_region(
        &mut self,
        channel: usize,
        region: VoxelBox,
        voxels: &mut [u8],
    ) -> Result<(), VolumeError> {
        let size = self.element_type().size();
        self.check(channel, region, voxels.len(), size)?;
        let shape = self.geometry().shape();
        let chunks = self.source().chunks();
        let read = |reader: &mut Reader, part: VoxelBox, voxels: &mut [u8]| {
            for run in runs_by_chunk(shape, part, chunks) {
                let to = &mut voxels[run.region.start * size..run.region.end * size];
                reader.source.read(channel, run.source, to)?;
            }
            Ok(())
        };
        let to = Destination { elements: &mut *voxels, per_voxel: size };
        self.readers.read(StoredGrid { shape, voxel_bytes: size }, region, to, read)?;
        self.layout.byte_order.swap_to_native(size, voxels);
        Ok(())
    }

    /// Reads the voxels of a region as real values: scaled, in f32.
    ///
    /// # Errors
    /// Returns the errors of [`read_region`](Self::read_region).
    pub fn region_f32(
        &mut self,
        channel: usize,
        region: VoxelBox,
        voxels: &mut [f32],
    ) -> Result<(), VolumeError> {
        self.decode_region(channel, region, voxels, decode_f32)
    }

    /// Reads the voxels of a region as labels.
    ///
    /// # Errors
    /// Returns the errors of [`read_region`](Self::read_region), and an error if a voxel is not a whole number from 0
    /// to 255.
    pub fn region_labels(
        &mut self,
        channel: usize,
        region: VoxelBox,
        labels: &mut [u8],
    ) -> Result<(), VolumeError> {
        self.decode_region(channel, region, labels, decode_labels)
    }

    /// Calls `visit` with the index and the stored voxels (this machine's byte order, no scaling) of each plane of a
    /// channel, in order. One plane is held, reserved from `budget`; of an image that is stored in chunks, as many as these are deep, if
    /// there is room for them.
    ///
    /// # Errors
    /// Returns an error if the channel is not in the image, there is no room for a plane, the file cannot be read or is
    /// damaged, or `visit` fails.
    pub fn for_each_plane<E: From<VolumeError>>(
        &mut self,
        channel: usize,
        budget: &Budget,
        mut visit: impl FnMut(usize, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let [depth, height, width] = self.geometry().shape();
        let bytes = height * width * self.element_type().size();
        self.decode(budget)?;
        let planes_of = |count: usize| Mapped::<u8>::zeroed(budget, "planes of an image", bytes * count);
        // Each chunk is decoded once if the planes that it is part of are read together, and else once for each of them.
        let together = self.chunk_depth().min(depth);
        let mut planes = planes_of(together)
            .or_else(|_| planes_of(1))
            .map_err(|problem| VolumeError::memory(&self.path, problem))?;
        let together = planes.len() / bytes;
        for first in (0..depth).step_by(together) {
            let shape = [together.min(depth - first), height, width];
            let planes = &mut planes[..shape[0] * bytes];
            self.read_region(channel, VoxelBox { start: [first, 0, 0], shape }, planes)?;
            for (index, plane) in (first..).zip(planes.chunks_exact(bytes)) {
                visit(index, plane)?;
            }
        }
        Ok(())
    }

    /// Calls `visit` with the index and the real values of each plane of a channel, in order, as it stands in `plane`. Of an image that is
    /// stored in chunks, as many planes as these are deep are read together if `budget` has room for [them](Self::layer_bytes).
    ///
    /// # Errors
    /// Returns the errors of [`for_each_plane`](Self::for_each_plane), and an error if `plane` does not have the size
    /// of a plane.
    pub fn for_each_plane_f32<E: From<VolumeError>>(
        &mut self,
        channel: usize,
        budget: &Budget,
        plane: &mut [f32],
        mut visit: impl FnMut(usize, &mut [f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let [depth, height, width] = self.geometry().shape();
        check_buffer(&self.path, height * width, plane.len())?;
        let has_layers =
            self.layer_bytes() > Bytes::ZERO && self.layer_bytes() <= budget.limit() - budget.used();
        if !has_layers {
            for d in 0..depth {
                let region = VoxelBox { start: [d, 0, 0], shape: [1, height, width] };
                self.region_f32(channel, region, plane)?;
                visit(d, plane)?;
            }
            return Ok(());
        }
        let Layout { geometry, element_type, scaling, .. } = self.layout;
        let path = self.path.clone();
        self.for_each_plane(channel, budget, |d, stored| {
            let decoded = decode_f32(element_type, scaling, stored, plane);
            let first = d * height * width;
            decoded.map_err(|error| decode_error(&path, &geometry, channel, first, error))?;
            visit(d, plane)
        })
    }

    /// The stored bytes of the planes that are decoded together; 0 where one plane is decoded after the other.
    pub fn layer_bytes(&self) -> Bytes {
        let [depth, height, width] = self.geometry().shape();
        match self.chunk_depth().min(depth) {
            1 => Bytes::ZERO,
            together => {
                let bytes = together * height * width * self.element_type().size();
                // One that cannot be addressed has no room either.
                Mapped::<u8>::bytes(bytes).unwrap_or(Bytes(u64::MAX))
            }
        }
    }

    fn decode_region<T: Send>(
        &mut self,
        channel: usize,
        region: VoxelBox,
        voxels: &mut [T],
        decode: impl Fn(ElementType, Scaling, &[u8], &mut [T]) -> Result<(), DecodeError> + Sync,
    ) -> Result<(), VolumeError> {
        self.check(channel, region, voxels.len(), 1)?;
        let Layout { geometry, element_type, byte_order, scaling, .. } = self.layout;
        let size = element_type.size();
        let at_once = SCRATCH / size;
        let (shape, chunks) = (geometry.shape(), self.source().chunks());
        let path = &self.path;
        let read = |Reader { source, scratch }: &mut Reader, part: VoxelBox, voxels: &mut [T]| {
            for run in runs_by_chunk(shape, part, chunks) {
                let mut first = run.source;
                for part in voxels[run.region].chunks_mut(at_once) {
                    let stored = &mut scratch[..part.len() * size];
                    source.read(channel, first, stored)?;
                    byte_order.swap_to_native(size, stored);
                    let decoded = decode(element_type, scaling, stored, part);
                    decoded.map_err(|error| decode_error(path, &geometry, channel, first, error))?;
                    first += part.len();
                }
            }
            Ok(())
        };
        let to = Destination { elements: voxels, per_voxel: 1 };
        self.readers.read(StoredGrid { shape, voxel_bytes: size }, region, to, read)
    }

    fn source(&self) -> &dyn VoxelSource {
        &*self.readers.first.source
    }

    /// Checks that the region is within the image and that the buffer has `size` elements per voxel.
    fn check(&self, channel: usize, region: VoxelBox, length: usize, size: usize) -> Result<(), VolumeError> {
        check_region(&self.path, &self.layout.geometry, self.layout.channels, channel, region)?;
        // The region is within the grid, whose bytes were checked to be addressable.
        let needed = region.shape.iter().product::<usize>() * size;
        check_buffer(&self.path, needed, length)
    }
}

impl fmt::Debug for VolumeFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VolumeFile")
            .field("path", &self.path)
            .field("layout", &self.layout)
            .finish_non_exhaustive()
    }
}

pub(crate) fn check_region(
    path: &Path,
    geometry: &Geometry,
    channels: usize,
    channel: usize,
    region: VoxelBox,
) -> Result<(), VolumeError> {
    if channel >= channels {
        return Err(VolumeError::Channel { path: path.into(), asked: channel, channels });
    }
    let shape = geometry.shape();
    if !region.is_within(shape) {
        return Err(VolumeError::Region { path: path.into(), asked: region, shape });
    }
    Ok(())
}

pub(crate) fn check_buffer(path: &Path, needed: usize, found: usize) -> Result<(), VolumeError> {
    if needed == found { Ok(()) } else { Err(VolumeError::BufferLength { path: path.into(), needed, found }) }
}

/// Turns a position in a run of voxels that starts at voxel `first` into a voxel of the image.
pub(crate) fn decode_error(
    path: &Path,
    geometry: &Geometry,
    channel: usize,
    first: usize,
    error: DecodeError,
) -> VolumeError {
    let path = path.into();
    match error {
        DecodeError::NotALabel { position, value } => {
            let [_, height, width] = geometry.shape();
            let at = first + position;
            let voxel = [at / (height * width), at / width % height, at % width];
            VolumeError::NotALabel { path, channel, voxel, value }
        }
        DecodeError::Length { bytes, voxels, .. } => {
            VolumeError::BufferLength { path, needed: bytes, found: voxels }
        }
    }
}
