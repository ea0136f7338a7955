//! The safetensors format, a tensor at a time.
//!
//! Eight bytes with the length of the header, the header in JSON (`{"name": {"dtype", "shape", "data_offsets"}}`), then the
//! elements, little-endian. The published crate wants whole files in memory; a checkpoint is larger than that, so this reads
//! and writes one tensor after the other.

mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use plimsoll_disk::File;
use plimsoll_graph::Shape;
use plimsoll_memory::Digester;

pub use self::write::write;
use super::header::{Entry, HEADER, Header, HeaderFault};
use super::{EachRun, WeightError, copy_run, element_bytes, fits, widen};

/// Longer headers are refused: the limit has room for some twenty thousand tensors. A header is stored once as text
/// and, parsed, takes at most eight times more.
const MOST_HEADER_BYTES: u64 = 4 << 20;

/// An open file.
pub struct SafetensorsFile {
    path: PathBuf,
    file: File,
    /// The offset of the elements.
    data: u64,
    header: Header,
    /// The prefix of the names of its tensors in the file.
    prefix: String,
}

/// The faults of a tensor's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TensorFault {
    /// Its bytes do not have the checksum that they were written with.
    Damaged {
        /// Its name.
        name: String,
    },
    /// Values that are no numbers, or infinite.
    NotFinite {
        /// Its name.
        name: String,
        /// The number of such values.
        count: u64,
    },
}

impl SafetensorsFile {
    /// Opens a file and checks its header: against its own checksum where it has one, and against the file's length. Tensors are
    /// found without the `module.` and `_orig_mod.` that wrappers of a network put before their names.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or its header is not valid.
    pub fn open(path: &Path) -> Result<SafetensorsFile, WeightError> {
        let io = |error| WeightError::io(path, error);
        let format = |why: String| WeightError::format(path, why);
        let mut file = File::open(path).map_err(io)?;
        let length = file.len().map_err(io)?;
        let mut word = [0; 8];
        file.read_exact(&mut word)
            .map_err(|_| format(format!("a file of {length} bytes is not a safetensors file")))?;
        let bytes = u64::from_le_bytes(word);
        if bytes.saturating_add(8) > length {
            return Err(format(format!("the header claims {bytes} bytes, but the file has {length}")));
        }
        if bytes > MOST_HEADER_BYTES {
            let why = format!("the header claims {bytes} bytes, more than {MOST_HEADER_BYTES}");
            return Err(format(why));
        }
        let mut text = vec![0; bytes as usize];
        file.read_exact(&mut text).map_err(io)?;
        let data = bytes + 8;
        let header = Header::parse(&text, length - data).map_err(|fault| match fault {
            HeaderFault::Format(why) => format(why),
            HeaderFault::Damaged => WeightError::Damaged { path: path.into(), tensor: None },
        })?;
        Ok(SafetensorsFile { path: path.into(), file, data, header, prefix: String::new() })
    }

    /// The part of the file whose names have a prefix, under the rest of these names.
    ///
    /// # Errors
    /// Returns an error if there is no such tensor.
    pub fn within(mut self, prefix: &str) -> Result<SafetensorsFile, WeightError> {
        let entries = std::mem::take(&mut self.header.entries).into_iter();
        self.header.entries =
            entries.filter_map(|(name, entry)| Some((name.strip_prefix(prefix)?.into(), entry))).collect();
        if self.header.entries.is_empty() {
            return Err(WeightError::format(
                &self.path,
                format!("it has no tensor whose name begins with `{prefix}`"),
            ));
        }
        self.prefix.push_str(prefix);
        Ok(self)
    }

    /// The digest of the file's whole content: the checksum of its header, which has the checksums of all tensors. None if it
    /// has no checksums.
    pub fn digest(&self) -> Option<&str> {
        self.header.metadata.get(HEADER).map(String::as_str)
    }

    /// Returns the header's metadata.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.header.metadata
    }

    /// The names of all tensors, with their shapes.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, Shape)> {
        self.header.entries.iter().map(|(name, entry)| (name.as_str(), Shape(entry.shape.clone())))
    }

    /// The shape of a tensor, if it is there.
    pub fn shape(&self, name: &str) -> Option<Shape> {
        self.header.entries.get(name).map(|entry| Shape(entry.shape.clone()))
    }

    /// The type of a tensor's elements by its name in the format, such as `F32`, if the tensor is there.
    pub fn dtype(&self, name: &str) -> Option<&str> {
        self.header.entries.get(name).map(|entry| entry.dtype.as_str())
    }

    /// Returns `true` if the file has a tensor of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.header.entries.contains_key(name)
    }

    /// Returns `true` if the file has checksums of its tensors.
    pub fn has_checksums(&self) -> bool {
        self.header.has_checksums
    }

    /// Reads all tensors and compares them with their checksums, where there are any.
    ///
    /// # Errors
    /// Returns an error if a tensor does not match its checksum, or cannot be read.
    pub fn verify_all(&mut self) -> Result<(), WeightError> {
        let entries: Vec<(String, Entry)> =
            self.header.entries.iter().map(|(name, entry)| (name.clone(), entry.clone())).collect();
        entries.iter().try_for_each(|(name, entry)| self.stream(name, entry, |_| ()))
    }

    /// Checks all tensors except those in `read`: their bytes must match their checksums, where the file has any, and their values must
    /// be finite.
    ///
    /// # Errors
    /// Returns an error if a tensor does not match its checksum, has a value that is not finite, or cannot be read.
    pub fn verify_others(&mut self, read: &BTreeSet<&str>) -> Result<(), WeightError> {
        let is_other = |(name, _): &(&String, &Entry)| !read.contains(name.as_str());
        let others: Vec<(String, Entry)> = self
            .header
            .entries
            .iter()
            .filter(is_other)
            .map(|(name, entry)| (name.clone(), entry.clone()))
            .collect();
        for (name, entry) in others {
            let mut count = 0;
            self.stream_values(&name, &entry, &mut |_, run| {
                count += run.iter().filter(|value| !value.is_finite()).count();
            })?;
            if count > 0 {
                let (path, of) = (self.path.clone(), Shape(entry.shape).count());
                return Err(WeightError::NotFinite {
                    path,
                    name: format!("{}{name}", self.prefix),
                    count,
                    of,
                });
            }
        }
        Ok(())
    }

    /// Reads all tensors, compares them with their checksums and looks for values of f32 that are not finite; returns
    /// all faults. `observe` receives the number of bytes read so far, and the total.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub fn audit(&mut self, observe: &mut dyn FnMut(u64, u64)) -> Result<Vec<TensorFault>, WeightError> {
        let entries: Vec<(String, Entry)> =
            self.header.entries.iter().map(|(name, entry)| (name.clone(), entry.clone())).collect();
        let all = entries.iter().map(|(_, entry)| entry.bytes.end - entry.bytes.start).sum();
        let (mut faults, mut read) = (Vec::new(), 0);
        for (name, entry) in entries {
            let mut count = 0;
            let is_f32 = entry.dtype == "F32";
            let streamed = self.stream(&name, &entry, |bytes| {
                if is_f32 {
                    let values = bytes.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value));
                    count += values.filter(|value| !value.is_finite()).count() as u64;
                }
                read += bytes.len() as u64;
                observe(read, all);
            });
            match streamed {
                // What is damaged is not looked at further: its values are none.
                Err(WeightError::Damaged { .. }) => faults.push(TensorFault::Damaged { name }),
                Err(other) => return Err(other),
                Ok(()) if count > 0 => faults.push(TensorFault::NotFinite { name, count }),
                Ok(()) => {}
            }
        }
        Ok(faults)
    }

    /// Reads a tensor as f32, in the logical order of its shape, and compares it with its checksum where there is one.
    ///
    /// # Errors
    /// Returns an error if the tensor is missing, has another shape, is not of real numbers, does not match its
    /// checksum, or cannot be read.
    ///
    /// # Panics
    /// Panics unless the buffer is exactly as long as the shape asks for.
    pub fn read(&mut self, name: &str, shape: &Shape, values: &mut [f32]) -> Result<(), WeightError> {
        assert_eq!(values.len(), shape.count(), "room for another tensor");
        self.each_run(name, shape, &mut |first, run| copy_run(first, run, values))
    }

    /// Passes the values of a tensor to `each` in runs, in the logical order of its shape, each with the index of its first value, and
    /// compares the tensor with its checksum, if it has one.
    ///
    /// # Errors
    /// Returns the errors of [`read`](Self::read).
    pub fn each_run(&mut self, name: &str, shape: &Shape, each: &mut EachRun<'_>) -> Result<(), WeightError> {
        let path = &self.path;
        let Some(entry) = self.header.entries.get(name).cloned() else {
            return Err(WeightError::Missing { path: path.into(), name: name.into(), shape: shape.clone() });
        };
        let found = Shape(entry.shape.clone());
        if !fits(&found, shape) {
            let (path, name) = (path.into(), name.into());
            return Err(WeightError::Shape { path, name, found, expected: shape.clone() });
        }
        if element_bytes(&entry.dtype).is_none() {
            let why = format!("`{name}` is {}, which is not a type of real numbers", entry.dtype);
            return Err(WeightError::format(path, why));
        }
        self.stream_values(name, &entry, each)
    }

    /// Passes the values of a tensor to `each`, and compares its bytes with their checksum. Types that are not real numbers have no
    /// values.
    fn stream_values(
        &mut self,
        name: &str,
        entry: &Entry,
        each: &mut EachRun<'_>,
    ) -> Result<(), WeightError> {
        let (mut first, mut values) = (0, [0.0; RUN]);
        self.stream(name, entry, |bytes| {
            // Opening the file checked that a known type has as many bytes as its shape asks for.
            let Some(size) = element_bytes(&entry.dtype) else { return };
            for bytes in bytes.chunks(RUN * size) {
                let values = &mut values[..bytes.len() / size];
                widen(&entry.dtype, bytes, values);
                each(first, values);
                first += values.len();
            }
        })
    }

    /// Gives the bytes of a tensor to `each` in pieces of whole elements, and compares them with their checksum.
    fn stream(&mut self, name: &str, entry: &Entry, mut each: impl FnMut(&[u8])) -> Result<(), WeightError> {
        let path = &self.path;
        let io = |error| WeightError::io(path, error);
        self.file.seek(SeekFrom::Start(self.data + entry.bytes.start)).map_err(io)?;
        let mut buffer = [0; CHUNK_BYTES];
        let mut sum = Digester::default();
        let mut left = entry.bytes.end - entry.bytes.start;
        while left > 0 {
            let bytes = &mut buffer[..left.min(CHUNK_BYTES as u64) as usize];
            self.file.read_exact(bytes).map_err(io)?;
            left -= bytes.len() as u64;
            if entry.checksum.is_some() {
                sum.update(bytes);
            }
            each(bytes);
        }
        match &entry.checksum {
            Some(expected) if sum.finish().to_string() != *expected => {
                let tensor = Some(format!("{}{name}", self.prefix));
                Err(WeightError::Damaged { path: path.into(), tensor })
            }
            _ => Ok(()),
        }
    }
}

/// Bytes that are read or written at a time: whole elements of any type.
const CHUNK_BYTES: usize = 64 << 10;

/// The most values in a run.
const RUN: usize = 4096;

#[cfg(test)]
mod tests {
    use std::fs::File;

    use plimsoll_memory::Digest;

    use super::super::header::CHECKSUMS;
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

    /// A small file, and whether all of it can be read.
    fn small(path: &Path) -> Vec<u8> {
        let tensors = [("a".to_string(), Shape(vec![2, 3])), ("b".to_string(), Shape(vec![5]))];
        let metadata = BTreeMap::from([("step".to_string(), "seven".to_string())]);
        let mut file = File::create(path).unwrap();
        let fill = |i: usize, values: &mut [f32]| {
            values.fill(1.5 + i as f32);
            Ok(())
        };
        write(&mut file, &tensors, &metadata, &mut [0.0; 6], fill).unwrap();
        std::fs::read(path).unwrap()
    }

    fn read_all(path: &Path) -> Result<(), WeightError> {
        let mut file = SafetensorsFile::open(path)?;
        file.read("a", &Shape(vec![2, 3]), &mut [0.0; 6])?;
        file.read("b", &Shape(vec![5]), &mut [0.0; 5])?;
        file.verify_all()
    }

    #[test]
    fn a_change_of_any_byte_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weights.safetensors");
        let whole = small(&path);
        assert!(SafetensorsFile::open(&path).unwrap().has_checksums());
        read_all(&path).unwrap();
        for place in 0..whole.len() {
            for flip in [1, 0x20, 0x80, 0xff] {
                let mut damaged = whole.clone();
                damaged[place] ^= flip;
                std::fs::write(&path, &damaged).unwrap();
                assert!(read_all(&path).is_err(), "byte {place} ^ {flip:#x}");
            }
        }
        let mut damaged = whole.clone();
        *damaged.last_mut().unwrap() ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        let error = read_all(&path).unwrap_err();
        assert!(matches!(&error, WeightError::Damaged { tensor: Some(name), .. } if name == "b"), "{error}");
    }

    #[test]
    fn a_file_that_was_cut_off_or_went_on_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weights.safetensors");
        let whole = small(&path);
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert!(read_all(&path).is_err(), "{length} bytes");
        }
        std::fs::write(&path, [&whole[..], &[0]].concat()).unwrap();
        assert!(read_all(&path).is_err());
    }

    #[test]
    fn the_sums_of_tensors_are_xxh3_of_their_bytes_and_the_data_begins_at_a_multiple_of_eight() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weights.safetensors");
        let whole = small(&path);
        let header = u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
        assert_eq!(header % 8, 0);
        let b: Vec<u8> = [2.5f32; 5].iter().flat_map(|value| value.to_le_bytes()).collect();
        assert_eq!(whole[whole.len() - 20..], b);
        let file = SafetensorsFile::open(&path).unwrap();
        let sums: BTreeMap<String, String> = serde_json::from_str(&file.metadata()[CHECKSUMS]).unwrap();
        assert_eq!(sums["b"], Digest::compute(&b).to_string());
    }

    #[test]
    fn tensors_that_were_not_read_are_verified() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weights.safetensors");
        let whole = small(&path);
        let verify =
            |read: &[&str]| SafetensorsFile::open(&path)?.verify_others(&read.iter().copied().collect());
        verify(&[]).unwrap();
        let mut damaged = whole.clone();
        *damaged.last_mut().unwrap() ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        assert!(
            matches!(verify(&["a"]), Err(WeightError::Damaged { tensor: Some(name), .. }) if name == "b")
        );
        verify(&["b"]).unwrap();
        // A file without checksums is still checked for values that are not finite.
        let header = br#"{"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}}"#;
        let nan = half::f16::NAN.to_le_bytes();
        let bytes = [&(header.len() as u64).to_le_bytes()[..], header, &[0, 0x3c], &nan].concat();
        std::fs::write(&path, bytes).unwrap();
        assert!(matches!(verify(&[]), Err(WeightError::NotFinite { count: 1, of: 2, .. })));
    }

    #[test]
    fn a_file_of_another_program_needs_no_checksums() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weights.safetensors");
        let header = br#"{"module.a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}}   "#;
        let bytes = [&(header.len() as u64).to_le_bytes()[..], header, &[0, 0x3c, 0, 0xc0]].concat();
        std::fs::write(&path, bytes).unwrap();
        let mut file = SafetensorsFile::open(&path).unwrap();
        assert!(!file.has_checksums());
        let mut values = [0.0; 2];
        file.read("a", &Shape(vec![2]), &mut values).unwrap();
        assert_eq!(values, [1.0, -2.0]);
    }
}
