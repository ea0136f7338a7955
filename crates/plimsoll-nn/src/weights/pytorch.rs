//! PyTorch state dicts.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use plimsoll_disk::File;
use plimsoll_graph::Shape;
use plimsoll_memory::{Budget, Bytes, Reservation};
use pytorch_reader::{PytorchReader, Tensor};

use super::archive::{self, directory};
use super::pickle::{Refusal, Room, weigh};
use super::prefix::by_bare_name;
use super::{WeightError, element_bytes, fits, widen};

/// An open `.pt` or `.pth` file. Nothing in it is executed: tensors are found by walking its pickle.
pub struct PytorchFile {
    path: PathBuf,
    /// Bytes of the file.
    length: u64,
    /// By their names without what wrappers put before them.
    tensors: BTreeMap<String, Tensor>,
    budget: Budget,
    /// What names, shapes and places of the tensors take.
    _held: Option<Reservation>,
}

/// Keys under which training scripts nest the state dict.
const NESTED: [&str; 4] = ["state_dict", "network_weights", "model_state_dict", "model"];

/// Where archives of PyTorch before 0.1.10 say what they are.
const TAR_MAGIC: (usize, &[u8]) = (257, b"ustar");

/// What holds the objects of a pickle.
const OBJECTS: &str = "objects of a .pth file";

/// Beside what is counted: buffers of the readers, and small members of an archive.
const BUFFERS: u64 = 64 << 10;

/// Files of PyTorch before 1.6 have this number in their first bytes, or the same in decimal; how many bytes.
const LEGACY_MAGIC: [&[u8]; 2] =
    [&[0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19], b"119547037146038801333356"];
const LEGACY_START: usize = 64;

/// The pickles before that of the tensors in such files: the number, a version, what the machine was.
const LEGACY_HEADERS: usize = 3;

/// More than any of these takes.
const MOST_HEADER: u64 = 64 << 10;

impl PytorchFile {
    /// Opens a file; a state dict nested under a customary key (`state_dict`, nnU-Net's `network_weights`) is found. Tensors
    /// are found without the `module.` and `_orig_mod.` that wrappers of a network put before their names. They are read later,
    /// inside the budget.
    ///
    /// What the objects of its pickle take at most is weighed first, and held in the budget while they are walked; what its
    /// tensors are, but for their values, as long as the file is open.
    ///
    /// # Errors
    /// If it cannot be read, holds no tensors, or the budget has no room for what its pickle builds.
    pub fn open(path: &Path, budget: &Budget) -> Result<PytorchFile, WeightError> {
        let failed = |error| WeightError::io(path, error);
        let mut file = File::open(path).map_err(failed)?;
        let length = file.len().map_err(failed)?;
        let (mut held, kept) = weigh_file(&mut file, budget).map_err(|refusal| match refusal {
            Refusal::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
                WeightError::format(path, error.to_string())
            }
            Refusal::Io(error) => failed(error),
            Refusal::NoPickle(why) => WeightError::format(path, why),
            Refusal::OverBudget(source) => WeightError::OverBudget { path: path.into(), source },
        })?;
        let reader = guarded(path, || PytorchReader::new(path).map_err(|error| error.to_string()))?;
        let all = reader.into_tensors();
        if all.is_empty() {
            return Err(WeightError::format(path, NO_TENSORS));
        }
        let nested = NESTED.iter().map(|key| format!("{key}."));
        let key = nested.into_iter().find(|key| all.keys().any(|name| name.starts_with(key)));
        // Tensors that are under no such key are at the top.
        let key = key.unwrap_or_default();
        let chosen = all
            .into_iter()
            .filter_map(|(name, tensor)| name.strip_prefix(&key).map(|name| (name.to_string(), tensor)));
        let twice = |name| {
            let why = format!("`{name}` is there more than once, with and without a prefix");
            WeightError::format(path, why)
        };
        let tensors = by_bare_name(chosen).map_err(twice)?;
        if let Some(held) = &mut held {
            held.shrink_to(held.bytes().min(Bytes(kept)));
        }
        Ok(PytorchFile { path: path.into(), length, tensors, budget: budget.clone(), _held: held })
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
        if !fits(&found, shape) {
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

/// Why a file without tensors is refused.
const NO_TENSORS: &str = "there are no tensors in it";

/// Reserves what walking a file takes, and tells how many bytes of it stay while its tensors are read.
fn weigh_file(file: &mut File, budget: &Budget) -> Result<(Option<Reservation>, u64), Refusal> {
    let (place, magic) = TAR_MAGIC;
    let mut start = Vec::new();
    file.by_ref().take((place + magic.len()) as u64).read_to_end(&mut start)?;
    if start.get(place..) == Some(magic) {
        // Such an archive could only be read by holding all of it.
        return Err(Refusal::NoPickle(
            "it is an archive of PyTorch before 0.1.10; save the weights again with a later one",
        ));
    }
    let mut room = Room::new(budget, OBJECTS);
    room.add(BUFFERS)?;
    let kept = if start.starts_with(archive::BEGIN) {
        weigh_archive(file, &mut room)?
    } else if LEGACY_MAGIC
        .iter()
        .any(|magic| start[..start.len().min(LEGACY_START)].windows(magic.len()).any(|at| at == *magic))
    {
        weigh_legacy(file, &mut room)?
    } else {
        // A pickle alone has no place for tensors.
        return Err(Refusal::NoPickle(NO_TENSORS));
    };
    Ok((room.into_held(), kept.saturating_add(BUFFERS)))
}

fn weigh_archive(file: &mut File, room: &mut Room) -> Result<u64, Refusal> {
    let directory = directory(file)?;
    if !directory.stored {
        return Err(Refusal::NoPickle("it is compressed; save the weights again with `torch.save`"));
    }
    let Some((start, length)) = directory.pickle else { return Err(Refusal::NoPickle(NO_TENSORS)) };
    // The reader holds the pickle as it is, and checks it while it grows.
    room.add(directory.held.saturating_add(length.saturating_mul(2)))?;
    file.seek(SeekFrom::Start(start))?;
    let weight = weigh(&mut BufReader::new(file.take(length)), room)?;
    Ok(weight.kept.saturating_add(directory.held))
}

fn weigh_legacy(file: &mut File, room: &mut Room) -> Result<u64, Refusal> {
    file.seek(SeekFrom::Start(0))?;
    let mut pickles = BufReader::new(file);
    for _ in 0..LEGACY_HEADERS {
        let header = weigh(&mut pickles, room)?;
        if header.peak > MOST_HEADER {
            return Err(Refusal::NoPickle("its beginning is none that PyTorch writes"));
        }
        // One that is of another type is shown in a message, escaped.
        room.add(header.text.saturating_mul(32).saturating_add(header.peak))?;
    }
    let tensors = weigh(&mut pickles, room)?;
    let keys = weigh(&mut pickles, room)?;
    if !keys.is_list {
        return Err(Refusal::NoPickle("it does not list its storages"));
    }
    Ok(tensors.kept.saturating_add(keys.peak))
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
        assert!(
            matches!(&error, WeightError::OverBudget { source, .. } if source.holder == OBJECTS),
            "{error}"
        );
        assert!(error.hint().unwrap().contains("--ram"));
        let budget = Budget::new(Bytes::mib(16));
        let mut file = PytorchFile::open(&path, &budget).unwrap();
        let name = "encoder.stages.0.0.convs.0.conv.weight";
        let shape = file.shape(name).unwrap();
        let mut values = vec![0.0; shape.count()];
        let needed = Bytes::of(2 * 4 * shape.count());
        let rest = budget.free() - needed;
        let _others = budget.reserve("others", rest).unwrap();
        file.read(name, &shape, &mut values).unwrap();
        let _one_byte = budget.reserve("one byte", Bytes(1)).unwrap();
        let error = file.read(name, &shape, &mut values).unwrap_err();
        assert!(matches!(error, WeightError::OverBudget { .. }), "{error}");
    }
}
