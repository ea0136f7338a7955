//! PyTorch state dicts.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use plimsoll_disk::File;
use plimsoll_graph::Shape;
use plimsoll_memory::{Budget, Bytes};
use pytorch_reader::{PytorchReader, Tensor};

use super::archive::is_stored;
use super::prefix::by_bare_name;
use super::{WeightError, element_bytes, widen};

/// An open `.pt` or `.pth` file. Nothing in it is executed: tensors are found by walking its pickle.
pub struct PytorchFile {
    path: PathBuf,
    /// Bytes of the file.
    length: u64,
    /// By their names without what wrappers put before them.
    tensors: BTreeMap<String, Tensor>,
    budget: Budget,
}

/// Keys under which training scripts nest the state dict.
const NESTED: [&str; 4] = ["state_dict", "network_weights", "model_state_dict", "model"];

/// Where archives of PyTorch before 0.1.10 say what they are.
const TAR_MAGIC: (usize, &[u8]) = (257, b"ustar");

impl PytorchFile {
    /// Opens a file; a state dict nested under a customary key (`state_dict`, nnU-Net's `network_weights`) is found. Tensors
    /// are found without the `module.` and `_orig_mod.` that wrappers of a network put before their names. They are read later,
    /// inside the budget.
    ///
    /// # Errors
    /// If it cannot be read, or holds no tensors.
    pub fn open(path: &Path, budget: &Budget) -> Result<PytorchFile, WeightError> {
        let failed = |error| WeightError::io(path, error);
        let format = |why: &str| WeightError::format(path, why);
        let mut file = File::open(path).map_err(failed)?;
        let length = file.len().map_err(failed)?;
        let (place, magic) = TAR_MAGIC;
        let mut start = Vec::new();
        file.by_ref().take((place + magic.len()) as u64).read_to_end(&mut start).map_err(failed)?;
        if start.get(place..) == Some(magic) {
            // Such an archive could only be read by holding all of it.
            return Err(format(
                "it is an archive of PyTorch before 0.1.10; save the weights again with a later one",
            ));
        }
        match is_stored(&mut file) {
            Ok(true) => {}
            Ok(false) => return Err(format("it is compressed; save the weights again with `torch.save`")),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(format(&error.to_string()));
            }
            Err(error) => return Err(failed(error)),
        }
        let whole = guarded(path, || PytorchReader::new(path).map_err(|error| error.to_string()));
        let nested = || {
            NESTED.iter().find_map(|key| {
                guarded(path, || {
                    PytorchReader::with_top_level_key(path, key).map_err(|error| error.to_string())
                })
                .ok()
                .filter(|reader| !reader.is_empty())
            })
        };
        let reader = match (nested(), whole) {
            (Some(reader), _) => reader,
            (None, Ok(reader)) if !reader.is_empty() => reader,
            (None, Ok(_)) => return Err(format("there are no tensors in it")),
            (None, Err(error)) => return Err(error),
        };
        let twice = |name| format(&format!("`{name}` is there more than once, with and without a prefix"));
        let tensors = by_bare_name(reader.into_tensors()).map_err(twice)?;
        Ok(PytorchFile { path: path.into(), length, tensors, budget: budget.clone() })
    }

    /// The names of all tensors, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// The shape of a tensor, if it is there.
    pub fn shape(&self, name: &str) -> Option<Shape> {
        self.tensors.get(name).map(|tensor| Shape(tensor.shape().to_vec()))
    }

    /// Whether a tensor of this name is there.
    pub fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Reads a tensor as f32. Twice its bytes are taken from the budget meanwhile: what is stored, and what is gathered of it
    /// where it lies there in another order.
    ///
    /// # Errors
    /// If it is not there, has another shape, is not of real numbers, claims more bytes than the file has, cannot be read, or
    /// the budget has no room.
    ///
    /// # Panics
    /// If there is not room for just as many values as the shape has.
    pub fn read(&mut self, name: &str, shape: &Shape, values: &mut [f32]) -> Result<(), WeightError> {
        assert_eq!(values.len(), shape.count(), "room for another tensor");
        let path = &self.path;
        let Some(tensor) = self.tensors.get(name) else {
            return Err(WeightError::Missing { path: path.into(), name: name.into(), shape: shape.clone() });
        };
        let found = Shape(tensor.shape().to_vec());
        if found != *shape {
            let (path, name) = (path.into(), name.into());
            return Err(WeightError::Shape { path, name, found, expected: shape.clone() });
        }
        let dtype = format!("{:?}", tensor.dtype()).to_uppercase();
        let Some(size) = element_bytes(&dtype) else {
            let why = format!("`{name}` is {dtype}, which is no type of real numbers");
            return Err(WeightError::format(path, why));
        };
        let claimed = (values.len() as u64).saturating_mul(size as u64);
        if claimed > self.length {
            let why = format!("`{name}` claims {claimed} bytes, but the file has {}", self.length);
            return Err(WeightError::format(path, why));
        }
        let held = self.budget.reserve("weights of a .pth file", Bytes(claimed.saturating_mul(2)));
        let _held = held.map_err(|source| WeightError::OverBudget { path: path.into(), source })?;
        let bytes = guarded(path, || tensor.read().map_err(|error| error.to_string()))?;
        if bytes.len() as u64 != claimed {
            let why = format!("`{name}` has {} bytes, but {shape} of {dtype} are {claimed}", bytes.len());
            return Err(WeightError::format(path, why));
        }
        widen(&dtype, &bytes, values);
        Ok(())
    }
}

/// What the reader of pickles makes of a file. It is not ours: should it panic over a file that was made to harm, that is a fault
/// of the file.
fn guarded<T>(path: &Path, read: impl FnOnce() -> Result<T, String>) -> Result<T, WeightError> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(result) => result.map_err(|why| WeightError::format(path, why)),
        Err(_) => Err(WeightError::format(
            path,
            "it is no state dict: reading it failed beyond what it may contain",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn a_panic_of_the_reader_is_an_error_of_the_file() {
        let error = guarded(Path::new("weights.pth"), || -> Result<(), String> { panic!("deep inside") });
        assert!(error.unwrap_err().to_string().starts_with("weights.pth: it is no state dict"));
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
        assert!(matches!(error, WeightError::OverBudget { .. }), "{error}");
        let budget = Budget::new(Bytes::mib(16));
        let mut file = PytorchFile::open(&path, &budget).unwrap();
        let name = "encoder.stages.0.0.convs.0.conv.weight";
        let shape = file.shape(name).unwrap();
        file.read(name, &shape, &mut vec![0.0; shape.count()]).unwrap();
        assert_eq!(budget.peak(), Bytes::of(2 * 4 * shape.count()));
    }
}
