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

use super::{WeightError, widen};

/// Headers beyond this are not believed, as in the reference implementation.
const MOST_HEADER_BYTES: u64 = 100_000_000;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [u64; 2],
}

#[derive(Deserialize)]
#[serde(untagged)]
enum HeaderValue {
    Tensor(Entry),
    Metadata(BTreeMap<String, String>),
}

/// An open file.
pub struct SafetensorsFile {
    path: PathBuf,
    file: File,
    /// Where the elements begin.
    data: u64,
    entries: BTreeMap<String, Entry>,
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

    /// Reads a tensor as f32.
    ///
    /// # Errors
    /// If it is not there, has another shape, is not of real numbers, or cannot be read.
    pub fn read(&mut self, name: &str, shape: &Shape) -> Result<Vec<f32>, WeightError> {
        let path = self.path.clone();
        let Some(entry) = self.entries.get(name) else {
            return Err(WeightError::Missing { path, name: name.into(), shape: shape.clone() });
        };
        let found = Shape(entry.shape.clone());
        if found != *shape {
            return Err(WeightError::Shape { path, name: name.into(), found, expected: shape.clone() });
        }
        let [start, end] = entry.data_offsets;
        let mut bytes = vec![0; (end - start) as usize];
        let from = SeekFrom::Start(self.data + start);
        self.file
            .seek(from)
            .and_then(|_| self.file.read_exact(&mut bytes))
            .map_err(|error| WeightError::io(&path, error))?;
        widen(&entry.dtype, &bytes).filter(|values| values.len() == shape.count()).ok_or_else(|| {
            let why = format!(
                "`{name}` is {} in {} bytes, which is no {shape} of numbers",
                entry.dtype,
                bytes.len()
            );
            WeightError::format(&path, why)
        })
    }
}

/// Writes a file of f32 tensors: `values(i)` gives those of the i-th, in the logical order of its shape. The order in the
/// file is that given.
///
/// # Errors
/// If writing fails.
pub fn write(
    to: &mut impl Write,
    tensors: &[(String, Shape)],
    metadata: &BTreeMap<String, String>,
    mut values: impl FnMut(usize) -> Vec<f32>,
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
    for (i, (name, shape)) in tensors.iter().enumerate() {
        let values = values(i);
        if values.len() != shape.count() {
            let why = format!("`{name}` has {} values, not {shape}", values.len());
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, why));
        }
        for chunk in values.chunks(1 << 14) {
            let bytes: Vec<u8> = chunk.iter().flat_map(|value| value.to_le_bytes()).collect();
            to.write_all(&bytes)?;
        }
    }
    Ok(())
}
