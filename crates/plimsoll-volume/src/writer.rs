//! Writing an image plane by plane, so that it appears only when it is complete.

use std::fmt;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use plimsoll_disk::ScratchFile;
use plimsoll_disk::atomic::{AtomicFile, BUFFER};
use plimsoll_image::{Extent, write_label_png};
use plimsoll_memory::Bytes;

use crate::nifti::{LabelTable, NiftiHeader};
use crate::nifti_file::names;
use crate::nifti_file::names::Compressed;
use crate::picture::is_picture;
use crate::stack::StackWriter;
use crate::stack::is_tiff;
use crate::zstd::FrameWriter;
use crate::{ByteOrder, ElementType, Geometry, Segment, VolumeError, meta_image, nrrd};

/// The tolerance in millimetres between the positions of a voxel on the template's grid and on the given one: either
/// may have been rounded to f32.
const SAME_PLACE: f64 = 1e-3;

/// Level 3 of 9. Against level 6: CT images are as small in half the time; label maps shrink to 1 % of their size
/// instead of 0.5 %, in a fifth of the time.
const LEVEL: u32 = 3;

/// An image that is being written, plane by plane in order. Until [`finish`](Self::finish) the data are in an
/// [`AtomicFile`]: if the writer fails or is dropped before, an older file of the name is still there.
pub struct VolumeWriter {
    path: PathBuf,
    /// `None` once the file is finished or abandoned.
    output: Option<Output>,
    element_type: ElementType,
    plane_bytes: usize,
    planes: u64,
    written: u64,
}

enum Output {
    Plain(BufWriter<AtomicFile>),
    Compressed(Box<GzEncoder<BufWriter<AtomicFile>>>),
    /// A compressed file, with the position in the header of the length of the compressed data.
    Deflated(Box<ZlibEncoder<BufWriter<AtomicFile>>>, u64),
    /// Voxels in a file beside the header's, which is already written.
    Apart {
        voxels: BufWriter<AtomicFile>,
        header: BufWriter<AtomicFile>,
    },
    Picture(BufWriter<AtomicFile>, Extent),
    Stack(Box<StackWriter>),
    Zstandard(FrameWriter<BufWriter<AtomicFile>>),
    /// Channels one after the other, which are together in the file.
    Together(Box<Interleaved>),
}

/// Channels that come one after the other and whose voxels are written together: they wait in a file without a name.
struct Interleaved {
    waiting: ScratchFile,
    written: u64,
    channels: usize,
    /// Bytes of a voxel, and of all voxels of a channel.
    voxel: usize,
    channel: u64,
    to: Output,
}

impl Interleaved {
    /// Bytes of all channels that are put together at a time: equally many for images of many channels as of few.
    const TOGETHER: usize = 4 * BUFFER;

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.waiting.write_all_at(self.written, bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Writes all channels.
    fn put_together(mut self) -> io::Result<Output> {
        let Interleaved { waiting, channels, voxel, channel, to, .. } = &mut self;
        let voxels = (Interleaved::TOGETHER / (*voxel * *channels).max(1)).max(1);
        let most = voxels * *voxel;
        let (mut of_channel, mut all) = (vec![0; most], vec![0; most * *channels]);
        let mut start = 0;
        while start < *channel {
            let length = usize::try_from(*channel - start).map_or(most, |left| left.min(most));
            let together = &mut all[..length * *channels];
            for number in 0..*channels {
                let of_channel = &mut of_channel[..length];
                waiting.read_exact_at(number as u64 * *channel + start, of_channel)?;
                let places = together.chunks_exact_mut(*voxel).skip(number).step_by(*channels);
                places.zip(of_channel.chunks_exact(*voxel)).for_each(|(to, from)| to.copy_from_slice(from));
            }
            to.write(together)?;
            start += length as u64;
        }
        Ok(self.to)
    }
}

/// The voxels of an image that is written.
#[derive(Clone, Copy)]
struct Voxels {
    channels: usize,
    element_type: ElementType,
}

impl Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Output::Plain(file) => file.write_all(bytes),
            Output::Compressed(file) => file.write_all(bytes),
            Output::Deflated(file, _) => file.write_all(bytes),
            Output::Apart { voxels, .. } => voxels.write_all(bytes),
            // Its only plane.
            Output::Picture(file, extent) => write_label_png(file, *extent, bytes),
            Output::Stack(file) => file.write(bytes),
            Output::Zstandard(file) => file.write_all(bytes),
            Output::Together(file) => file.write(bytes),
        }
    }

    /// Writes out what is buffered.
    fn flush(self) -> io::Result<AtomicFile> {
        let file = match self {
            Output::Plain(file) | Output::Picture(file, _) => file,
            Output::Compressed(file) => file.finish()?,
            // A header that names voxels is there only once they are.
            Output::Apart { voxels, header } => {
                voxels.into_inner().map_err(io::IntoInnerError::into_error)?.commit()?;
                header
            }
            Output::Deflated(mut encoder, place) => {
                encoder.try_finish()?;
                let length = meta_image::length(encoder.total_out());
                let mut file = encoder.finish()?;
                file.seek(SeekFrom::Start(place))?;
                file.write_all(length.as_bytes())?;
                file
            }
            Output::Stack(file) => file.finish()?,
            Output::Zstandard(file) => file.finish()?,
            Output::Together(file) => return file.put_together()?.flush(),
        };
        file.into_inner().map_err(io::IntoInnerError::into_error)
    }
}

impl VolumeWriter {
    /// The most memory of a file that is being written, without its planes: zlib's window and tables, or Zstandard's; buffers;
    /// and channels that are put together.
    pub const BYTES: Bytes = Bytes::mib(1);

    /// Starts the file `path` (`.nii`, or `.nii.gz` or `.nii.zst` to compress it) of voxels `[channel][depth][height][width]`.
    ///
    /// With a `template`, the header of an image on the same grid, its version, texts, units, sform and qform are kept;
    /// sizes and voxel type are replaced, and scaling, display range and intent are cleared. Extensions are not copied.
    /// Without, the header is NIfTI-1 (NIfTI-2 if an axis is longer than 32767) in millimetres with the affine as
    /// sform, code 1. The bytes are little-endian.
    ///
    /// One plane of one channel with 8 bits may be named `.png`, and planes of one channel with 8 or 16 bits `.tif` or `.tiff`, which have no
    /// header to keep. Of several planes in TIFF the spacing is written beside them, into a file of the same name with `.json`.
    ///
    /// `.nrrd` and `.mha` are compressed, with the affine alone: a template is of NIfTI and not used. `.mhd` has its voxels as they are in a file
    /// of the same name with `.raw`. Both of MetaImage have the channels of a voxel together: where there are several, they wait in a file
    /// without a name beside it, and are written in the end.
    ///
    /// # Errors
    /// Returns an error if the name is not `.nii`, `.nii.gz`, `.nii.zst`, `.nrrd`, `.mha`, `.mhd`, `.png`, `.tif` or
    /// `.tiff`, the template is on another grid, the file cannot be created, or a `.mhd` does not exist but a `.raw` of
    /// its name does: it belongs to another image, or was left by a killed process.
    pub fn create(
        path: impl AsRef<Path>,
        geometry: &Geometry,
        channels: usize,
        element_type: ElementType,
        template: Option<&NiftiHeader>,
    ) -> Result<VolumeWriter, VolumeError> {
        VolumeWriter::start(path.as_ref(), geometry, Voxels { channels, element_type }, template, None)
    }

    /// Starts a label map of one channel in the same way, with the names of its labels in an extension of its header; a picture has no
    /// place for them.
    ///
    /// # Errors
    /// Returns the errors of [`VolumeWriter::create`].
    pub fn create_named(
        path: impl AsRef<Path>,
        geometry: &Geometry,
        element_type: ElementType,
        template: Option<&NiftiHeader>,
        labels: &LabelTable,
    ) -> Result<VolumeWriter, VolumeError> {
        VolumeWriter::start(
            path.as_ref(),
            geometry,
            Voxels { channels: 1, element_type },
            template,
            Some(labels),
        )
    }

    /// Starts a segmentation of 3D Slicer's, `.seg.nrrd`, of labels of 8 or 16 bits, compressed.
    ///
    /// # Errors
    /// Returns an error if the name does not end in `.seg.nrrd`, voxels are of another type, the size cannot be
    /// written, or the file cannot be created.
    pub fn create_segmentation(
        path: impl AsRef<Path>,
        geometry: &Geometry,
        element_type: ElementType,
        segments: &[Segment],
    ) -> Result<VolumeWriter, VolumeError> {
        let path = path.as_ref();
        if !nrrd::is_segmentation(path) || !matches!(element_type, ElementType::U8 | ElementType::U16) {
            return Err(VolumeError::UnwrittenName { path: path.into() });
        }
        let header = nrrd::header(geometry, 1, element_type, Some(segments));
        VolumeWriter::with_text(path, geometry, Voxels { channels: 1, element_type }, header, |file| {
            Output::Compressed(Box::new(GzEncoder::new(file, Compression::new(LEVEL))))
        })
    }

    /// Starts a file with a header of uncompressed text, and compressed voxels behind it.
    fn with_text(
        path: &Path,
        geometry: &Geometry,
        voxels: Voxels,
        header: String,
        compressed: impl FnOnce(BufWriter<AtomicFile>) -> Output,
    ) -> Result<VolumeWriter, VolumeError> {
        let Voxels { channels, element_type } = voxels;
        let (plane_bytes, planes) = sizes(path, geometry, channels, element_type)?;
        let mut file = create(path)?;
        file.write_all(header.as_bytes()).map_err(|source| VolumeError::Io {
            path: path.into(),
            action: "write",
            source,
        })?;
        let output = Some(compressed(file));
        Ok(VolumeWriter { path: path.into(), output, element_type, plane_bytes, planes, written: 0 })
    }

    fn start(
        path: &Path,
        geometry: &Geometry,
        voxels: Voxels,
        template: Option<&NiftiHeader>,
        labels: Option<&LabelTable>,
    ) -> Result<VolumeWriter, VolumeError> {
        let Voxels { channels, element_type } = voxels;
        if nrrd::is_name(path) {
            let header = nrrd::header(geometry, channels, element_type, None);
            return VolumeWriter::with_text(path, geometry, voxels, header, |file| {
                Output::Compressed(Box::new(GzEncoder::new(file, Compression::new(LEVEL))))
            });
        }
        let apart = meta_image::voxels_of(path);
        if channels > 1 && (apart.is_some() || meta_image::is_name(path)) {
            let mut writer = VolumeWriter::start_meta_image(path, geometry, voxels, apart)?;
            let failed = |source| VolumeError::Io { path: path.into(), action: "write", source };
            let channel = writer.plane_bytes as u64 * (writer.planes / channels as u64);
            let waiting =
                ScratchFile::beside(path, writer.plane_bytes as u64 * writer.planes).map_err(failed)?;
            let voxel = element_type.size();
            writer.output = writer.output.take().map(|to| {
                Output::Together(Box::new(Interleaved { waiting, written: 0, channels, voxel, channel, to }))
            });
            return Ok(writer);
        }
        if apart.is_some() || meta_image::is_name(path) {
            return VolumeWriter::start_meta_image(path, geometry, voxels, apart);
        }
        VolumeWriter::start_others(path, geometry, voxels, template, labels)
    }

    /// Starts a MetaImage, whose voxels may be in a file beside the header's. Channels must be written together.
    fn start_meta_image(
        path: &Path,
        geometry: &Geometry,
        voxels: Voxels,
        apart: Option<PathBuf>,
    ) -> Result<VolumeWriter, VolumeError> {
        let Voxels { channels, element_type } = voxels;
        if let Some(of_voxels) = apart {
            let name = of_voxels.file_name().and_then(|name| name.to_str());
            let name = name.ok_or_else(|| VolumeError::UnwrittenName { path: path.into() })?;
            let header = meta_image::header_apart(geometry, channels, element_type, name);
            // Without the header that it belongs to, it is another image's.
            if of_voxels.exists() && !path.exists() {
                let source = std::io::ErrorKind::AlreadyExists.into();
                return Err(VolumeError::Io { path: of_voxels, action: "replace", source });
            }
            let data = create(&of_voxels)?;
            return VolumeWriter::with_text(path, geometry, voxels, header, |header| Output::Apart {
                voxels: data,
                header,
            });
        }
        let (header, place) = meta_image::header(geometry, channels, element_type);
        VolumeWriter::with_text(path, geometry, voxels, header, |file| {
            Output::Deflated(Box::new(ZlibEncoder::new(file, Compression::new(LEVEL))), place)
        })
    }

    /// Starts NIfTI, a picture or a stack of them.
    fn start_others(
        path: &Path,
        geometry: &Geometry,
        voxels: Voxels,
        template: Option<&NiftiHeader>,
        labels: Option<&LabelTable>,
    ) -> Result<VolumeWriter, VolumeError> {
        let Voxels { channels, element_type } = voxels;
        let depth = geometry.shape()[0];
        let picture = is_picture(path);
        let is_png = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("png"));
        let is_writable = match element_type {
            ElementType::U8 => channels == 1 && (is_tiff(path) || is_png && depth == 1),
            ElementType::U16 => channels == 1 && is_tiff(path),
            _ => false,
        };
        if picture && !is_writable {
            return Err(VolumeError::UnwritablePicture { path: path.into(), channels, depth });
        }
        let compressed = if picture { Compressed::Not } else { names::compressed_on_write(path)? };
        let header = match template {
            None => NiftiHeader::for_geometry(geometry, channels, element_type),
            Some(template) => {
                check_template(path, geometry, template)?;
                template.describing(geometry, channels, element_type)
            }
        };
        let (plane_bytes, planes) = sizes(path, geometry, channels, element_type)?;
        let file = create(path)?;
        let output = if is_tiff(path) {
            // The spacing of a picture is no length.
            let spacing = (depth > 1).then(|| geometry.spacing());
            let [_, height, width] = geometry.shape();
            let compression = Compression::new(LEVEL);
            let extent = [height, width];
            let started = StackWriter::start(path.into(), file, extent, element_type, spacing, compression);
            let failed = |source| VolumeError::Io { path: path.into(), action: "write", source };
            Output::Stack(Box::new(started.map_err(failed)?))
        } else if picture {
            Output::Picture(file, Extent { height: geometry.shape()[1], width: geometry.shape()[2] })
        } else {
            match compressed {
                Compressed::Gzip => {
                    Output::Compressed(Box::new(GzEncoder::new(file, Compression::new(LEVEL))))
                }
                Compressed::Zstandard => Output::Zstandard(FrameWriter::new(file)),
                Compressed::Not => Output::Plain(file),
            }
        };
        let mut writer = VolumeWriter {
            path: path.into(),
            output: Some(output),
            element_type,
            plane_bytes,
            planes,
            written: 0,
        };
        if !picture {
            writer.write(&header.encode(labels))?;
        }
        Ok(writer)
    }

    /// Bytes of one plane (height × width) of one channel.
    pub fn plane_bytes(&self) -> usize {
        self.plane_bytes
    }

    /// Writes the next planes, one or several, in the stored type and this machine's byte order.
    ///
    /// # Errors
    /// Returns an error if `voxels` is not a whole number of planes, there are more than the volume has, or the disk
    /// fails, in which case the file is abandoned.
    pub fn write_planes(&mut self, voxels: &[u8]) -> Result<(), VolumeError> {
        if !voxels.len().is_multiple_of(self.plane_bytes) {
            let (path, found, plane) = (self.path.clone(), voxels.len(), self.plane_bytes);
            return Err(VolumeError::PartialPlane { path, found, plane });
        }
        let written = self.written + (voxels.len() / self.plane_bytes) as u64;
        if written > self.planes {
            return Err(VolumeError::PlaneCount { path: self.path.clone(), planes: self.planes, written });
        }
        if ByteOrder::NATIVE == ByteOrder::Little {
            self.write(voxels)?;
        } else {
            let mut swapped = [0; 4096];
            for part in voxels.chunks(swapped.len()) {
                let swapped = &mut swapped[..part.len()];
                swapped.copy_from_slice(part);
                ByteOrder::Little.swap_to_native(self.element_type.size(), swapped);
                self.write(swapped)?;
            }
        }
        self.written = written;
        Ok(())
    }

    /// Writes what is buffered, waits until the disk has it, and gives the file its name, replacing an older file.
    ///
    /// # Errors
    /// Returns an error if planes are missing or the disk fails. An older file of the name then remains.
    pub fn finish(mut self) -> Result<(), VolumeError> {
        if self.written != self.planes {
            let (path, planes, written) = (self.path.clone(), self.planes, self.written);
            return Err(VolumeError::PlaneCount { path, planes, written });
        }
        let Some(output) = self.output.take() else {
            return Err(VolumeError::Abandoned { path: self.path.clone() });
        };
        output.flush().and_then(AtomicFile::commit).map_err(|source| VolumeError::Io {
            path: self.path.clone(),
            action: "write",
            source,
        })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), VolumeError> {
        let Some(output) = &mut self.output else {
            return Err(VolumeError::Abandoned { path: self.path.clone() });
        };
        output.write(bytes).map_err(|source| {
            self.output = None;
            VolumeError::Io { path: self.path.clone(), action: "write", source }
        })
    }
}

impl fmt::Debug for VolumeWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VolumeWriter({}, {} of {} planes)", self.path.display(), self.written, self.planes)
    }
}

/// Bytes of a plane of one channel, and how many planes of all channels there are.
fn sizes(
    path: &Path,
    geometry: &Geometry,
    channels: usize,
    element_type: ElementType,
) -> Result<(usize, u64), VolumeError> {
    let [depth, height, width] = geometry.shape();
    let plane_bytes = (height * width).checked_mul(element_type.size());
    let planes = (depth as u64).checked_mul(channels as u64);
    let (Some(plane_bytes), Some(planes)) = (plane_bytes, planes) else {
        return Err(VolumeError::UnwritableSize { path: path.into(), channels, plane: usize::MAX });
    };
    // No larger than the reader accepts.
    let bytes = planes.checked_mul(plane_bytes as u64).filter(|bytes| *bytes < i64::MAX as u64 / 2);
    if channels == 0 || bytes.is_none() {
        return Err(VolumeError::UnwritableSize { path: path.into(), channels, plane: plane_bytes });
    }
    Ok((plane_bytes, planes))
}

fn create(path: &Path) -> Result<BufWriter<AtomicFile>, VolumeError> {
    let created = AtomicFile::create(path);
    let file = created.map_err(|source| VolumeError::Io { path: path.into(), action: "create", source })?;
    Ok(BufWriter::with_capacity(BUFFER, file))
}

fn check_template(path: &Path, geometry: &Geometry, template: &NiftiHeader) -> Result<(), VolumeError> {
    let layout = template.layout().map_err(|problem| VolumeError::Template { path: path.into(), problem })?;
    match geometry.difference(&layout.geometry, SAME_PLACE) {
        None => Ok(()),
        Some(difference) => Err(VolumeError::TemplateDiffers { path: path.into(), difference }),
    }
}
