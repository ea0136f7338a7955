//! A label map as a segmentation of 3D Slicer's, `.seg.nrrd`. One plane is held at a time.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use plimsoll_memory::{Budget, Bytes, Mapped};
use plimsoll_volume::{ElementType, LabelTable, Segment, VolumeFile, VolumeWriter, VoxelBox};

use crate::error::InferError;
use crate::labels::label_maps::{WRITER, go_on, plane_of};

/// The smallest box of each value of 8 bits.
type Boxes = [Option<([usize; 3], [usize; 3])>; 256];

/// Writes a label map of 8 bits with the names of its labels; what has no name becomes background. The map is read twice: the extents of
/// labels stand before them.
///
/// # Errors
/// Returns an error if a file cannot be read or written, the budget has no room, or `stop` is set.
pub fn write_segmentation(
    labels: &Path,
    to: &Path,
    names: &LabelTable,
    budget: &Budget,
    stop: &AtomicBool,
) -> Result<(), InferError> {
    let mut file = VolumeFile::open_labels(labels)?;
    file.decode(budget)?;
    let geometry = *file.geometry();
    let [depth, height, width] = geometry.shape();
    let mut plane = Mapped::<u8>::zeroed(budget, "a plane of labels", height * width)?;
    let _writing = budget.reserve("a file being written", Bytes(WRITER.0))?;
    let mut boxes: Boxes = [None; 256];
    for d in 0..depth {
        go_on(labels, stop)?;
        file.region_labels(0, plane_of(d, [height, width]), &mut plane)?;
        grow(&mut boxes, &plane, d, width);
    }
    let extent = |value: u16| {
        let (first, last) = (*boxes.get(usize::from(value))?)?;
        Some(VoxelBox::between(first, last.map(|last| last + 1)))
    };
    let named = names.labels.iter();
    let segments: Vec<Segment> = named
        .map(|(value, name)| Segment { value: *value, name: name.clone(), extent: extent(*value) })
        .collect();
    let mut is_named = [false; 256];
    for segment in &segments {
        if let Some(named) = is_named.get_mut(usize::from(segment.value)) {
            *named = true;
        }
    }
    let writer = VolumeWriter::create_segmentation(to, &geometry, ElementType::U8, &segments);
    let mut writer = writer.map_err(InferError::Write)?;
    for d in 0..depth {
        go_on(labels, stop)?;
        file.region_labels(0, plane_of(d, [height, width]), &mut plane)?;
        plane.iter_mut().filter(|label| !is_named[usize::from(**label)]).for_each(|label| *label = 0);
        writer.write_planes(&plane).map_err(InferError::Write)?;
    }
    writer.finish().map_err(InferError::Write)
}

/// Grows the boxes of labels by a plane.
fn grow(boxes: &mut Boxes, plane: &[u8], d: usize, width: usize) {
    for (h, row) in plane.chunks(width.max(1)).enumerate() {
        let mut start = 0;
        for run in row.chunk_by(|one, next| one == next) {
            let (begin, end) = ([d, h, start], [d, h, start + run.len() - 1]);
            start += run.len();
            let Some(label) = run.first() else { continue };
            let (first, last) = boxes[usize::from(*label)].get_or_insert((begin, end));
            for axis in 0..3 {
                first[axis] = first[axis].min(begin[axis]);
                last[axis] = last[axis].max(end[axis]);
            }
        }
    }
}
