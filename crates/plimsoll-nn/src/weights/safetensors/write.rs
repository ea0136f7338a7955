//! The writing of files of f32 tensors with their checksums.

use std::collections::BTreeMap;
use std::io::{self, Seek, SeekFrom, Write};

use plimsoll_graph::Shape;
use plimsoll_memory::Digester;

use super::CHUNK_BYTES;
use crate::weights::header::{CHECKSUMS, HEADER, METADATA, ZEROS, header_checksum};

/// Writes a file of f32 tensors: `fill(i, values)` writes the values of the i-th, in the logical order of its shape, in `buffer`,
/// which must have room for the largest. The order in the file is that given. Checksums of the tensors and of the header stand
/// in the metadata under `plimsoll.checksums` and `plimsoll.header`: the header is written first with zeros for them, and again
/// once they are known.
///
/// # Errors
/// Returns an error if writing or `fill` fails, or a name is given twice.
///
/// # Panics
/// Panics if the buffer is too small.
pub fn write(
    to: &mut (impl Write + Seek),
    tensors: &[(String, Shape)],
    metadata: &BTreeMap<String, String>,
    buffer: &mut [f32],
    mut fill: impl FnMut(usize, &mut [f32]) -> io::Result<()>,
) -> io::Result<()> {
    let begin = to.stream_position()?;
    let mut checksums = vec![ZEROS.to_string(); tensors.len()];
    let placeholder = header_text(tensors, metadata, &checksums)?;
    to.write_all(&(placeholder.len() as u64).to_le_bytes())?;
    to.write_all(&placeholder)?;
    let mut bytes = [0; CHUNK_BYTES];
    for (i, ((_, shape), checksum)) in tensors.iter().zip(&mut checksums).enumerate() {
        let values = &mut buffer[..shape.count()];
        fill(i, values)?;
        let mut sum = Digester::default();
        for chunk in values.chunks(CHUNK_BYTES / 4) {
            for (bytes, value) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(chunk) {
                *bytes = value.to_le_bytes();
            }
            let bytes = &bytes[..4 * chunk.len()];
            sum.update(bytes);
            to.write_all(bytes)?;
        }
        *checksum = sum.finish().to_string();
    }
    let end = to.stream_position()?;
    let mut text = header_text(tensors, metadata, &checksums)?;
    let (place, sum) =
        header_checksum(&text).map_err(|_| io::Error::other("the header has lost its checksum"))?;
    text[place].copy_from_slice(sum.to_string().as_bytes());
    to.seek(SeekFrom::Start(begin + 8))?;
    to.write_all(&text)?;
    to.seek(SeekFrom::Start(end))?;
    Ok(())
}

/// The header of such a file, with zeros for its own checksum. Its length does not depend on checksums.
fn header_text(
    tensors: &[(String, Shape)],
    metadata: &BTreeMap<String, String>,
    checksums: &[String],
) -> io::Result<Vec<u8>> {
    let by_name: BTreeMap<&str, &String> =
        tensors.iter().zip(checksums).map(|((name, _), checksum)| (name.as_str(), checksum)).collect();
    if by_name.len() < tensors.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "two tensors have the same name"));
    }
    let mut metadata = metadata.clone();
    metadata.insert(CHECKSUMS.into(), serde_json::to_string(&by_name)?);
    metadata.insert(HEADER.into(), ZEROS.into());
    let mut header = serde_json::Map::new();
    header.insert(METADATA.into(), serde_json::json!(metadata));
    let mut start = 0;
    for (name, shape) in tensors {
        let end = start + 4 * shape.count() as u64;
        header.insert(
            name.clone(),
            serde_json::json!({ "dtype": "F32", "shape": shape, "data_offsets": [start, end] }),
        );
        start = end;
    }
    let mut text = serde_json::to_vec(&header)?;
    // Elements begin at a multiple of eight, as the reference implementation has it.
    text.resize(text.len().next_multiple_of(8), b' ');
    Ok(text)
}
