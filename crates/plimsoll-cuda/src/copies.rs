//! Copies between values of this process and tensors of a device, in its layout and its types.

use std::ops::Range;

use half::{bf16, f16};
use plimsoll_graph::{DType, TensorInfo};
use plimsoll_plan::{EngineError, HostSlice, HostSliceMut};

use crate::device::{Device, DeviceError};
use crate::layout::{Run, runs, stored_span};

/// Copies values to some elements of the tensor that begins at an address.
pub(crate) fn write_values(
    device: &mut dyn Device,
    info: &TensorInfo,
    to: u64,
    first: usize,
    values: HostSlice<'_>,
) -> Result<(), EngineError> {
    match values {
        HostSlice::U8(values) => replace(device, info, to, first, values, StoredU8),
        HostSlice::F64(values) => replace(device, info, to, first, values, StoredF64),
        HostSlice::F32(values) if info.dtype == DType::Bf16 => {
            replace(device, info, to, first, values, StoredBf16)
        }
        HostSlice::F32(values) if info.dtype == DType::F16 => {
            replace(device, info, to, first, values, StoredF16)
        }
        HostSlice::F32(values) => replace(device, info, to, first, values, StoredF32),
    }
}

/// Copies all values of a tensor to an offset of the memory for values that are copied ahead.
pub(crate) fn write_values_ahead(
    device: &mut dyn Device,
    info: &TensorInfo,
    to: usize,
    values: HostSlice<'_>,
) -> Result<(), EngineError> {
    let send = |device: &mut dyn Device, offset: usize, bytes| device.upload_ahead(to + offset, bytes);
    match values {
        HostSlice::U8(values) => upload(device, info, values, StoredU8, send),
        HostSlice::F64(values) => upload(device, info, values, StoredF64, send),
        HostSlice::F32(values) if info.dtype == DType::Bf16 => upload(device, info, values, StoredBf16, send),
        HostSlice::F32(values) if info.dtype == DType::F16 => upload(device, info, values, StoredF16, send),
        HostSlice::F32(values) => upload(device, info, values, StoredF32, send),
    }
}

/// Copies values from some elements of the tensor that begins at an address.
pub(crate) fn read_values(
    device: &mut dyn Device,
    info: &TensorInfo,
    from: u64,
    first: usize,
    values: HostSliceMut<'_>,
) -> Result<(), EngineError> {
    match values {
        HostSliceMut::U8(values) => download(device, info, from, first, values, StoredU8),
        HostSliceMut::F64(values) => download(device, info, from, first, values, StoredF64),
        HostSliceMut::F32(values) if info.dtype == DType::Bf16 => {
            download(device, info, from, first, values, StoredBf16)
        }
        HostSliceMut::F32(values) if info.dtype == DType::F16 => {
            download(device, info, from, first, values, StoredF16)
        }
        HostSliceMut::F32(values) => download(device, info, from, first, values, StoredF32),
    }
}

/// A number as it is stored.
trait Stored<const BYTES: usize>: Copy {
    type Host: Copy;
    fn to_bytes(host: Self::Host) -> [u8; BYTES];
    fn from_stored(bytes: [u8; BYTES]) -> Self::Host;
}

macro_rules! stored {
    ($($name:ident $bytes:literal $host:ty: $to:expr, $of:expr;)+) => {$(
        #[derive(Clone, Copy)]
        struct $name;

        impl Stored<$bytes> for $name {
            type Host = $host;

            fn to_bytes(host: $host) -> [u8; $bytes] {
                $to(host)
            }

            fn from_stored(bytes: [u8; $bytes]) -> $host {
                $of(bytes)
            }
        }
    )+};
}

stored! {
    StoredU8 1 u8: |x: u8| [x], |[x]: [u8; 1]| x;
    StoredBf16 2 f32: |x| bf16::from_f32(x).to_le_bytes(), |bytes| bf16::from_le_bytes(bytes).to_f32();
    StoredF16 2 f32: |x| f16::from_f32(x).to_le_bytes(), |bytes| f16::from_le_bytes(bytes).to_f32();
    StoredF32 4 f32: f32::to_le_bytes, f32::from_le_bytes;
    StoredF64 8 f64: f64::to_le_bytes, f64::from_le_bytes;
}

/// Pieces of a stretch of a tensor's elements as they are stored, as many at a time as there is room for.
fn pieces(stored: Range<usize>, most: usize) -> impl Iterator<Item = Range<usize>> {
    let end = stored.end;
    stored.step_by(most.max(1)).map(move |start| start..end.min(start.saturating_add(most)))
}

/// Copies values of a tensor in its layout through the staging memory, piece by piece: `send` copies a number of staged bytes to an offset from the
/// tensor's start. The last copy may go on after the call.
fn upload<const BYTES: usize, S: Stored<BYTES>>(
    device: &mut dyn Device,
    info: &TensorInfo,
    values: &[S::Host],
    _as: S,
    mut send: impl FnMut(&mut dyn Device, usize, usize) -> Result<(), DeviceError>,
) -> Result<(), EngineError> {
    let most = device.staging()?.len() / BYTES;
    for piece in pieces(0..info.shape.count(), most) {
        let mut stage = device.staging()?.as_chunks_mut::<BYTES>().0.iter_mut();
        for Run { place, stride, count } in runs(info, piece.clone()) {
            let from = values.get(place..).ok_or_else(|| EngineError::missing("a value"))?;
            let from = from.iter().step_by(stride);
            let mut copied = 0;
            for (to, value) in stage.by_ref().take(count).zip(from) {
                *to = S::to_bytes(*value);
                copied += 1;
            }
            if copied < count {
                return Err(EngineError::missing("a value"));
            }
        }
        send(device, piece.start * BYTES, piece.len() * BYTES)?;
    }
    Ok(())
}

/// Copies values to some elements of the tensor that begins at an address, from `first` on in the logical order. If these are not all, elements that are
/// stored between them are copied from the device and back.
fn replace<const BYTES: usize, S: Stored<BYTES>>(
    device: &mut dyn Device,
    info: &TensorInfo,
    address: u64,
    first: usize,
    values: &[S::Host],
    stored_as: S,
) -> Result<(), EngineError> {
    if values.len() == info.shape.count() {
        let send =
            |device: &mut dyn Device, offset: usize, bytes| device.upload(address + offset as u64, bytes);
        return upload(device, info, values, stored_as, send);
    }
    let most = device.staging()?.len() / BYTES;
    for piece in pieces(stored_span(info, first, values.len()), most) {
        let (start, bytes) = (address + (piece.start * BYTES) as u64, piece.len() * BYTES);
        device.download(start, bytes)?;
        let mut stage = device.staging()?.as_chunks_mut::<BYTES>().0.iter_mut();
        for Run { place, stride, count } in runs(info, piece) {
            let places = (place..).step_by(stride).take(count);
            // The places end first: a stored value that is to be replaced would be lost.
            for (place, stored) in places.zip(stage.by_ref()) {
                if let Some(value) = place.checked_sub(first).and_then(|place| values.get(place)) {
                    *stored = S::to_bytes(*value);
                }
            }
        }
        device.upload(start, bytes)?;
    }
    Ok(())
}

/// Copies values from the start of a tensor, out of its layout: those from `first` on in the logical order. Values that
/// are stored between them are copied too, and skipped; those before and after them are not copied.
fn download<const BYTES: usize, S: Stored<BYTES>>(
    device: &mut dyn Device,
    info: &TensorInfo,
    address: u64,
    first: usize,
    values: &mut [S::Host],
    _as: S,
) -> Result<(), EngineError> {
    let most = device.staging()?.len() / BYTES;
    for piece in pieces(stored_span(info, first, values.len()), most) {
        device.download(address + (piece.start * BYTES) as u64, piece.len() * BYTES)?;
        let mut stage = device.staging()?.as_chunks::<BYTES>().0.iter();
        for Run { place, stride, count } in runs(info, piece) {
            let places = (place..).step_by(stride).take(count);
            // The places end first: a stored value that was asked for and not used would be lost.
            for (place, stored) in places.zip(stage.by_ref()) {
                if let Some(value) = place.checked_sub(first).and_then(|place| values.get_mut(place)) {
                    *value = S::from_stored(*stored);
                }
            }
        }
    }
    Ok(())
}
