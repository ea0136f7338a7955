//! Slices as an image of NIfTI, one after the other.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_memory::{Budget, Bytes, Mapped};
use plimsoll_volume::{ElementType, VolumeWriter};

use crate::header::{Header, open, opened_bytes};
use crate::pixels::each;
use crate::{DicomError, Series};

/// What decoding holds for each pixel: its bytes as they are in the file, and decoded from run lengths.
const DECODING: u64 = 6;

/// How often the bytes of a file are held: as they are read, and run lengths once more in one piece.
const COPIES: u64 = 2;

impl Series {
    /// Writes the volume, rescaled: as whole numbers of 16 bits, where all that may be stored fits them, or else as floats.
    ///
    /// # Errors
    /// If a slice cannot be decoded, the image cannot be written, the budget has no room for a file and what decoding it takes, or `stop`
    /// is set. Nothing is written then.
    pub fn write(&self, to: &Path, budget: &Budget, stop: &AtomicBool) -> Result<(), DicomError> {
        let element = if self.slices.iter().all(is_short) { ElementType::I16 } else { ElementType::F32 };
        let mut writer = VolumeWriter::create(to, self.geometry(), 1, element, None)?;
        let mut plane = Mapped::<u8>::zeroed(budget, "a slice", writer.plane_bytes())?;
        for slice in &self.slices {
            if stop.load(Ordering::Relaxed) {
                return Err(DicomError::Interrupted { folder: self.folder.clone() });
            }
            decode(slice, element, &mut plane, budget)?;
            writer.write_planes(&plane)?;
        }
        Ok(writer.finish()?)
    }
}

/// Whether all real values that a slice may have are whole numbers of 16 bits.
fn is_short(slice: &Header) -> bool {
    let is_whole = slice.slope.fract() == 0.0 && slice.intercept.fract() == 0.0;
    let fits = |stored: f64| {
        let value = stored * slice.slope + slice.intercept;
        (f64::from(i16::MIN)..=f64::from(i16::MAX)).contains(&value)
    };
    is_whole && slice.stored.into_iter().all(fits)
}

/// Decodes a slice into a plane of stored voxels.
fn decode(slice: &Header, element: ElementType, plane: &mut [u8], budget: &Budget) -> Result<(), DicomError> {
    let pixels = slice.rows as u64 * slice.columns as u64;
    let bytes = slice.length.saturating_mul(COPIES).saturating_add(pixels.saturating_mul(DECODING));
    let bytes = bytes.saturating_add(opened_bytes(&slice.path)?.0);
    let _decoding = budget.reserve("a slice of DICOM", Bytes(bytes))?;
    let unreadable = |why: String| DicomError::Unreadable { path: slice.path.clone(), why };
    let object = open(&slice.path, true)?;
    let real = |stored: i32| f64::from(stored) * slice.slope + slice.intercept;
    let count = slice.rows * slice.columns;
    let decoded = match element {
        ElementType::I16 => {
            let to = plane.as_chunks_mut::<2>().0;
            each(&object, slice.sample, count, |place, stored| {
                if let Some(to) = to.get_mut(place) {
                    // All that the bits can say fits.
                    *to = (real(stored) as i16).to_ne_bytes();
                }
            })
        }
        _ => {
            let to = plane.as_chunks_mut::<4>().0;
            each(&object, slice.sample, count, |place, stored| {
                if let Some(to) = to.get_mut(place) {
                    *to = (real(stored) as f32).to_ne_bytes();
                }
            })
        }
    };
    decoded.map_err(unreadable)
}
