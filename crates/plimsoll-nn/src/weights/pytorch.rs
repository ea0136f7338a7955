//! PyTorch state dicts and checkpoints.

mod container;
mod elements;
mod plain_data;
mod torch_script;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use plimsoll_disk::File;
use plimsoll_graph::Shape;
use plimsoll_memory::{Budget, Reservation};

use self::container::{Contents, Places, read_values, state_dict};
use self::elements::{Elements, checksum_of};
pub use self::plain_data::JSON_BYTES;
pub use self::torch_script::TorchScriptFile;
use super::archive::{CodeMember, Member};
use super::pickle::{Id, Refusal, Room, Tensor, Value, Values};
use super::prefix::by_bare_name;
use super::{EachRun, WeightError, copy_run, element_bytes, fits};

/// An open `.pt` or `.pth` file. Nothing in it is executed: tensors are found by reading its pickle as data.
pub struct PytorchFile {
    path: PathBuf,
    file: File,
    /// Bytes of the file.
    length: u64,
    /// By their names without what wrappers put before them.
    tensors: BTreeMap<String, Tensor>,
    /// All that its pickle says.
    values: Values,
    places: Places,
    /// The code of TorchScript, if it is an archive of it.
    code: BTreeMap<String, CodeMember>,
    /// Storages whose bytes matched their checksum.
    verified: BTreeSet<String>,
    /// The reservation for all of these.
    _held: Option<Reservation>,
}

/// The holder of the values of a pickle.
const OBJECTS: &str = "objects of a .pth file";

/// The prefix of the names of members that contain storages.
const STORAGES: &str = "data/";

/// Why a file without tensors is refused.
const NO_TENSORS: &str = "it has no tensors";

impl PytorchFile {
    /// Opens a file; a state dict nested under a customary key (`state_dict`, nnU-Net's `network_weights`) is found. Tensors
    /// are found without the `module.` and `_orig_mod.` that wrappers of a network put before their names. They are read later.
    ///
    /// The content of its pickle stays reserved in the budget as long as the file is open.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, holds no tensors, calls a function that weight files do not need,
    /// or does not fit the budget.
    pub fn open(path: &Path, budget: &Budget) -> Result<PytorchFile, WeightError> {
        PytorchFile::open_with(path, budget, state_dict)
    }

    /// Opens a file whose tensors are those that a function finds.
    fn open_with(
        path: &Path,
        budget: &Budget,
        find: impl FnOnce(&Values, &mut Room) -> Result<Vec<(String, Tensor)>, Refusal>,
    ) -> Result<PytorchFile, WeightError> {
        let failed = |error| WeightError::io(path, error);
        let refused = |refusal| match refusal {
            Refusal::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
                WeightError::format(path, error.to_string())
            }
            Refusal::Io(error) => failed(error),
            Refusal::NoPickle(why) => WeightError::format(path, why),
            Refusal::Calls(function) => WeightError::Calls { path: path.into(), function: function.into() },
            Refusal::OverBudget(source) => WeightError::OverBudget { path: path.into(), source },
        };
        let mut file = File::open(path).map_err(failed)?;
        let length = file.len().map_err(failed)?;
        let mut room = Room::new(budget, OBJECTS);
        let Contents { values, places, code } = read_values(&mut file, length, &mut room).map_err(refused)?;
        let found = find(&values, &mut room).map_err(refused)?;
        if found.is_empty() {
            return Err(WeightError::format(path, NO_TENSORS));
        }
        let twice = |name| {
            let why = format!("`{name}` appears more than once, with and without a prefix");
            WeightError::format(path, why)
        };
        let tensors = by_bare_name(found).map_err(twice)?;
        let (path, verified, _held) = (path.into(), BTreeSet::new(), room.into_held());
        Ok(PytorchFile { path, file, length, tensors, values, places, code, verified, _held })
    }

    /// The names of all tensors, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// The shape of a tensor, if it is there.
    pub fn shape(&self, name: &str) -> Option<Shape> {
        self.tensors.get(name).map(shape_of)
    }

    /// Returns `true` if the file has a tensor of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Returns an entry of a checkpoint beside its tensors, if it is data: the value at the end of a path of names.
    pub fn said(&self, path: &[&str]) -> Option<Said<'_>> {
        let id = path.iter().try_fold(self.values.root(), |dict, name| self.values.entry(dict, name))?;
        Some(self.said_by(id))
    }

    /// Returns an entry of a checkpoint beside its tensors as JSON; `None` if there is none. It takes up to [`JSON_BYTES`].
    ///
    /// # Errors
    /// Returns an error if a part of it is no data, or it is larger than a description.
    pub fn json(&self, name: &str) -> Result<Option<serde_json::Value>, WeightError> {
        let Some(id) = self.values.entry(self.values.root(), name) else { return Ok(None) };
        let refused = |why| WeightError::format(&self.path, format!("`{name}` cannot be read: {why}"));
        plain_data::json(&self.values, id).map(Some).map_err(refused)
    }

    fn said_by(&self, id: Id) -> Said<'_> {
        match self.values.get(id) {
            Value::None => Said::Nothing,
            Value::Text(text) => Said::Text(text),
            Value::Int(number) => Said::Number(*number),
            Value::List(items) | Value::Tuple(items) => {
                let number = |item: &Id| match self.values.get(*item) {
                    Value::Int(number) => Some(*number),
                    _ => None,
                };
                items
                    .iter()
                    .take(MOST_SAID)
                    .map(number)
                    .collect::<Option<_>>()
                    .map_or(Said::Else, Said::Numbers)
            }
            _ => Said::Else,
        }
    }

    /// Reads a tensor as f32.
    ///
    /// # Errors
    /// Returns an error if the tensor is missing, has another shape, is not of real numbers, claims more bytes than the
    /// file has, cannot be read, or is damaged.
    ///
    /// # Panics
    /// Panics unless the buffer is exactly as long as the shape asks for.
    pub fn read(&mut self, name: &str, shape: &Shape, values: &mut [f32]) -> Result<(), WeightError> {
        assert_eq!(values.len(), shape.count(), "room for another tensor");
        self.each_run(name, shape, &mut |first, run| copy_run(first, run, values))
    }

    /// Passes the values of a tensor to `each` in runs of the logical order of its shape, each with the index of its first value. Every
    /// value is passed once; runs come in the order in which the file stores them. Takes buffers of fixed size, whatever the tensor's
    /// size and strides.
    ///
    /// # Errors
    /// Returns the errors of [`read`](Self::read).
    pub fn each_run(&mut self, name: &str, shape: &Shape, each: &mut EachRun<'_>) -> Result<(), WeightError> {
        let path = &self.path;
        let Some(tensor) = self.tensors.get(name) else {
            return Err(WeightError::Missing { path: path.into(), name: name.into(), shape: shape.clone() });
        };
        let found = shape_of(tensor);
        if !fits(&found, shape) {
            let (path, name) = (path.into(), name.into());
            return Err(WeightError::Shape { path, name, found, expected: shape.clone() });
        }
        let tensor = tensor.clone();
        self.read_found(name, &tensor, each)
    }

    fn read_found(&mut self, name: &str, tensor: &Tensor, each: &mut EachRun<'_>) -> Result<(), WeightError> {
        let Stored { start, span, size, checksum } = self.find(name, tensor)?;
        let dtype = tensor.storage.dtype;
        let elements = Elements { start: start.saturating_add(tensor.offset * size as u64), dtype, size };
        if !tensor.is_contiguous() {
            let read = elements.read_strided(&mut self.file, tensor, span, each);
            return read.map_err(|error| self.failed(name, error));
        }
        let found = elements.read(&mut self.file, span, each);
        let found = found.map_err(|error| self.failed(name, error))?;
        match checksum {
            Some(checksum) if checksum != found => {
                Err(WeightError::Damaged { path: self.path.clone(), tensor: Some(name.into()) })
            }
            Some(_) => {
                self.verified.extend(self.values.text(tensor.storage.key).map(str::to_string));
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Finds the elements of a tensor, whose claims are checked against the lengths of its storage and of the file.
    fn find(&mut self, name: &str, tensor: &Tensor) -> Result<Stored, WeightError> {
        let path = &self.path;
        let dtype = tensor.storage.dtype;
        let Some(size) = element_bytes(dtype) else {
            let why = format!("`{name}` is {dtype}, which is not a type of real numbers");
            return Err(WeightError::format(path, why));
        };
        let count = tensor.shape.iter().fold(1u64, |count, extent| count.saturating_mul(*extent));
        // The elements from the first to behind the last.
        let span =
            tensor.shape.iter().zip(&tensor.strides).try_fold(1u64, |span, (extent, stride)| match extent {
                0 => Some(0),
                _ => span.checked_add((extent - 1).checked_mul(*stride)?),
            });
        let span = if count == 0 { Some(0) } else { span };
        let end =
            span.and_then(|span| tensor.offset.checked_add(span)).filter(|end| *end <= tensor.storage.count);
        let bytes = end.and_then(|end| end.checked_mul(size as u64)).filter(|bytes| *bytes <= self.length);
        let (Some(span), Some(_)) = (span, bytes) else {
            let why = format!(
                "`{name}` claims {count} elements after {}, but its storage has {} and the file {} bytes",
                tensor.offset, tensor.storage.count, self.length
            );
            return Err(WeightError::format(path, why));
        };
        let Some(key) = self.values.text(tensor.storage.key) else {
            return Err(WeightError::format(path, format!("the storage of `{name}` has no name")));
        };
        match &self.places {
            Places::Archive(members) => {
                let member = members.get(&format!("{STORAGES}{key}"));
                let expected = tensor.storage.count.checked_mul(size as u64);
                let Some(member) = member.filter(|member| Some(member.length) == expected) else {
                    let why = format!(
                        "`{name}` has {} elements of {dtype}, more than its storage `{key}`",
                        tensor.storage.count
                    );
                    return Err(WeightError::format(path, why));
                };
                // A checksum is of the whole member. Where none is asked for, PyTorch writes none.
                let is_whole = tensor.offset == 0 && span == tensor.storage.count && tensor.is_contiguous();
                let checksum = Some(member.checksum).filter(|checksum| is_whole && *checksum != 0);
                let start = member.start(&mut self.file).map_err(|error| self.failed(name, error))?;
                Ok(Stored { start, span, size, checksum })
            }
            Places::Legacy(storages) => match storages.get(key) {
                Some(start) => Ok(Stored { start: *start, span, size, checksum: None }),
                None => Err(WeightError::format(path, format!("`{name}` is in `{key}`, which is missing"))),
            },
        }
    }

    /// Checks all tensors except those in `read`: their values must be finite, and their bytes must match their checksums. Members of
    /// the archive that no tensor covers as a whole are compared with their checksums as well.
    ///
    /// # Errors
    /// Returns an error if a value is not finite, or bytes do not match their checksum or cannot be read.
    pub fn verify_others(&mut self, read: &BTreeSet<&str>) -> Result<(), WeightError> {
        // By storage: several tensors may be views of one.
        let mut others: BTreeMap<Id, (String, Tensor)> = BTreeMap::new();
        for (name, tensor) in &self.tensors {
            let storage = &tensor.storage;
            if !read.contains(name.as_str()) && element_bytes(storage.dtype).is_some() {
                let (shape, strides) = (vec![storage.count], vec![1]);
                let whole = Tensor { storage: storage.clone(), offset: 0, shape, strides };
                others.insert(storage.key, (name.clone(), whole));
            }
        }
        for (name, whole) in others.into_values() {
            let (mut count, mut of) = (0, 0);
            self.read_found(&name, &whole, &mut |_, run| {
                of += run.len();
                count += run.iter().filter(|value| !value.is_finite()).count();
            })?;
            if count > 0 {
                return Err(WeightError::NotFinite { path: self.path.clone(), name, count, of });
            }
        }
        let Places::Archive(members) = &self.places else { return Ok(()) };
        let is_unknown = |(name, member): &(&String, &Member)| {
            let is_verified = name.strip_prefix(STORAGES).is_some_and(|key| self.verified.contains(key));
            member.checksum != 0 && !is_verified
        };
        let unknown: Vec<(String, Member)> =
            members.iter().filter(is_unknown).map(|(name, member)| (name.clone(), *member)).collect();
        for (name, member) in unknown {
            let found = checksum_of(&mut self.file, &member).map_err(|error| self.failed(&name, error))?;
            if found != member.checksum {
                return Err(WeightError::Damaged { path: self.path.clone(), tensor: Some(name) });
            }
        }
        Ok(())
    }

    fn failed(&self, name: &str, error: io::Error) -> WeightError {
        match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
                WeightError::format(&self.path, format!("`{name}`: {error}"))
            }
            _ => WeightError::io(&self.path, error),
        }
    }
}

/// The elements of a tensor in the file.
struct Stored {
    /// The first byte of its storage.
    start: u64,
    /// Elements from the tensor's first to its last, including both.
    span: u64,
    /// Bytes of an element.
    size: usize,
    /// The checksum of the storage, where the tensor covers all of it.
    checksum: Option<u32>,
}

/// An entry of a checkpoint beside its tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said<'a> {
    /// Python's `None`.
    Nothing,
    /// A text.
    Text(&'a str),
    /// A whole number.
    Number(i64),
    /// A list or tuple of whole numbers, of a long one the first.
    Numbers(Vec<i64>),
    /// Something else.
    Else,
}

/// More numbers than are asked for at a time.
const MOST_SAID: usize = 16;

fn shape_of(tensor: &Tensor) -> Shape {
    Shape(tensor.shape.iter().map(|extent| usize::try_from(*extent).unwrap_or(usize::MAX)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_memory::Bytes;

    /// The pickle of a dict without tensors.
    const EMPTY_DICT: &[u8] = b"\x80\x02}.";

    #[test]
    fn files_without_tensors_and_old_archives_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weights.pth");
        let budget = Budget::new(Bytes::mib(1));
        let mut archive = vec![0; 512];
        archive[257..262].copy_from_slice(b"ustar");
        let cases: [(&[u8], &str); 4] = [
            (EMPTY_DICT, "no tensors"),
            (&archive, "before 0.1.10"),
            (b"", "weights.pth"),
            (b"PK\x03\x04 and no archive", "weights.pth"),
        ];
        for (bytes, says) in cases {
            std::fs::write(&path, bytes).unwrap();
            let error = PytorchFile::open(&path, &budget).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_compressed_archive_is_refused_before_it_grows() {
        let bomb =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../corpus/seeds/pytorch/eight_mebibytes_of_pickle.pth");
        let error = PytorchFile::open(Path::new(bomb), &Budget::new(Bytes::mib(1))).map(|_| ()).unwrap_err();
        assert!(
            error.to_string().ends_with("it is compressed; save the weights again with `torch.save`"),
            "{error}"
        );
    }

    /// A state dict that PyTorch wrote.
    fn state_dict() -> Vec<u8> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../oracles/data/unet_nnunet.pth");
        std::fs::read(path).unwrap()
    }

    fn read_all(path: &Path, budget: &Budget) -> Result<(), WeightError> {
        let mut file = PytorchFile::open(path, budget)?;
        let names: Vec<String> = file.names().map(str::to_string).collect();
        for name in names {
            let shape = file.shape(&name).unwrap();
            // A buffer for what a damaged file claims would be the network's, which is never so large.
            if shape.count() < 1 << 20 {
                file.read(&name, &shape, &mut vec![0.0; shape.count()])?;
            }
        }
        Ok(())
    }

    #[test]
    fn a_state_dict_that_is_cut_off_is_refused_and_one_that_is_changed_ends_in_an_error_or_its_tensors() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weights.pth");
        let (whole, budget) = (state_dict(), Budget::new(Bytes::mib(16)));
        std::fs::write(&path, &whole).unwrap();
        read_all(&path, &budget).unwrap();
        for part in 0..50 {
            std::fs::write(&path, &whole[..whole.len() * part / 50]).unwrap();
            assert!(read_all(&path, &budget).is_err(), "{part} of 50 parts");
        }
        // The pickle is at the beginning, the archive's directory at the end.
        for place in (0..4096).step_by(29).chain((whole.len() - 4096..whole.len()).step_by(29)) {
            let mut damaged = whole.clone();
            damaged[place] ^= 0xff;
            std::fs::write(&path, &damaged).unwrap();
            if let Err(error) = read_all(&path, &budget) {
                assert!(error.to_string().contains("weights.pth"), "{error}");
            }
            assert_eq!(budget.used(), Bytes::ZERO);
        }
    }

    #[test]
    fn tensors_are_read_inside_the_budget() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weights.pth");
        std::fs::write(&path, state_dict()).unwrap();
        let budget = Budget::new(Bytes(16));
        let error = read_all(&path, &budget).unwrap_err();
        assert!(
            matches!(&error, WeightError::OverBudget { source, .. } if source.holder == OBJECTS),
            "{error}"
        );
        assert!(error.remedy().unwrap().contains("‹ram›"));
        let budget = Budget::new(Bytes::mib(16));
        let mut file = PytorchFile::open(&path, &budget).unwrap();
        let name = "encoder.stages.0.0.convs.0.conv.weight";
        let shape = file.shape(name).unwrap();
        let mut values = vec![0.0; shape.count()];
        // Reading reserves nothing, neither for contiguous tensors nor for strided ones.
        let _others = budget.reserve("others", budget.free()).unwrap();
        file.read(name, &shape, &mut values).unwrap();
        let [outputs, rest] = [shape.dim(0), shape.count() / shape.dim(0)];
        let tensor = file.tensors.get_mut(name).unwrap();
        (tensor.shape, tensor.strides) = (vec![rest as u64, outputs as u64], vec![1, rest as u64]);
        let mut transposed = vec![0.0; values.len()];
        file.read(name, &Shape(vec![rest, outputs]), &mut transposed).unwrap();
        for (place, value) in transposed.iter().enumerate() {
            assert_eq!(*value, values[place % outputs * rest + place / outputs]);
        }
        // All outputs have the weights of the first.
        file.tensors.get_mut(name).unwrap().strides = vec![1, 0];
        file.read(name, &Shape(vec![rest, outputs]), &mut transposed).unwrap();
        for (place, value) in transposed.iter().enumerate() {
            assert_eq!(*value, values[place / outputs]);
        }
    }

    #[test]
    fn a_flipped_bit_anywhere_in_an_archive_is_detected_even_if_no_tensor_was_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weights.pth");
        let (whole, budget) = (state_dict(), Budget::new(Bytes::mib(16)));
        std::fs::write(&path, &whole).unwrap();
        let verify = || PytorchFile::open(&path, &budget)?.verify_others(&BTreeSet::new());
        verify().unwrap();
        let file = PytorchFile::open(&path, &budget).unwrap();
        let Places::Archive(members) = &file.places else { panic!("an archive") };
        let mut opened = File::open(&path).unwrap();
        for (name, member) in members.iter().filter(|(_, member)| member.length > 0) {
            let start = member.start(&mut opened).unwrap() as usize;
            for place in [start, start + member.length as usize - 1] {
                let mut damaged = whole.clone();
                damaged[place] ^= 1;
                std::fs::write(&path, &damaged).unwrap();
                assert!(verify().is_err(), "{name}");
            }
        }
    }
}
