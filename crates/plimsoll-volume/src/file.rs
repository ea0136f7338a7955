//! Reading regions of an image file.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_disk::ScratchFile;
use plimsoll_memory::{Budget, Bytes, Mapped};

use crate::nifti::{HeaderError, Layout, NiftiHeader, NiftiVersion, names};
use crate::picture::{Content, Picture, is_picture, is_tiff};
use crate::region::runs;
use crate::stack::Stack;
use crate::stream::ByteStream;
use crate::{
    DecodeError, ElementType, Geometry, Scaling, Spacing, VolumeError, VoxelBox, decode_f32, decode_labels,
};

/// Stored bytes that are decoded in one step.
const SCRATCH: usize = 64 << 10;

/// Decompressed bytes behind the voxels that are read for the checksum behind them, of an image that is smaller than this; of
/// a larger one, as many as it has itself.
const TRAILING: u64 = 1 << 20;

/// The largest expansion of deflate per byte: a match of 258 bytes takes two bits.
const DEFLATE_LIMIT: u64 = 1032;

/// An image in a file: NIfTI-1 or NIfTI-2, in one file or a pair, plain or compressed; or a PNG, JPEG, TIFF or BMP, which is a volume
/// of one slice with pixels of 1 mm; or a TIFF of several pages, which are its planes.
///
/// Opening reads the header and checks it against the length of the file. Voxels are read by regions with a fixed
/// amount of memory (about 0.2 MB), however large the image. From a plain file only the region itself is read. A
/// compressed file is decompressed up to the region's end: reading forward continues from the last read, reading
/// backward starts again from the first byte. Its checksum is verified when its last voxel is read. A picture is
/// [decoded](Self::decode) as a whole before regions of it are read; of pages, one at a time is.
pub struct VolumeFile {
    path: PathBuf,
    source: Source,
    layout: Layout,
    scratch: Box<[u8]>,
}

/// Where voxels are from.
enum Source {
    Nifti { header: Box<NiftiHeader>, stream: ByteStream },
    Picture(Box<Picture>),
    Stack(Box<Stack>),
}

impl VolumeFile {
    /// Opens the image `path`: `.nii` or `.nii.gz`, or either file of a pair `.hdr` and `.img`, each possibly with
    /// `.gz`.
    ///
    /// # Errors
    /// If a file is missing, the header is not usable (the error names the field), or the file is too short for what
    /// the header describes. No memory is allocated in proportion to the header's numbers before that check.
    pub fn open(path: impl AsRef<Path>) -> Result<VolumeFile, VolumeError> {
        VolumeFile::open_as(path, Content::Intensities)
    }

    /// As [`open`](Self::open), a label map.
    ///
    /// # Errors
    /// As [`open`](Self::open), and if it is a picture that is lossy or has colours.
    pub fn open_labels(path: impl AsRef<Path>) -> Result<VolumeFile, VolumeError> {
        VolumeFile::open_as(path, Content::Labels)
    }

    /// As [`open`](Self::open) or [`open_labels`](Self::open_labels).
    ///
    /// # Errors
    /// As these.
    pub fn open_as(path: impl AsRef<Path>, content: Content) -> Result<VolumeFile, VolumeError> {
        let path = path.as_ref();
        let scratch = vec![0; SCRATCH].into_boxed_slice();
        if is_tiff(path)
            && let Some((stack, layout)) = Stack::open(path, content)?
        {
            return Ok(VolumeFile {
                path: path.into(),
                source: Source::Stack(Box::new(stack)),
                layout,
                scratch,
            });
        }
        if is_picture(path) {
            let (picture, layout) = Picture::open(path, content)?;
            return Ok(VolumeFile {
                path: path.into(),
                source: Source::Picture(Box::new(picture)),
                layout,
                scratch,
            });
        }
        let parts = names::parts(path)?;
        let mut stream = open(&parts.header)?;
        let header = read_header(&parts.header, &mut stream)?;
        let in_header = |problem| VolumeError::Header { path: parts.header.clone(), problem };
        let layout = header.layout().map_err(in_header)?;
        let data_path = match (header.pair, parts.image) {
            (false, _) => parts.header.clone(),
            (true, Some(image)) => {
                stream = open(&image)?;
                image
            }
            (true, None) => return Err(in_header(HeaderError::PairInOneFile)),
        };
        check_length(&data_path, &stream, &layout)?;
        let source = Source::Nifti { header: Box::new(header), stream };
        Ok(VolumeFile { path: data_path, source, layout, scratch })
    }

    /// Bytes that decoding a picture reserves while it runs, of which those of its pixels stay reserved; of pages, those of one. 0 of NIfTI.
    pub fn decoding_bytes(&self) -> Bytes {
        match &self.source {
            Source::Nifti { .. } => Bytes::ZERO,
            Source::Picture(picture) => picture.decoding_bytes(),
            Source::Stack(stack) => stack.decoding_bytes(),
        }
    }

    /// Decodes a picture within a budget, for as long as the file is open; of several pages, makes room for one. Of NIfTI, whose regions are
    /// read from the file, does nothing.
    ///
    /// # Errors
    /// If the budget has no room, or the picture is damaged.
    pub fn decode(&mut self, budget: &Budget) -> Result<(), VolumeError> {
        match &mut self.source {
            Source::Nifti { .. } => Ok(()),
            Source::Picture(picture) => picture.decode(budget),
            Source::Stack(stack) => stack.prepare(budget),
        }
    }

    /// The file with the voxels.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The header of NIfTI, which can serve as the template of images written on the same grid.
    pub fn header(&self) -> Option<&NiftiHeader> {
        match &self.source {
            Source::Nifti { header, .. } => Some(header),
            Source::Picture(_) | Source::Stack(_) => None,
        }
    }

    /// Whether it is a picture, which has one plane and no place in the world.
    pub fn is_picture(&self) -> bool {
        matches!(self.source, Source::Picture(_))
    }

    /// The grid.
    pub fn geometry(&self) -> &Geometry {
        &self.layout.geometry
    }

    /// Millimetres between voxels along (depth, height, width) as the file states them, where its affine says the same: the columns of
    /// an oblique affine have these lengths up to rounding alone. Else those of the affine.
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

    /// How a voxel is stored.
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

    /// Whether a region can be read without what precedes it in the file: true unless the file is compressed, and not decoded.
    pub fn is_random_access(&self) -> bool {
        match &self.source {
            Source::Nifti { stream, .. } => !stream.is_compressed(),
            Source::Picture(picture) => picture.is_decoded(),
            Source::Stack(stack) => stack.is_prepared(),
        }
    }

    /// Decompresses a compressed file into one without a name beside a path, which is gone when this is dropped: regions are then read from
    /// there, without what precedes them. Of others does nothing. Once `stop` is set, it is left as it was.
    ///
    /// # Errors
    /// [`VolumeError::Decompress`] if the disk beside the path refuses it; else if the file cannot be read or is damaged.
    pub fn decompress_beside(&mut self, beside: &Path, stop: &AtomicBool) -> Result<(), VolumeError> {
        let end = self.layout.end();
        let stream = match &mut self.source {
            Source::Nifti { stream, .. } if stream.is_compressed() => stream,
            Source::Nifti { .. } | Source::Picture(_) | Source::Stack(_) => return Ok(()),
        };
        let failed = |source| VolumeError::Decompress {
            path: self.path.clone(),
            beside: beside.into(),
            bytes: Bytes(end),
            source,
        };
        let mut decompressed = ScratchFile::beside(beside, end).map_err(failed)?;
        let mut at = 0;
        while at < end {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let part = (end - at).min(SCRATCH as u64);
            // No longer than the buffer.
            let part = &mut self.scratch[..part as usize];
            let read = stream.read_exact_at(at, part);
            read.map_err(|error| damaged_or_refused(&self.path, stream, end, error))?;
            decompressed.write_all_at(at, part).map_err(failed)?;
            at += part.len() as u64;
        }
        let most = end.max(TRAILING);
        let is_whole = stream.verify_rest(most);
        if !is_whole.map_err(|error| damaged_or_refused(&self.path, stream, end, error))? {
            return Err(VolumeError::Trailing { path: self.path.clone(), end, most });
        }
        *stream = ByteStream::decompressed(decompressed, end).map_err(failed)?;
        Ok(())
    }

    /// Reads the voxels of a region in their stored type and this machine's byte order, without scaling.
    ///
    /// # Errors
    /// If the channel or the region is not in the image, the length of `voxels` is not that of the region in bytes, or
    /// the file cannot be read or is damaged.
    pub fn read_region(
        &mut self,
        channel: usize,
        region: VoxelBox,
        voxels: &mut [u8],
    ) -> Result<(), VolumeError> {
        let size = self.element_type().size();
        self.check(channel, region, voxels.len(), size)?;
        for run in runs(self.geometry().shape(), region) {
            let part = &mut voxels[run.region.start * size..run.region.end * size];
            self.read_voxels(channel, run.source, part)?;
        }
        self.layout.byte_order.swap_to_native(size, voxels);
        Ok(())
    }

    /// Reads the voxels of a region as real values: scaled, in f32.
    ///
    /// # Errors
    /// As [`read_region`](Self::read_region).
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
    /// As [`read_region`](Self::read_region), and if a voxel is not a whole number from 0 to 255.
    pub fn region_labels(
        &mut self,
        channel: usize,
        region: VoxelBox,
        labels: &mut [u8],
    ) -> Result<(), VolumeError> {
        self.decode_region(channel, region, labels, decode_labels)
    }

    /// Calls `visit` with the index and the stored voxels (this machine's byte order, no scaling) of each plane of a
    /// channel, in order. One plane is held, reserved from `budget`.
    ///
    /// # Errors
    /// If the channel is not in the image, there is no room for a plane, the file cannot be read or is
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
        let mut plane = Mapped::<u8>::zeroed(budget, "a plane of an image", bytes)
            .map_err(|problem| VolumeError::Memory { path: self.path.clone(), problem: Box::new(problem) })?;
        for index in 0..depth {
            let region = VoxelBox { start: [index, 0, 0], shape: [1, height, width] };
            self.read_region(channel, region, &mut plane)?;
            visit(index, &plane)?;
        }
        Ok(())
    }

    fn decode_region<T>(
        &mut self,
        channel: usize,
        region: VoxelBox,
        voxels: &mut [T],
        decode: impl Fn(ElementType, Scaling, &[u8], &mut [T]) -> Result<(), DecodeError>,
    ) -> Result<(), VolumeError> {
        self.check(channel, region, voxels.len(), 1)?;
        let Layout { geometry, element_type, byte_order, scaling, .. } = self.layout;
        let size = element_type.size();
        let at_once = SCRATCH / size;
        for run in runs(geometry.shape(), region) {
            let mut source = run.source;
            for part in voxels[run.region].chunks_mut(at_once) {
                // Taken out of `self` while it is filled, because reading borrows the rest of `self`.
                let mut scratch = std::mem::take(&mut self.scratch);
                let stored = &mut scratch[..part.len() * size];
                let read = self.read_voxels(channel, source, stored);
                byte_order.swap_to_native(size, stored);
                let decoded = decode(element_type, scaling, stored, part);
                self.scratch = scratch;
                read?;
                decoded.map_err(|error| decode_error(&self.path, &geometry, channel, source, error))?;
                source += part.len();
            }
        }
        Ok(())
    }

    /// Reads the bytes of consecutive voxels in the file's byte order.
    fn read_voxels(&mut self, channel: usize, first: usize, bytes: &mut [u8]) -> Result<(), VolumeError> {
        let size = self.layout.element_type.size() as u64;
        let channel_start = channel as u64 * self.layout.geometry.voxel_count() as u64;
        let offset = self.layout.start + (channel_start + first as u64) * size;
        let end = self.layout.end();
        let stream = match &mut self.source {
            Source::Nifti { stream, .. } => stream,
            Source::Picture(picture) => return picture.read(channel, first, bytes, &self.path),
            // Whose only channel it is, as was checked.
            Source::Stack(stack) => return stack.read(first * size as usize, bytes),
        };
        let failed = |stream: &ByteStream, error| damaged_or_refused(&self.path, stream, end, error);
        stream.read_exact_at(offset, bytes).map_err(|error| failed(stream, error))?;
        if stream.position() == end {
            let most = end.max(TRAILING);
            let is_whole = stream.verify_rest(most).map_err(|error| failed(stream, error))?;
            if !is_whole {
                return Err(VolumeError::Trailing { path: self.path.clone(), end, most });
            }
        }
        Ok(())
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

fn open(path: &Path) -> Result<ByteStream, VolumeError> {
    ByteStream::open(path).map_err(|source| VolumeError::Io { path: path.into(), action: "open", source })
}

fn read_header(path: &Path, stream: &mut ByteStream) -> Result<NiftiHeader, VolumeError> {
    let mut bytes = [0; NiftiVersion::Two.header_size()];
    let mut read = |from: usize, part: &mut [u8]| {
        let to = (from + part.len()) as u64;
        stream.read_exact_at(from as u64, part).map_err(|error| {
            match damaged_or_refused(path, stream, to, error) {
                VolumeError::TooShort { path, found, .. } => VolumeError::NoHeader { path, found },
                other => other,
            }
        })
    };
    let mut start = [0; 4];
    read(0, &mut start)?;
    let in_header = |problem| VolumeError::Header { path: path.into(), problem };
    let (version, byte_order) = NiftiHeader::detect(start).map_err(in_header)?;
    let (head, rest) = bytes.split_at_mut(start.len());
    head.copy_from_slice(&start);
    read(start.len(), &mut rest[..version.header_size() - start.len()])?;
    NiftiHeader::decode(version, byte_order, &bytes).map_err(in_header)
}

fn check_length(path: &Path, stream: &ByteStream, layout: &Layout) -> Result<(), VolumeError> {
    let (needed, found) = (layout.end(), stream.stored_length());
    if !stream.is_compressed() {
        return if needed <= found {
            Ok(())
        } else {
            Err(VolumeError::TooShort { path: path.into(), needed, found })
        };
    }
    let most = found.saturating_mul(DEFLATE_LIMIT);
    if needed <= most {
        Ok(())
    } else {
        Err(VolumeError::ImpossibleSize { path: path.into(), needed, compressed: found, most })
    }
}

/// Distinguishes a damaged file from an error of the operating system.
fn damaged_or_refused(path: &Path, stream: &ByteStream, expected: u64, error: io::Error) -> VolumeError {
    let path = path.into();
    let got = stream.position();
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
            if stream.is_compressed() {
                VolumeError::Damaged { path, expected, got, problem: error }
            } else {
                VolumeError::TooShort { path, needed: expected, found: got }
            }
        }
        _ => VolumeError::Io { path, action: "read", source: error },
    }
}
