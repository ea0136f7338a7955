//! Label maps of several models of one image: put together, cut apart, measured. One plane of each is held at a time.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_memory::{Budget, Bytes, Mapped, Reservation};
use plimsoll_volume::{ElementType, LabelTable, VolumeFile, VolumeWriter, VoxelBox};

use crate::error::InferError;

/// The bytes that writing a file needs.
pub(crate) const WRITER: Bytes = VolumeWriter::BYTES;

/// The most files that are written in one pass over a label map.
const MOST_WRITERS: usize = 64;

/// The labels that a model has found, on the stored grid of its image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartLabels {
    /// Its label map.
    pub file: PathBuf,
    /// The value in the whole map for each of its values; 0 for values that are left out, such as all beyond the end.
    pub lookup: Vec<u8>,
}

/// A name of a label map that is written, and what its header is taken from.
pub struct Written<'a> {
    /// The file.
    pub path: &'a Path,
    /// An image on the same grid, whose header is kept.
    pub image: &'a Path,
    /// The names of its labels, which the header gets. Those without a name are not written: there is background.
    pub names: &'a LabelTable,
}

/// Puts the labels of several models together: where more than one has a label, the last counts, whether it has a name or not. Without any
/// there is background alone.
///
/// # Errors
/// Returns an error if a file cannot be read or written, has another shape than the image, the budget has no room, or `stop` is set.
pub fn merge_labels(
    parts: &[PartLabels],
    to: &Written<'_>,
    budget: &Budget,
    stop: &AtomicBool,
) -> Result<(), InferError> {
    let image = VolumeFile::open(to.image)?;
    let geometry = *image.geometry();
    let [depth, height, width] = geometry.shape();
    let mut files = Vec::with_capacity(parts.len());
    for part in parts {
        let file = VolumeFile::open_labels(&part.file)?;
        if file.geometry().shape() != geometry.shape() {
            let (found, expected) = (file.geometry().shape(), geometry.shape());
            return Err(InferError::OtherShape { path: part.file.clone(), found, expected });
        }
        files.push((file, &part.lookup));
    }
    let _writing = writing(1, budget)?;
    let (mut plane, mut of_part) = (labels_of(height * width, budget)?, labels_of(height * width, budget)?);
    let mut writer =
        VolumeWriter::create_named(to.path, &geometry, ElementType::U8, image.header(), to.names)
            .map_err(InferError::Write)?;
    let is_named = values(to.names.labels.iter().map(|(value, _)| *value));
    for d in 0..depth {
        go_on(to.path, stop)?;
        plane.fill(0);
        for (file, lookup) in &mut files {
            file.region_labels(0, plane_of(d, [height, width]), &mut of_part)?;
            for (label, found) in plane.iter_mut().zip(of_part.iter()) {
                match lookup.get(usize::from(*found)) {
                    None | Some(0) => {}
                    Some(value) => *label = *value,
                }
            }
        }
        plane.iter_mut().filter(|label| !is_named[usize::from(**label)]).for_each(|label| *label = 0);
        writer.write_planes(&plane).map_err(InferError::Write)?;
    }
    writer.finish().map_err(InferError::Write)
}

/// Writes a label map's labels as masks, 0 and 1, each into a file of its own: `FOLDER/NAME.nii.gz`. Files that are there are replaced.
///
/// # Errors
/// Returns an error if a file cannot be read or written, the budget has no room, or `stop` is set; masks that are complete by then are left.
pub fn split_labels(
    labels: &Path,
    folder: &Path,
    names: &LabelTable,
    budget: &Budget,
    stop: &AtomicBool,
) -> Result<(), InferError> {
    let mut file = VolumeFile::open_labels(labels)?;
    let geometry = *file.geometry();
    let header = file.header().cloned();
    let [depth, height, width] = geometry.shape();
    let (mut plane, mut mask) = (labels_of(height * width, budget)?, labels_of(height * width, budget)?);
    let room =
        usize::try_from(budget.limit().0.saturating_sub(budget.used().0) / WRITER.0).unwrap_or(MOST_WRITERS);
    let at_once = room.clamp(1, MOST_WRITERS);
    for names in names.labels.chunks(at_once) {
        let _writing = writing(names.len(), budget)?;
        let mut writers = Vec::with_capacity(names.len());
        for (value, name) in names {
            let path = folder.join(format!("{name}.nii.gz"));
            let writer = VolumeWriter::create(path, &geometry, 1, ElementType::U8, header.as_ref());
            writers.push((*value, writer.map_err(InferError::Write)?));
        }
        for d in 0..depth {
            go_on(labels, stop)?;
            file.region_labels(0, plane_of(d, [height, width]), &mut plane)?;
            for (value, writer) in &mut writers {
                for (voxel, label) in mask.iter_mut().zip(plane.iter()) {
                    *voxel = u8::from(u16::from(*label) == *value);
                }
                writer.write_planes(&mask).map_err(InferError::Write)?;
            }
        }
        for (_, writer) in writers {
            writer.finish().map_err(InferError::Write)?;
        }
    }
    Ok(())
}

/// The smallest box of a label map that has all voxels of some values; `None` if it has none.
///
/// # Errors
/// Returns an error if the file cannot be read, the budget has no room, or `stop` is set.
pub fn box_of_labels(
    labels: &Path,
    values: &[u16],
    budget: &Budget,
    stop: &AtomicBool,
) -> Result<Option<VoxelBox>, InferError> {
    let mut file = VolumeFile::open_labels(labels)?;
    let [depth, height, width] = file.geometry().shape();
    let mut plane = labels_of(height * width, budget)?;
    let wanted = self::values(values.iter().copied());
    let mut found: Option<([usize; 3], [usize; 3])> = None;
    for d in 0..depth {
        go_on(labels, stop)?;
        file.region_labels(0, plane_of(d, [height, width]), &mut plane)?;
        for (place, _) in plane.iter().enumerate().filter(|(_, label)| wanted[usize::from(**label)]) {
            let at = [d, place / width, place % width];
            let (first, last) = found.get_or_insert((at, at));
            for axis in 0..3 {
                first[axis] = first[axis].min(at[axis]);
                last[axis] = last[axis].max(at[axis]);
            }
        }
    }
    Ok(found.map(|(first, last)| VoxelBox::between(first, last.map(|last| last + 1))))
}

/// Returns a table that marks some of all values of a voxel.
fn values(some: impl Iterator<Item = u16>) -> [bool; 256] {
    let mut all = [false; 256];
    for value in some {
        if let Some(among) = all.get_mut(usize::from(value)) {
            *among = true;
        }
    }
    all
}

fn labels_of(voxels: usize, budget: &Budget) -> Result<Mapped<u8>, InferError> {
    Ok(Mapped::zeroed(budget, "planes of labels", voxels)?)
}

pub(crate) fn writing(files: usize, budget: &Budget) -> Result<Reservation, InferError> {
    Ok(budget.reserve("files being written", Bytes(WRITER.0 * files as u64))?)
}

pub(crate) fn plane_of(d: usize, [height, width]: [usize; 2]) -> VoxelBox {
    VoxelBox { start: [d, 0, 0], shape: [1, height, width] }
}

pub(crate) fn go_on(file: &Path, stop: &AtomicBool) -> Result<(), InferError> {
    match stop.load(Ordering::Relaxed) {
        true => Err(InferError::Interrupted { case: file.display().to_string() }),
        false => Ok(()),
    }
}
