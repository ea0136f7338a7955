//! Slices as an image of NIfTI, one after the other.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_memory::{Budget, Mapped};
use plimsoll_volume::{ElementType, VolumeWriter};

use crate::header::Slice;
use crate::pixels::Decoder;
use crate::{DicomError, Series};

impl Series {
    /// The type of real values: whole numbers of 16 bits if all values that may be stored fit, otherwise floats.
    pub(crate) fn element_type(&self) -> ElementType {
        if self.slices.iter().all(is_short) { ElementType::I16 } else { ElementType::F32 }
    }

    /// Writes the volume, rescaled: as whole numbers of 16 bits, where all that may be stored fits them, or else as floats.
    ///
    /// # Errors
    /// Returns an error if a slice cannot be decoded, the image cannot be written, the budget has no room for a slice
    /// and for decoding it, or `stop` is set. Nothing is written then.
    pub fn write(&self, to: &Path, budget: &Budget, stop: &AtomicBool) -> Result<(), DicomError> {
        let element = self.element_type();
        let [_, rows, columns] = self.geometry().shape();
        let mut writer = VolumeWriter::create(to, self.geometry(), 1, element, None)?;
        let mut plane = Mapped::<u8>::zeroed(budget, "a slice", writer.plane_bytes())?;
        let mut decoder = Decoder::new(rows * columns, budget)?;
        for slice in &*self.slices {
            if stop.load(Ordering::Relaxed) {
                return Err(DicomError::Interrupted { folder: self.folder.clone() });
            }
            rescale(slice, decoder.decode(slice)?, element, &mut plane);
            writer.write_planes(&plane)?;
        }
        Ok(writer.finish()?)
    }
}

/// Returns `true` if all real values that a slice may have are whole numbers of 16 bits.
fn is_short(slice: &Slice) -> bool {
    let (slope, intercept) = (slice.plane.slope, slice.plane.intercept);
    let sample = slice.header.sample;
    let most = f64::from(sample.bits).exp2();
    let stored = if sample.is_signed { [-most / 2.0, most / 2.0 - 1.0] } else { [0.0, most - 1.0] };
    let fits =
        |stored: f64| (f64::from(i16::MIN)..=f64::from(i16::MAX)).contains(&(stored * slope + intercept));
    slope.fract() == 0.0 && intercept.fract() == 0.0 && stored.into_iter().all(fits)
}

/// Puts the real values of a slice into a plane of voxels.
pub(crate) fn rescale(slice: &Slice, stored: &[u16], element: ElementType, plane: &mut [u8]) {
    let sample = slice.header.sample;
    let (slope, intercept) = (slice.plane.slope, slice.plane.intercept);
    let real = stored.iter().map(|stored| f64::from(sample.number(*stored)) * slope + intercept);
    match element {
        // All that the bits can say fits.
        ElementType::I16 => {
            let to = plane.as_chunks_mut::<2>().0;
            to.iter_mut().zip(real).for_each(|(to, value)| *to = (value as i16).to_ne_bytes());
        }
        _ => {
            let to = plane.as_chunks_mut::<4>().0;
            to.iter_mut().zip(real).for_each(|(to, value)| *to = (value as f32).to_ne_bytes());
        }
    }
}
