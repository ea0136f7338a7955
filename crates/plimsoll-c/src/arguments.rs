//! Arguments of C as values: what is impossible is refused here.

use plimsoll_infer::ArrayImage;
use plimsoll_memory::Bytes;
use plimsoll_volume::{Affine, ElementType, Geometry};

use crate::error::Failure;
use crate::model::Settings;
use crate::types::{
    PLIMSOLL_F32, PLIMSOLL_I16, PLIMSOLL_MIRROR_OFF, PLIMSOLL_MIRROR_ON, PLIMSOLL_MIRROR_USUAL, PLIMSOLL_U8,
    PLIMSOLL_U16, PlimsollImage, PlimsollOptions,
};

/// The most threads that compute: as many as the command line allows.
pub(crate) const MOST_THREADS: u64 = 256;

/// The settings of a model from options.
pub(crate) fn settings(options: PlimsollOptions) -> Result<Settings, Failure> {
    let PlimsollOptions { ram_bytes, threads, step, mirror } = options;
    if threads == 0 || threads > MOST_THREADS {
        return Err(Failure::argument(format!("threads is {threads}, but must be from 1 to {MOST_THREADS}")));
    }
    let in_range = step > 0.0 && step <= 1.0;
    if !in_range {
        return Err(Failure::argument(format!("step is {step}, but must be above 0 and at most 1")));
    }
    let mirror = match mirror {
        PLIMSOLL_MIRROR_OFF => Some(false),
        PLIMSOLL_MIRROR_ON => Some(true),
        PLIMSOLL_MIRROR_USUAL => None,
        _ => return Err(Failure::argument(format!("mirror is {mirror}, but must be 0, 1 or 2"))),
    };
    Ok(Settings { ram: (ram_bytes > 0).then_some(Bytes(ram_bytes)), step, mirror, threads: threads as usize })
}

/// The type of an image's voxels.
pub(crate) fn element_type(element: u32) -> Result<ElementType, Failure> {
    match element {
        PLIMSOLL_U8 => Ok(ElementType::U8),
        PLIMSOLL_U16 => Ok(ElementType::U16),
        PLIMSOLL_I16 => Ok(ElementType::I16),
        PLIMSOLL_F32 => Ok(ElementType::F32),
        _ => Err(Failure::argument(format!("unknown voxel type {element}"))),
    }
}

/// The grid of an image, with its position in single precision: so the copy keeps it, and a plan must be of the same grid.
pub(crate) fn geometry(shape: [u64; 3], affine: &[f64; 12]) -> Result<Geometry, Failure> {
    let too_large =
        || Failure::argument(format!("an image of {shape:?} voxels does not fit the address space"));
    let mut extents = [0; 3];
    for (to, from) in extents.iter_mut().zip(shape) {
        *to = usize::try_from(from).map_err(|_| too_large())?;
    }
    let [x, y, z] = [0, 4, 8].map(|row| std::array::from_fn(|column| f64::from(affine[row + column] as f32)));
    Ok(Geometry::new(extents, Affine([x, y, z]))?)
}

/// Checks that a buffer is not null and has the required number of bytes.
pub(crate) fn expect_bytes(
    what: &str,
    needed: Option<usize>,
    found: u64,
    is_null: bool,
) -> Result<usize, Failure> {
    let most = isize::MAX as usize;
    let Some(needed) = needed.filter(|needed| *needed <= most) else {
        return Err(Failure::argument(format!("{what} of this image do not fit the address space")));
    };
    if is_null {
        return Err(Failure::argument(format!("{what}: a null pointer")));
    }
    match u64::try_from(needed) == Ok(found) {
        true => Ok(needed),
        false => Err(Failure::argument(format!("{what} must have {needed} bytes, but {found} are given"))),
    }
}

/// The image as slices.
///
/// # Safety
/// What `image` points to can be read for as many bytes as it says, and nothing changes it for as long as the result lives.
pub(crate) unsafe fn channels(image: &PlimsollImage, geometry: Geometry) -> Result<ArrayImage<'_>, Failure> {
    // No model has more, and no list that is longer is looked at.
    const MOST_CHANNELS: u64 = 4096;
    let element = element_type(image.element)?;
    let needed = geometry.voxel_count().checked_mul(element.size());
    if image.channel_count == 0 || image.channel_count > MOST_CHANNELS {
        let found = image.channel_count;
        return Err(Failure::argument(format!(
            "the image has {found} channels, but must have from 1 to {MOST_CHANNELS}"
        )));
    }
    if image.channels.is_null() {
        return Err(Failure::argument("the list of channels is a null pointer"));
    }
    // SAFETY: it is not null, and the caller promises that it has so many entries.
    let listed = unsafe { std::slice::from_raw_parts(image.channels, image.channel_count as usize) };
    let mut channels = Vec::with_capacity(listed.len());
    for (number, channel) in listed.iter().enumerate() {
        let what = format!("voxels of channel {number}");
        let bytes = expect_bytes(&what, needed, image.channel_bytes, channel.is_null())?;
        // SAFETY: it is not null, and the caller promises that so many bytes can be read; they are no more than `isize::MAX`.
        channels.push(unsafe { std::slice::from_raw_parts(channel.cast::<u8>(), bytes) });
    }
    Ok(ArrayImage { geometry, element, channels })
}
