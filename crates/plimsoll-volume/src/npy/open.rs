//! Opening arrays as images.

use std::path::Path;

use super::header::{Header, MAGIC, START, extent};
use crate::content::Content;
use crate::layout::{Layout, bytes_of};
use crate::raw::{Channels, Raw, damaged_or_refused};
use crate::source::Opened;
use crate::stream::ByteStream;
use crate::{Affine, Geometry, Scaling, Spacing, VolumeError, spacing};

const HINT: &str =
    "save it with numpy.save as an array of three axes (depth, height, width), or four with channels first";

/// Returns `true` if a file begins as an array does.
pub(crate) fn begins(head: &[u8]) -> bool {
    head.starts_with(MAGIC)
}

/// Opens an array.
///
/// # Errors
/// Returns an error if the file is missing, its elements or axes are not supported, or it is too short for its header.
pub(crate) fn open(path: &Path, content: Content) -> Result<Opened, VolumeError> {
    let failed = |source| VolumeError::Io { path: path.into(), action: "open", source };
    let stream = ByteStream::open(path).map_err(failed)?;
    open_array(path, content, stream, 0, None)
}

/// Opens the array that begins at a byte of a file and whose length with its header, if known, is given in bytes.
///
/// # Errors
/// Returns an error if its elements or axes are not supported, or it is too short for its header.
pub(crate) fn open_array(
    path: &Path,
    content: Content,
    mut stream: ByteStream,
    begin: u64,
    bytes: Option<u64>,
) -> Result<Opened, VolumeError> {
    let (header, start) = read_header(path, &mut stream, begin)?;
    let refused = |why| VolumeError::Text { path: path.into(), format: "a NumPy array", why, hint: HINT };
    let spacing = spacing::read(path, content)?.unwrap_or(Spacing([1.0; 3]));
    let layout = layout(&header, spacing, start).map_err(refused)?;
    if let Some(bytes) = bytes.filter(|bytes| layout.end() - begin > *bytes) {
        let shape = &header.shape;
        return Err(refused(format!("its shape is {shape:?}, but with its header it has {bytes} bytes")));
    }
    let source = Box::new(Raw::new(path, stream, layout, order(&header))?);
    Ok(Opened { path: path.into(), layout, header: None, source, segments: None })
}

fn read_header(path: &Path, stream: &mut ByteStream, at: u64) -> Result<(Header, u64), VolumeError> {
    let refused = |why: &str| VolumeError::Text {
        path: path.into(),
        format: "a NumPy array",
        why: why.into(),
        hint: HINT,
    };
    let mut start = [0; START];
    let found = stream.read_some_at(at, &mut start);
    found.map_err(|error| damaged_or_refused(path, stream, start.len() as u64, error))?;
    let (begin, length) = extent(&start).map_err(refused)?;
    let mut text = vec![0; length];
    let begin = at.saturating_add(begin as u64);
    let end = begin.saturating_add(length as u64);
    let read = stream.read_exact_at(begin, &mut text);
    read.map_err(|error| damaged_or_refused(path, stream, end, error))?;
    let header = Header::read(&String::from_utf8_lossy(&text)).map_err(|why| refused(&why))?;
    Ok((header, end))
}

/// In Fortran's order the channels, which are the first axis, follow each other fastest.
fn order(header: &Header) -> Channels {
    if header.is_fortran { Channels::Together } else { Channels::Apart }
}

/// The grid of an array. In Fortran's order its axes are stored the other way round: the image has them as they are stored, each with the
/// same direction in the world as in the other order.
fn layout(header: &Header, spacing: Spacing, start: u64) -> Result<Layout, String> {
    let shape = &header.shape;
    let (channels, mut axes) = match **shape {
        [height, width] => (1, [1, height, width]),
        [depth, height, width] => (1, [depth, height, width]),
        [channels, depth, height, width] => (channels, [depth, height, width]),
        _ => return Err(format!("its shape is {shape:?}, but 2 to 4 axes are supported")),
    };
    let mut rows = Affine::from_spacing(spacing).0;
    if header.is_fortran {
        axes.reverse();
        rows.iter_mut().for_each(|row| row.swap(0, 2));
    }
    let geometry = Geometry::new(axes, Affine(rows)).map_err(|problem| problem.to_string())?;
    let bytes = bytes_of(shape, header.element_type)
        .filter(|bytes| *bytes <= (i64::MAX as u64).saturating_sub(start));
    Ok(Layout {
        geometry,
        channels,
        element_type: header.element_type,
        byte_order: header.byte_order,
        scaling: Scaling::NONE,
        start,
        bytes: bytes.ok_or_else(|| format!("its shape is {shape:?}, which is impossibly large"))?,
    })
}
