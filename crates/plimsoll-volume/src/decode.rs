//! Decoding stored voxels to intensities (f32) and labels (u8).

use bytemuck::Pod;

use crate::{ElementType, Scaling};

/// The tolerance of scaled values around labels: slopes are stored as f32, so that labels that were whole before they
/// were stored may come back slightly off. Without scaling a label must be whole.
const SCALED_LABEL_TOLERANCE: f64 = 1e-3;

/// Why voxels could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum DecodeError {
    /// The buffers do not hold the same number of voxels.
    #[error("{bytes} bytes of {element_type} do not make {voxels} voxels")]
    Length {
        /// The stored type.
        element_type: ElementType,
        /// The length of the input.
        bytes: usize,
        /// The length of the output.
        voxels: usize,
    },
    /// A voxel of a label map is not a label.
    #[error("voxel {position} is {value}, which is not a label: labels are whole numbers from 0 to 255")]
    NotALabel {
        /// The index of the voxel in the buffer.
        position: usize,
        /// The value after scaling.
        value: f64,
    },
}

impl DecodeError {
    /// A remedy to suggest to the user.
    pub fn remedy(&self) -> Option<String> {
        match self {
            DecodeError::Length { .. } => None,
            DecodeError::NotALabel { value, .. } if *value > 255.0 && value.fract() == 0.0 => Some(format!(
                "labels are from 0 to 255: renumber {value} as one of these that no other label has, in the label maps and in the description \
                 (with NumPy: labels[labels == {value}] = …, saved as 8 bits); a .seg.nrrd of 3D Slicer is read by the names of its segments, \
                 whatever their values"
            )),
            DecodeError::NotALabel { .. } => Some(
                "if this is an image, not a label map, it is in the wrong folder; \
                 otherwise save the labels as whole numbers, with nearest-neighbour interpolation"
                    .into(),
            ),
        }
    }
}

/// A number as it is stored in a file.
trait Stored: Pod {
    fn to_f32(self) -> f32;
    fn to_f64(self) -> f64;
}

macro_rules! stored {
    ($($number:ty)*) => {$(
        impl Stored for $number {
            fn to_f32(self) -> f32 {
                self as f32
            }
            fn to_f64(self) -> f64 {
                self as f64
            }
        }
    )*};
}

stored!(u8 i8 u16 i16 u32 i32 u64 i64 f32 f64);

/// Calls a function that is generic over the stored type with the type that `$element_type` names.
macro_rules! with_stored_type {
    ($element_type:expr, $function:ident($($argument:expr),*)) => {
        match $element_type {
            ElementType::U8 => $function::<u8>($($argument),*),
            ElementType::I8 => $function::<i8>($($argument),*),
            ElementType::U16 => $function::<u16>($($argument),*),
            ElementType::I16 => $function::<i16>($($argument),*),
            ElementType::U32 => $function::<u32>($($argument),*),
            ElementType::I32 => $function::<i32>($($argument),*),
            ElementType::U64 => $function::<u64>($($argument),*),
            ElementType::I64 => $function::<i64>($($argument),*),
            ElementType::F32 => $function::<f32>($($argument),*),
            ElementType::F64 => $function::<f64>($($argument),*),
        }
    };
}

/// The elements of a buffer of any alignment.
fn elements<T: Pod>(bytes: &[u8]) -> impl Iterator<Item = T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned)
}

fn check_length(element_type: ElementType, bytes: usize, voxels: usize) -> Result<(), DecodeError> {
    if voxels.checked_mul(element_type.size()) == Some(bytes) {
        return Ok(());
    }
    Err(DecodeError::Length { element_type, bytes, voxels })
}

/// Decodes stored voxels (native byte order, any alignment) to f32 with the scaling applied. The scaling is computed in
/// f64 and rounded once; values that f32 cannot represent are rounded to the nearest that it can, or to infinity.
///
/// # Errors
/// Returns an error if `bytes` and `voxels` do not have the same number of voxels.
pub fn decode_f32(
    element_type: ElementType,
    scaling: Scaling,
    bytes: &[u8],
    voxels: &mut [f32],
) -> Result<(), DecodeError> {
    check_length(element_type, bytes.len(), voxels.len())?;
    with_stored_type!(element_type, intensities(scaling, bytes, voxels));
    Ok(())
}

fn intensities<T: Stored>(scaling: Scaling, bytes: &[u8], voxels: &mut [f32]) {
    let stored = voxels.iter_mut().zip(elements::<T>(bytes));
    if scaling.is_none() {
        stored.for_each(|(voxel, value)| *voxel = value.to_f32());
    } else {
        stored.for_each(|(voxel, value)| *voxel = scaling.apply(value.to_f64()) as f32);
    }
}

/// Decodes stored voxels (native byte order, any alignment) to labels with the scaling applied.
///
/// # Errors
/// Returns an error if `bytes` and `labels` do not have the same number of voxels, or a value is not a whole number
/// from 0 to 255: the error has the first such value and its position. Scaled values may be off by 0.001, since files
/// store slopes as f32.
pub fn decode_labels(
    element_type: ElementType,
    scaling: Scaling,
    bytes: &[u8],
    labels: &mut [u8],
) -> Result<(), DecodeError> {
    check_length(element_type, bytes.len(), labels.len())?;
    if element_type == ElementType::U8 && scaling.is_none() {
        labels.copy_from_slice(bytes);
        return Ok(());
    }
    with_stored_type!(element_type, whole_numbers(scaling, bytes, labels))
}

fn whole_numbers<T: Stored>(scaling: Scaling, bytes: &[u8], labels: &mut [u8]) -> Result<(), DecodeError> {
    let (scaled, tolerance) = (!scaling.is_none(), SCALED_LABEL_TOLERANCE);
    let value_of = |stored: T| if scaled { scaling.apply(stored.to_f64()) } else { stored.to_f64() };
    let is_label = |label: u8, value: f64| {
        let distance = (f64::from(label) - value).abs();
        if scaled { distance <= tolerance } else { distance == 0.0 }
    };
    let mut all_labels = true;
    for (label, stored) in labels.iter_mut().zip(elements::<T>(bytes)) {
        let value = value_of(stored);
        // The cast saturates, and turns NaN into 0; both fail the comparison.
        *label = (value + 0.5) as u8;
        all_labels &= is_label(*label, value);
    }
    if all_labels {
        return Ok(());
    }
    // The offending voxel is searched for only now, so that the loop above has no early exit and vectorises.
    let mut values = labels.iter().zip(elements::<T>(bytes).map(value_of)).enumerate();
    match values.find(|(_, (label, value))| !is_label(**label, *value)) {
        Some((position, (_, value))) => Err(DecodeError::NotALabel { position, value }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<T: Pod>(values: &[T]) -> &[u8] {
        bytemuck::cast_slice(values)
    }

    #[test]
    fn every_type_keeps_its_extremes() {
        fn check<T: Pod>(element_type: ElementType, values: &[T], expected: &[f32]) {
            let mut voxels = vec![0.0; values.len()];
            decode_f32(element_type, Scaling::NONE, bytes(values), &mut voxels).unwrap();
            assert_eq!(voxels, expected, "{element_type}");
        }
        check(ElementType::U8, &[0u8, 255], &[0.0, 255.0]);
        check(ElementType::I8, &[i8::MIN, i8::MAX], &[-128.0, 127.0]);
        check(ElementType::U16, &[0u16, u16::MAX], &[0.0, 65535.0]);
        check(ElementType::I16, &[i16::MIN, i16::MAX], &[-32768.0, 32767.0]);
        check(ElementType::U32, &[0u32, u32::MAX], &[0.0, 4_294_967_296.0]);
        check(ElementType::I32, &[i32::MIN, i32::MAX], &[-2_147_483_648.0, 2_147_483_648.0]);
        check(ElementType::U64, &[0u64, u64::MAX], &[0.0, 18_446_744_073_709_551_616.0]);
        check(ElementType::I64, &[i64::MIN, -1], &[-9_223_372_036_854_775_808.0, -1.0]);
        check(ElementType::F32, &[f32::MIN, 0.1], &[f32::MIN, 0.1]);
        check(ElementType::F64, &[1e300, 0.1], &[f32::INFINITY, 0.1]);
    }

    #[test]
    fn scaling_is_rounded_once() {
        // 16777217 is not an f32, so rounding before the scaling would lose the one.
        let mut voxels = [0.0];
        let scaling = Scaling { slope: 1.0, intercept: -16_777_216.0 };
        decode_f32(ElementType::I32, scaling, bytes(&[16_777_217i32]), &mut voxels).unwrap();
        assert_eq!(voxels, [1.0]);
    }

    #[test]
    fn a_value_that_is_not_a_label_is_reported_with_its_position() {
        let mut labels = [0; 3];
        let mut decode = |values: [f64; 3], scaling| {
            decode_labels(ElementType::F64, scaling, bytes(&values), &mut labels).map(|()| labels)
        };
        assert_eq!(decode([0.0, 7.0, 255.0], Scaling::NONE), Ok([0, 7, 255]));
        for bad in [0.5, 1.0001, -1.0, -0.3, 256.0, 1e300, f64::NAN, f64::INFINITY] {
            match decode([1.0, bad, bad], Scaling::NONE) {
                Err(DecodeError::NotALabel { position: 1, value }) => {
                    assert!(value == bad || bad.is_nan() && value.is_nan());
                }
                other => panic!("{bad}: {other:?}"),
            }
        }
        let third = f64::from(1.0f32 / 3.0);
        let scaling = Scaling { slope: third, intercept: 0.0 };
        assert_eq!(decode([0.0, 3.0, 765.0], scaling), Ok([0, 1, 255]));
        assert!(decode([0.0, 1.0, 3.0], scaling).is_err());
    }

    #[test]
    fn whole_numbers_of_every_type_are_labels() {
        fn check<T: Pod>(element_type: ElementType, good: [T; 2], bad: Option<T>) {
            let mut labels = [0; 2];
            decode_labels(element_type, Scaling::NONE, bytes(&good), &mut labels).unwrap();
            assert_eq!(labels, [3, 127]);
            if let Some(bad) = bad {
                let error = decode_labels(element_type, Scaling::NONE, bytes(&[good[0], bad]), &mut labels);
                assert!(matches!(error, Err(DecodeError::NotALabel { position: 1, .. })), "{element_type}");
            }
        }
        check(ElementType::U8, [3u8, 127], None);
        check(ElementType::I8, [3i8, 127], Some(-1));
        check(ElementType::U16, [3u16, 127], Some(256));
        check(ElementType::I16, [3i16, 127], Some(-1));
        check(ElementType::U32, [3u32, 127], Some(1 << 30));
        check(ElementType::I32, [3i32, 127], Some(-7));
        check(ElementType::U64, [3u64, 127], Some(1 << 60));
        check(ElementType::I64, [3i64, 127], Some(1 << 60));
        check(ElementType::F32, [3f32, 127.0], Some(1.5));
    }

    #[test]
    fn lengths_must_agree() {
        let error = decode_f32(ElementType::I16, Scaling::NONE, &[0; 5], &mut [0.0; 2]).unwrap_err();
        assert_eq!(error, DecodeError::Length { element_type: ElementType::I16, bytes: 5, voxels: 2 });
    }
}
