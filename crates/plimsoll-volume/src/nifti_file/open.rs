//! Opening images of NIfTI.

use std::path::Path;

use super::names;
use crate::content::Content;
use crate::nifti::{HeaderError, LabelTable, NiftiHeader, NiftiVersion};
use crate::raw::{Channels, Raw, damaged_or_refused};
use crate::source::Opened;
use crate::stream::ByteStream;
use crate::{Segments, VolumeError};

/// Returns `true` if a file begins as a header does, in either byte order.
pub(crate) fn begins(head: &[u8]) -> bool {
    let start = head.first_chunk::<4>();
    start.is_some_and(|start| NiftiHeader::detect(*start).is_ok())
}

/// Opens an image in one file, or either file of a pair.
///
/// # Errors
/// Returns an error if a file is missing, the header is not usable, or the file is too short for what the header
/// describes.
pub(crate) fn open(path: &Path, content: Content) -> Result<Opened, VolumeError> {
    let parts = names::parts(path)?;
    let mut stream = open_stream(&parts.header)?;
    let header = read_header(&parts.header, &mut stream)?;
    let in_header = |problem| VolumeError::Header { path: parts.header.clone(), problem };
    let layout = header.layout().map_err(in_header)?;
    let segments = match content {
        Content::Segments { .. } if !header.pair => read_segments(&mut stream, &header, layout.start),
        _ => None,
    };
    let data_path = match (header.pair, parts.image) {
        (false, _) => parts.header.clone(),
        (true, Some(image)) => {
            stream = open_stream(&image)?;
            image
        }
        (true, None) => return Err(in_header(HeaderError::PairInOneFile)),
    };
    let source = Raw::new(&data_path, stream, layout, Channels::Apart)?;
    Ok(Opened { path: data_path, layout, header: Some(Box::new(header)), source: Box::new(source), segments })
}

/// The most bytes of extensions that are searched for a table of labels.
const MOST_EXTENSIONS: u64 = 1 << 20;

/// The names of values in a table behind the header, if there is one that can be read. One that cannot be read names nothing.
fn read_segments(stream: &mut ByteStream, header: &NiftiHeader, end: u64) -> Option<Box<Segments>> {
    let start = header.version.header_size() as u64;
    let length = end.checked_sub(start).filter(|length| (12..=MOST_EXTENSIONS).contains(length))?;
    // No longer than the limit above.
    let mut bytes = vec![0; length as usize];
    stream.read_exact_at(start, &mut bytes).ok()?;
    let announced = bytes.first().is_some_and(|first| *first != 0);
    let table = announced.then(|| LabelTable::decode(&bytes)).flatten()?;
    let of_bytes = |(value, name)| Some((u8::try_from(value).ok()?, name));
    let segments = Segments::from_table(table.labels.into_iter().filter_map(of_bytes));
    (!segments.named.is_empty()).then(|| Box::new(segments))
}

fn open_stream(path: &Path) -> Result<ByteStream, VolumeError> {
    ByteStream::open(path).map_err(|source| VolumeError::Io { path: path.into(), action: "open", source })
}

fn read_header(path: &Path, stream: &mut ByteStream) -> Result<NiftiHeader, VolumeError> {
    let mut bytes = [0; NiftiVersion::Two.header_size()];
    let mut read = |from: usize, part: &mut [u8]| {
        let to = (from + part.len()) as u64;
        stream.read_exact_at(from as u64, part).map_err(|error| {
            match damaged_or_refused(path, stream, to, error) {
                VolumeError::TooShort { path, found, .. } => VolumeError::NoHeader { path, found },
                other => other,
            }
        })
    };
    let mut start = [0; 4];
    read(0, &mut start)?;
    let in_header = |problem| VolumeError::Header { path: path.into(), problem };
    let (version, byte_order) = NiftiHeader::detect(start).map_err(in_header)?;
    let (head, rest) = bytes.split_at_mut(start.len());
    head.copy_from_slice(&start);
    read(start.len(), &mut rest[..version.header_size() - start.len()])?;
    NiftiHeader::decode(version, byte_order, &bytes).map_err(in_header)
}
