//! The safetensors format, a tensor at a time.
//!
//! Eight bytes with the length of the header, the header in JSON (`{"name": {"dtype", "shape", "data_offsets"}}`), then the
//! elements, little-endian. The published crate wants whole files in memory; a checkpoint is larger than that, so this reads
//! and writes one tensor after the other.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use plimsoll_graph::Shape;
use serde::{Deserialize, Serialize};

use super::{WeightError, element_bytes, widen};

/// Headers beyond this are not believed, as in the reference implementation.
const MOST_HEADER_BYTES: u64 = 100_000_000;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct TensorEntry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [u64; 2],
}

#[derive(Deserialize)]
#[serde(untagged)]
enum HeaderValue {
    Tensor(TensorEntry),
    Metadata(BTreeMap<String, String>),
}

/// An open file.
pub struct SafetensorsFile {
    path: PathBuf,
    file: File,
    /// Where the elements begin.
    data: u64,
    entries: BTreeMap<String, TensorEntry>,
    metadata: BTreeMap<String, String>,
}

impl SafetensorsFile {
    /// Opens a file and checks its header against its length.
    ///
    /// # Errors
    /// If it cannot be read, or the header is not one of this file.
    pub fn open(path: &Path) -> Result<SafetensorsFile, WeightError> {
        let io = |error| WeightError::io(path, error);
        let format = |why: String| WeightError::format(path, why);
        let mut file = File::open(path).map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        let mut word = [0; 8];
        file.read_exact(&mut word).map_err(|_| format(format!("{length} bytes are no safetensors file")))?;
        let header = u64::from_le_bytes(word);
        if header > MOST_HEADER_BYTES || header.saturating_add(8) > length {
            return Err(format(format!("the header claims {header} bytes, but the file has {length}")));
        }
        let mut text = vec![0; header as usize];
        file.read_exact(&mut text).map_err(io)?;
        let parsed: BTreeMap<String, HeaderValue> =
            serde_json::from_slice(&text).map_err(|error| format(format!("bad header: {error}")))?;
        let mut opened = SafetensorsFile {
            path: path.into(),
            file,
            data: header + 8,
            entries: BTreeMap::new(),
            metadata: BTreeMap::new(),
        };
        for (name, value) in parsed {
            match value {
                HeaderValue::Metadata(metadata) => opened.metadata = metadata,
                HeaderValue::Tensor(entry) => {
                    let [start, end] = entry.data_offsets;
                    if start > end || end > length - opened.data {
                        let has = length - opened.data;
                        let why = format!("`{name}` claims bytes {start} to {end} of {has}");
                        return Err(format(why));
                    }
                    opened.entries.insert(name, entry);
                }
            }
        }
        Ok(opened)
    }

    /// What the header says beside the tensors.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// The names of all tensors, with their shapes.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, Shape)> {
        self.entries.iter().map(|(name, entry)| (name.as_str(), Shape(entry.shape.clone())))
    }

    /// Whether a tensor of this name is there.
    pub fn contains(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// Reads a tensor as f32, in the logical order of its shape.
    ///
    /// # Errors
    /// If it is not there, has another shape, is not of real numbers, or cannot be read.
    ///
    /// # Panics
    /// If there is not room for just as many values as the shape has.
    pub fn read(&mut self, name: &str, shape: &Shape, values: &mut [f32]) -> Result<(), WeightError> {
        assert_eq!(values.len(), shape.count(), "room for another tensor");
        let path = self.path.clone();
        let Some(entry) = self.entries.get(name) else {
            return Err(WeightError::Missing { path, name: name.into(), shape: shape.clone() });
        };
        let found = Shape(entry.shape.clone());
        if found != *shape {
            return Err(WeightError::Shape { path, name: name.into(), found, expected: shape.clone() });
        }
        let [start, end] = entry.data_offsets;
        let size = element_bytes(&entry.dtype).filter(|size| (size * values.len()) as u64 == end - start);
        let Some(size) = size else {
            let why = format!(
                "`{name}` is {} in {} bytes, which is no {shape} of numbers",
                entry.dtype,
                end - start
            );
            return Err(WeightError::format(&path, why));
        };
        let io = |error| WeightError::io(&path, error);
        self.file.seek(SeekFrom::Start(self.data + start)).map_err(io)?;
        let mut bytes = [0; CHUNK_BYTES];
        for chunk in values.chunks_mut(CHUNK_BYTES / size) {
            let bytes = &mut bytes[..chunk.len() * size];
            self.file.read_exact(bytes).map_err(io)?;
            widen(&entry.dtype, bytes, chunk);
        }
        Ok(())
    }
}

/// Bytes that are read or written at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// Writes a file of f32 tensors: `fill(i, values)` gives those of the i-th, in the logical order of its shape, in `buffer`,
/// which must have room for the largest. The order in the file is that given.
///
/// # Errors
/// If writing or `fill` fails.
///
/// # Panics
/// If the buffer is too small.
pub fn write(
    to: &mut impl Write,
    tensors: &[(String, Shape)],
    metadata: &BTreeMap<String, String>,
    buffer: &mut [f32],
    mut fill: impl FnMut(usize, &mut [f32]) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let mut header = serde_json::Map::new();
    if !metadata.is_empty() {
        header.insert("__metadata__".into(), serde_json::json!(metadata));
    }
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
    to.write_all(&(text.len() as u64).to_le_bytes())?;
    to.write_all(&text)?;
    let mut bytes = [0; CHUNK_BYTES];
    for (i, (_, shape)) in tensors.iter().enumerate() {
        let values = &mut buffer[..shape.count()];
        fill(i, values)?;
        for chunk in values.chunks(CHUNK_BYTES / 4) {
            for (bytes, value) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(chunk) {
                *bytes = value.to_le_bytes();
            }
            to.write_all(&bytes[..4 * chunk.len()])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(path: &Path) {
        let tensors = [("b".to_string(), Shape(vec![2, 3])), ("a".to_string(), Shape(vec![40_000]))];
        let metadata = BTreeMap::from([("step".to_string(), "7".to_string())]);
        let mut file = File::create(path).unwrap();
        let fill = |i: usize, values: &mut [f32]| {
            for (place, value) in values.iter_mut().enumerate() {
                *value = i as f32 + place as f32 / 8.0;
            }
            Ok(())
        };
        write(&mut file, &tensors, &metadata, &mut vec![0.0; 40_000], fill).unwrap();
    }

    #[test]
    fn what_is_written_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weights.safetensors");
        sample(&path);
        let mut file = SafetensorsFile::open(&path).unwrap();
        assert_eq!(file.metadata()["step"], "7");
        let mut values = vec![0.0; 40_000];
        file.read("a", &Shape(vec![40_000]), &mut values).unwrap();
        assert_eq!((values[0], values[39_999]), (1.0, 1.0 + 39_999.0 / 8.0));
        let mut few = [0.0; 6];
        file.read("b", &Shape(vec![2, 3]), &mut few).unwrap();
        assert_eq!(few, [0.0, 0.125, 0.25, 0.375, 0.5, 0.625]);
        let wrong = file.read("b", &Shape(vec![3, 2]), &mut few).unwrap_err();
        assert!(wrong.to_string().contains("`b` has shape [2×3], but the network needs [3×2]"), "{wrong}");
        let missing = file.read("c", &Shape(vec![6]), &mut few).unwrap_err();
        assert!(matches!(missing, WeightError::Missing { .. }));
    }

    #[test]
    fn a_header_that_claims_more_than_the_file_has_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weights.safetensors");
        sample(&path);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 5]).unwrap();
        let error = SafetensorsFile::open(&path).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("claims bytes"), "{error}");
        let mut long = whole.clone();
        long[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        std::fs::write(&path, &long).unwrap();
        let error = SafetensorsFile::open(&path).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("the header claims"), "{error}");
        std::fs::write(&path, b"abc").unwrap();
        assert!(SafetensorsFile::open(&path).is_err());
    }
}
