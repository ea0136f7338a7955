//! The header of an image that is written.

use std::path::{Path, PathBuf};

use crate::text::lps;
use crate::{ElementType, Geometry};

/// Returns `true` if a path has the name of a MetaImage that holds its voxels as well.
pub(crate) fn is_name(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("mha"))
}

/// The file of the voxels of a MetaImage whose header is a file of its own, by the path of that.
pub(crate) fn voxels_of(path: &Path) -> Option<PathBuf> {
    let is_header = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("mhd"));
    is_header.then(|| path.with_extension("raw"))
}

/// Digits of the length of the compressed voxels, which is known once they are written.
const DIGITS: usize = 20;

/// The length of compressed voxels as it stands in a header.
pub(crate) fn length(bytes: u64) -> String {
    format!("{bytes:0DIGITS$}")
}

/// The header of an image, little-endian and compressed as a stream of zlib; and where in it the length of that is to be
/// written, in as many digits as [`length`] has.
pub(crate) fn header(geometry: &Geometry, channels: usize, element: ElementType) -> (String, u64) {
    let mut text = format!("{BEGIN}True\nCompressedDataSize = ");
    let place = text.len() as u64;
    text += &length(0);
    text += &grid(geometry, channels, element, "LOCAL");
    (text, place)
}

/// The header of an image whose voxels are in another file of the same folder, little-endian and as they are.
pub(crate) fn header_apart(
    geometry: &Geometry,
    channels: usize,
    element: ElementType,
    voxels: &str,
) -> String {
    format!("{BEGIN}False{}", grid(geometry, channels, element, voxels))
}

/// The beginning of all headers, up to whether voxels are compressed.
const BEGIN: &str =
    "ObjectType = Image\nNDims = 3\nBinaryData = True\nBinaryDataByteOrderMSB = False\nCompressedData = ";

/// The lines about the grid and the voxels, and the last, which says where these are.
fn grid(geometry: &Geometry, channels: usize, element: ElementType, voxels: &str) -> String {
    let [depth, height, width] = geometry.shape();
    let (steps, [x, y, z]) = lps(geometry);
    let spacing = steps.map(|step| step.iter().map(|part| part * part).sum::<f64>().sqrt());
    let direction = |axis: usize| {
        let [x, y, z] = steps[axis].map(|part| part / spacing[axis] + 0.0);
        format!("{x} {y} {z}")
    };
    let kind = match element {
        ElementType::I8 => "MET_CHAR",
        ElementType::U8 => "MET_UCHAR",
        ElementType::I16 => "MET_SHORT",
        ElementType::U16 => "MET_USHORT",
        ElementType::I32 => "MET_INT",
        ElementType::U32 => "MET_UINT",
        ElementType::I64 => "MET_LONG_LONG",
        ElementType::U64 => "MET_ULONG_LONG",
        ElementType::F32 => "MET_FLOAT",
        ElementType::F64 => "MET_DOUBLE",
    };
    // Of one channel nothing is said.
    let together =
        if channels > 1 { format!("ElementNumberOfChannels = {channels}\n") } else { String::new() };
    format!(
        "\nTransformMatrix = {} {} {}\nOffset = {x} {y} {z}\nCenterOfRotation = 0 0 0\n\
         ElementSpacing = {} {} {}\nDimSize = {width} {height} {depth}\n{together}ElementType = {kind}\nElementDataFile = {voxels}\n",
        direction(0),
        direction(1),
        direction(2),
        spacing[0],
        spacing[1],
        spacing[2]
    )
}
