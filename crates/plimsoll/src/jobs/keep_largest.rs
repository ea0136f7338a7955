//! Post-processing of label maps: of some labels only the largest component is kept.

use std::path::Path;

use plimsoll_memory::{Budget, Mapped};
use plimsoll_morphology::{Connectivity, Region, component_sizes, components};
use plimsoll_run::nnunet::KeepLargest;
use plimsoll_volume::{ElementType, VolumeError, VolumeFile, VolumeWriter};

use crate::failure::{Failure, Outcome};

/// Values of 16 bits.
const VALUES: usize = 1 << 16;

/// Reads a label map, does the steps one after the other, and writes it under another name. Returns how many voxels have become
/// background. Seven bytes for each voxel are held, and what numbering components takes.
pub fn keep_largest(
    from: &Path,
    to: &Path,
    steps: &[KeepLargest],
    budget: &Budget,
    threads: usize,
) -> Outcome<usize> {
    let mut file = VolumeFile::open(from)?;
    let (geometry, element) = (*file.geometry(), file.element_type());
    if !matches!(element, ElementType::U8 | ElementType::U16) {
        let message = format!("{} has voxels of {element}, but labels are of 8 or 16 bits", from.display());
        return Err(Failure::new(message, "process what `predict` wrote"));
    }
    let shape = geometry.shape();
    let voxels = shape.iter().product();
    let mut labels = Mapped::<u16>::zeroed(budget, "labels", voxels)?;
    let mut planes = labels.chunks_mut((voxels / shape[0].max(1)).max(1));
    file.for_each_plane(0, budget, |_, bytes| {
        let Some(plane) = planes.next() else { return Ok(()) };
        match element {
            ElementType::U8 => {
                plane.iter_mut().zip(bytes).for_each(|(label, byte)| *label = u16::from(*byte))
            }
            _ => {
                let pairs = bytes.as_chunks::<2>().0;
                plane.iter_mut().zip(pairs).for_each(|(label, pair)| *label = u16::from_ne_bytes(*pair));
            }
        }
        Ok::<(), VolumeError>(())
    })?;
    let mut inside = Mapped::<u8>::zeroed(budget, "a mask", voxels)?;
    let mut numbers = Mapped::<u32>::zeroed(budget, "components", voxels)?;
    let mut removed = 0;
    for step in steps {
        let mut of_step = vec![false; VALUES];
        for label in &step.labels {
            if let Some(of_step) = of_step.get_mut(usize::from(*label)) {
                *of_step = true;
            }
        }
        for (inside, label) in inside.iter_mut().zip(labels.iter()) {
            *inside = u8::from(of_step.get(usize::from(*label)).copied().unwrap_or(false));
        }
        let found = components(
            &inside,
            shape,
            Connectivity::Corners,
            Region::Foreground,
            &mut numbers,
            budget,
            threads,
        );
        let count =
            found.map_err(|error| Failure::new(format!("{}: {error}", from.display()), "raise --ram"))?;
        let sizes = component_sizes(&numbers, count, budget)?;
        let largest = sizes.iter().skip(1).copied().max().unwrap_or(0);
        for (label, number) in labels.iter_mut().zip(numbers.iter()) {
            let is_smaller = sizes.get(*number as usize).is_some_and(|size| *size < largest);
            if *number != 0 && is_smaller && *label != 0 {
                *label = 0;
                removed += 1;
            }
        }
    }
    let mut writer = VolumeWriter::create(to, &geometry, 1, element, file.header())?;
    let mut bytes = Mapped::<u8>::zeroed(budget, "a plane of labels", writer.plane_bytes())?;
    for plane in labels.chunks((voxels / shape[0].max(1)).max(1)) {
        match element {
            ElementType::U8 => bytes.iter_mut().zip(plane).for_each(|(byte, label)| *byte = *label as u8),
            _ => {
                let pairs = bytes.as_chunks_mut::<2>().0;
                pairs.iter_mut().zip(plane).for_each(|(pair, label)| *pair = label.to_le_bytes());
            }
        }
        writer.write_planes(&bytes)?;
    }
    writer.finish()?;
    Ok(removed)
}
