//! Writing an image plane by plane, so that its name appears only once it is whole.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::nifti::{NiftiHeader, names};
use crate::{ByteOrder, ElementType, Geometry, VolumeError};

/// How far, in millimetres, the template's grid may put a voxel from where the given one does: both may have gone
/// through f32.
const SAME_PLACE: f64 = 1e-3;

/// What is given to the file at once.
const BUFFER: usize = 64 << 10;

/// Level 3 of 9: on CT as small as level 6 in half the time; label maps come to 1 % of their size instead of half of
/// that, in a fifth of the time.
const LEVEL: u32 = 3;

/// An image that is being written. Planes come in order; [`finish`](Self::finish) gives the file its name. Until then
/// everything is in a file beside it with a name of its own; if the writer is dropped before, or fails, that file is
/// removed and nothing has changed.
pub struct VolumeWriter {
    path: PathBuf,
    temporary: PathBuf,
    /// `None` once the file is finished or given up.
    output: Option<Output>,
    element_type: ElementType,
    plane_bytes: usize,
    planes: u64,
    written: u64,
}

enum Output {
    Plain(BufWriter<File>),
    Compressed(Box<GzEncoder<BufWriter<File>>>),
}

impl Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Output::Plain(file) => file.write_all(bytes),
            Output::Compressed(file) => file.write_all(bytes),
        }
    }

    /// Writes out what is still held back, and waits until the disk has it.
    fn finish(self) -> io::Result<()> {
        let file = match self {
            Output::Plain(file) => file,
            Output::Compressed(file) => file.finish()?,
        };
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
    }
}

impl VolumeWriter {
    /// Starts the file `path` (`.nii`, or `.nii.gz` to compress it) of voxels `[channel][depth][height][width]`.
    ///
    /// With a `template`, the header of an image on the same grid, its version, texts, units, sform and qform are
    /// kept as they are; sizes and the voxel type are replaced, and scaling, display range and intent are cleared.
    /// Extensions are not copied. Without, the header is NIfTI-1 (NIfTI-2 if an axis is longer than 32767) in
    /// millimetres with the affine as sform, code 1. The bytes are little-endian.
    ///
    /// # Errors
    /// If the name is not `.nii` or `.nii.gz`, the template is on another grid, or the file cannot be created.
    pub fn create(
        path: impl AsRef<Path>,
        geometry: &Geometry,
        channels: usize,
        element_type: ElementType,
        template: Option<&NiftiHeader>,
    ) -> Result<VolumeWriter, VolumeError> {
        let path = path.as_ref();
        let compress = names::is_compressed_on_write(path)?;
        let header = match template {
            None => NiftiHeader::for_geometry(geometry, channels, element_type),
            Some(template) => {
                check_template(path, geometry, template)?;
                template.describing(geometry, channels, element_type)
            }
        };
        let [depth, height, width] = geometry.shape();
        let plane_bytes = (height * width).checked_mul(element_type.size());
        let planes = (depth as u64).checked_mul(channels as u64);
        let (Some(plane_bytes), Some(planes)) = (plane_bytes, planes) else {
            return Err(VolumeError::UnwritableSize { path: path.into(), channels, plane: usize::MAX });
        };
        // As much as can be read back.
        let bytes = planes.checked_mul(plane_bytes as u64).filter(|bytes| *bytes < i64::MAX as u64 / 2);
        if channels == 0 || bytes.is_none() {
            return Err(VolumeError::UnwritableSize { path: path.into(), channels, plane: plane_bytes });
        }
        let (file, temporary) = create_beside(path).map_err(|source| VolumeError::Io {
            path: path.into(),
            action: "create",
            source,
        })?;
        let file = BufWriter::with_capacity(BUFFER, file);
        let output = if compress {
            Output::Compressed(Box::new(GzEncoder::new(file, Compression::new(LEVEL))))
        } else {
            Output::Plain(file)
        };
        let mut writer = VolumeWriter {
            path: path.into(),
            temporary,
            output: Some(output),
            element_type,
            plane_bytes,
            planes,
            written: 0,
        };
        writer.write(&header.encode())?;
        Ok(writer)
    }

    /// Bytes of one plane (height × width) of one channel.
    pub fn plane_bytes(&self) -> usize {
        self.plane_bytes
    }

    /// Writes the next planes, one or several, in the stored type and this machine's byte order.
    ///
    /// # Errors
    /// If `voxels` is not a number of whole planes, there are more than the volume has, or the disk fails:
    /// then the file is given up.
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

    /// Writes what is left, waits until the disk has it, and gives the file its name, in place of a file that had it
    /// before.
    ///
    /// # Errors
    /// If planes are missing or the disk fails. Then a file that had the name before is still there.
    pub fn finish(mut self) -> Result<(), VolumeError> {
        if self.written != self.planes {
            let (path, planes, written) = (self.path.clone(), self.planes, self.written);
            return Err(VolumeError::PlaneCount { path, planes, written });
        }
        let Some(output) = self.output.take() else {
            return Err(VolumeError::Abandoned { path: self.path.clone() });
        };
        let error = |action, source| VolumeError::Io { path: self.path.clone(), action, source };
        let named = output
            .finish()
            .map_err(|source| error("write", source))
            .and_then(|()| fs::rename(&self.temporary, &self.path).map_err(|source| error("name", source)));
        if named.is_err() {
            // Nothing more can be done if this fails too; the first error is the one to report.
            let _ = fs::remove_file(&self.temporary);
            return named;
        }
        sync_folder(&self.path).map_err(|source| error("secure the name of", source))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), VolumeError> {
        let Some(output) = &mut self.output else {
            return Err(VolumeError::Abandoned { path: self.path.clone() });
        };
        output.write(bytes).map_err(|source| {
            self.give_up();
            VolumeError::Io { path: self.path.clone(), action: "write", source }
        })
    }

    fn give_up(&mut self) {
        if let Some(output) = self.output.take() {
            drop(output);
            // It is only litter; there is nobody to tell.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

impl Drop for VolumeWriter {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl fmt::Debug for VolumeWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VolumeWriter({}, {} of {} planes)", self.path.display(), self.written, self.planes)
    }
}

fn check_template(path: &Path, geometry: &Geometry, template: &NiftiHeader) -> Result<(), VolumeError> {
    let layout = template.layout().map_err(|problem| VolumeError::Template { path: path.into(), problem })?;
    match geometry.difference(&layout.geometry, SAME_PLACE) {
        None => Ok(()),
        Some(difference) => Err(VolumeError::TemplateDiffers { path: path.into(), difference }),
    }
}

/// Creates a file of a new name in the folder of `path`: only within one folder a rename is sure to be one step.
fn create_beside(path: &Path) -> io::Result<(File, PathBuf)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let temporary = path.with_file_name(format!(".{name}.{}-{count}.partial", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).open(&temporary) {
            // Left by a process of the same number that was killed: the next number is free some time.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => return other.map(|file| (file, temporary)),
        }
    }
}

/// Until its folder is on the disk as well, a new name can be lost with the power.
fn sync_folder(path: &Path) -> io::Result<()> {
    if cfg!(unix) {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    Ok(())
}
