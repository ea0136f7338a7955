//! PyTorch state dicts and checkpoints.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use plimsoll_disk::File;
use plimsoll_graph::Shape;
use plimsoll_memory::{Budget, Bytes, Reservation};

use super::archive::{self, Member, directory};
use super::pickle::{Id, Refusal, Room, Tensor, Value, Values, load};
use super::prefix::by_bare_name;
use super::{WeightError, element_bytes, fits, widen};

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
    budget: Budget,
    /// What all of these take.
    _held: Option<Reservation>,
}

/// Where the elements of storages are.
enum Places {
    /// Members of an archive, by their names in it.
    Archive(BTreeMap<String, Member>),
    /// After the pickles of a file of PyTorch before 1.6: where each begins, by its name.
    Legacy(BTreeMap<String, u64>),
}

/// Keys under which training scripts nest the state dict.
const NESTED: [&str; 4] = ["state_dict", "network_weights", "model_state_dict", "model"];

/// Where archives of PyTorch before 0.1.10 say what they are.
const TAR_MAGIC: (usize, &[u8]) = (257, b"ustar");

/// What holds the values of a pickle.
const OBJECTS: &str = "objects of a .pth file";

/// Beside what is counted: buffers of readers.
const BUFFERS: u64 = 64 << 10;

/// Elements are read in pieces of so many bytes, a multiple of the bytes of an element of any type.
const PIECE: usize = 32 << 10;

/// A tensor under its name, beside that name and its extents.
const NAMED: u64 = 512;
const AXIS: u64 = 32;

/// Files of PyTorch before 1.6 have this number in their first bytes, or the same in decimal; how many bytes.
const LEGACY_MAGIC: [&[u8]; 2] =
    [&[0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19], b"119547037146038801333356"];
const LEGACY_START: usize = 64;

/// The pickles before that of the tensors in such files: the number, a version, what the machine was.
const LEGACY_HEADERS: usize = 3;

/// Why a file without tensors is refused.
const NO_TENSORS: &str = "there are no tensors in it";

impl PytorchFile {
    /// Opens a file; a state dict nested under a customary key (`state_dict`, nnU-Net's `network_weights`) is found. Tensors
    /// are found without the `module.` and `_orig_mod.` that wrappers of a network put before their names. They are read later.
    ///
    /// What its pickle says is held in the budget as long as the file is open.
    ///
    /// # Errors
    /// If it cannot be read, holds no tensors, calls what no file of weights needs, or the budget has no room for what it says.
    pub fn open(path: &Path, budget: &Budget) -> Result<PytorchFile, WeightError> {
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
        let (values, places) = read_values(&mut file, length, &mut room).map_err(refused)?;
        let found = state_dict(&values, &mut room).map_err(refused)?;
        if found.is_empty() {
            return Err(WeightError::format(path, NO_TENSORS));
        }
        let twice = |name| {
            let why = format!("`{name}` is there more than once, with and without a prefix");
            WeightError::format(path, why)
        };
        let tensors = by_bare_name(found).map_err(twice)?;
        let (path, budget, _held) = (path.into(), budget.clone(), room.into_held());
        Ok(PytorchFile { path, file, length, tensors, values, places, budget, _held })
    }

    /// The names of all tensors, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// The shape of a tensor, if it is there.
    pub fn shape(&self, name: &str) -> Option<Shape> {
        self.tensors.get(name).map(shape_of)
    }

    /// Whether a tensor of this name is there.
    pub fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// What a checkpoint says beside its tensors, as far as that is data: the value that a path of names leads to.
    pub fn said(&self, path: &[&str]) -> Option<Said<'_>> {
        let id = path.iter().try_fold(self.values.root(), |dict, name| self.values.entry(dict, name))?;
        Some(self.said_by(id))
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

    /// Reads a tensor as f32, in pieces. One whose elements do not follow each other in the file takes what lies between its first
    /// and its last from the budget meanwhile.
    ///
    /// # Errors
    /// If it is not there, has another shape, is not of real numbers, claims more bytes than the file has, cannot be read, is
    /// damaged, or the budget has no room.
    ///
    /// # Panics
    /// If there is not room for just as many values as the shape has.
    pub fn read(&mut self, name: &str, shape: &Shape, values: &mut [f32]) -> Result<(), WeightError> {
        assert_eq!(values.len(), shape.count(), "room for another tensor");
        let path = &self.path;
        let Some(tensor) = self.tensors.get(name) else {
            return Err(WeightError::Missing { path: path.into(), name: name.into(), shape: shape.clone() });
        };
        let found = shape_of(tensor);
        if !fits(&found, shape) {
            let (path, name) = (path.into(), name.into());
            return Err(WeightError::Shape { path, name, found, expected: shape.clone() });
        }
        let dtype = tensor.storage.dtype;
        let Some(size) = element_bytes(dtype) else {
            let why = format!("`{name}` is {dtype}, which is no type of real numbers");
            return Err(WeightError::format(path, why));
        };
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
                WeightError::format(path, format!("`{name}`: {error}"))
            }
            _ => WeightError::io(path, error),
        };
        // The elements from the first to behind the last.
        let span =
            tensor.shape.iter().zip(&tensor.strides).try_fold(1u64, |span, (extent, stride)| match extent {
                0 => Some(0),
                _ => span.checked_add((extent - 1).checked_mul(*stride)?),
            });
        let span = if values.is_empty() { Some(0) } else { span };
        let end =
            span.and_then(|span| tensor.offset.checked_add(span)).filter(|end| *end <= tensor.storage.count);
        let bytes = end.and_then(|end| end.checked_mul(size as u64)).filter(|bytes| *bytes <= self.length);
        let (Some(span), Some(_)) = (span, bytes) else {
            let why = format!(
                "`{name}` claims {} elements behind {}, but its storage has {} and the file {} bytes",
                values.len(),
                tensor.offset,
                tensor.storage.count,
                self.length
            );
            return Err(WeightError::format(path, why));
        };
        let Some(key) = self.values.text(tensor.storage.key) else {
            return Err(WeightError::format(path, format!("the storage of `{name}` has no name")));
        };
        let (start, checksum) = match &self.places {
            Places::Archive(members) => {
                let member = members.get(&format!("data/{key}"));
                let expected = tensor.storage.count.checked_mul(size as u64);
                let Some(member) = member.filter(|member| Some(member.length) == expected) else {
                    let why = format!(
                        "`{name}` has {} elements of {dtype} in `{key}`, which has not",
                        tensor.storage.count
                    );
                    return Err(WeightError::format(path, why));
                };
                // A checksum is of the whole member. Where none is asked for, PyTorch writes none.
                let is_whole = tensor.offset == 0 && span == tensor.storage.count && tensor.is_contiguous();
                let checksum = Some(member.checksum).filter(|checksum| is_whole && *checksum != 0);
                (member.start(&mut self.file).map_err(failed)?, checksum)
            }
            Places::Legacy(storages) => match storages.get(key) {
                Some(start) => (*start, None),
                None => {
                    return Err(WeightError::format(
                        path,
                        format!("`{name}` is in `{key}`, which is not there"),
                    ));
                }
            },
        };
        let start = start.saturating_add(tensor.offset * size as u64);
        if tensor.is_contiguous() {
            let found = read_elements(&mut self.file, start, (dtype, size), values).map_err(failed)?;
            if checksum.is_some_and(|checksum| checksum != found) {
                return Err(WeightError::Damaged { path: path.into(), tensor: Some(name.into()) });
            }
            return Ok(());
        }
        let held = self.budget.reserve("weights of a .pth file", Bytes(span.saturating_mul(4)));
        let _held = held.map_err(|source| WeightError::OverBudget { path: path.into(), source })?;
        let mut all = vec![0.0; usize::try_from(span).unwrap_or(0)];
        read_elements(&mut self.file, start, (dtype, size), &mut all).map_err(failed)?;
        let mut index = vec![0; tensor.shape.len()];
        for value in values {
            let place: u64 = index.iter().zip(&tensor.strides).map(|(index, stride)| index * stride).sum();
            *value = all.get(place as usize).copied().unwrap_or(f32::NAN);
            for (index, extent) in index.iter_mut().zip(&tensor.shape).rev() {
                *index += 1;
                if *index < *extent {
                    break;
                }
                *index = 0;
            }
        }
        Ok(())
    }
}

/// What a checkpoint says beside its tensors.
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

/// Reads elements that follow each other, and tells the checksum of their bytes.
fn read_elements(
    file: &mut File,
    start: u64,
    (dtype, size): (&str, usize),
    values: &mut [f32],
) -> io::Result<u32> {
    file.seek(SeekFrom::Start(start))?;
    let mut piece = [0; PIECE];
    let mut checksum = crc32fast::Hasher::new();
    for values in values.chunks_mut(PIECE / size) {
        let Some(bytes) = piece.get_mut(..values.len() * size) else { continue };
        file.read_exact(bytes)?;
        checksum.update(bytes);
        widen(dtype, bytes, values);
    }
    Ok(checksum.finalize())
}

/// All that a file says, and where its storages are.
fn read_values(file: &mut File, length: u64, room: &mut Room) -> Result<(Values, Places), Refusal> {
    let (place, magic) = TAR_MAGIC;
    let mut start = Vec::new();
    file.by_ref().take((place + magic.len()) as u64).read_to_end(&mut start)?;
    if start.get(place..) == Some(magic) {
        // Such an archive could only be read by holding all of it.
        return Err(Refusal::NoPickle(
            "it is an archive of PyTorch before 0.1.10; save the weights again with a later one",
        ));
    }
    room.add(BUFFERS)?;
    if start.starts_with(archive::BEGIN) {
        return read_archive(file, room);
    }
    let begin = start.get(..start.len().min(LEGACY_START)).unwrap_or_default();
    if LEGACY_MAGIC.iter().any(|magic| begin.windows(magic.len()).any(|at| at == *magic)) {
        return read_legacy(file, length, room);
    }
    // A pickle alone has no place for tensors.
    Err(Refusal::NoPickle(NO_TENSORS))
}

fn read_archive(file: &mut File, room: &mut Room) -> Result<(Values, Places), Refusal> {
    let directory = directory(file, room)?;
    if !directory.stored {
        return Err(Refusal::NoPickle("it is compressed; save the weights again with `torch.save`"));
    }
    let members = directory.members;
    let Some(pickle) = members.get(archive::PICKLE) else { return Err(Refusal::NoPickle(NO_TENSORS)) };
    let order = members.get("byteorder").map(|order| order.start(file).map(|start| (start, order.length)));
    if let Some((start, length)) = order.transpose()? {
        let mut order = Vec::new();
        file.seek(SeekFrom::Start(start))?;
        file.by_ref().take(length.min(PIECE as u64)).read_to_end(&mut order)?;
        if order != b"little" {
            return Err(Refusal::NoPickle(
                "its numbers are not little-endian; save the weights again on another machine",
            ));
        }
    }
    let start = pickle.start(file)?;
    file.seek(SeekFrom::Start(start))?;
    let values = load(&mut BufReader::new(file.take(pickle.length)), pickle.length, room)?;
    Ok((values, Places::Archive(members)))
}

/// A file of PyTorch before 1.6: pickles one after the other, the last of which lists the storages behind it. Each begins with the
/// number of its elements.
fn read_legacy(file: &mut File, length: u64, room: &mut Room) -> Result<(Values, Places), Refusal> {
    const NO_LIST: Refusal = Refusal::NoPickle("it does not list its storages");
    file.seek(SeekFrom::Start(0))?;
    let mut pickles = BufReader::new(&mut *file);
    for _ in 0..LEGACY_HEADERS {
        load(&mut pickles, length, room)?;
    }
    let values = load(&mut pickles, length, room)?;
    let keys = load(&mut pickles, length, room)?;
    let mut place = pickles.stream_position()?;
    let sizes = values.storages().map(|storage| {
        let key = values.text(storage.key).ok_or(NO_LIST)?;
        Ok((key, element_bytes(storage.dtype)))
    });
    let mut places = BTreeMap::new();
    let count = keys.items(keys.root()).ok_or(NO_LIST)?.len() as u64;
    room.add(count.saturating_mul(NAMED))?;
    room.add(values.storages().count() as u64 * AXIS * 4)?;
    let sizes = sizes.collect::<Result<BTreeMap<&str, Option<usize>>, Refusal>>()?;
    for key in keys.items(keys.root()).ok_or(NO_LIST)? {
        let key = keys.text(*key).ok_or(NO_LIST)?;
        room.add(2 * key.len() as u64)?;
        file.seek(SeekFrom::Start(place))?;
        let mut count = [0; 8];
        file.read_exact(&mut count)?;
        place = place.saturating_add(8);
        places.insert(key.to_string(), place);
        // Behind a storage of unknown elements nothing can be found.
        let Some(Some(size)) = sizes.get(key) else { break };
        place = place.saturating_add(u64::from_le_bytes(count).saturating_mul(*size as u64));
    }
    Ok((values, Places::Legacy(places)))
}

/// The tensors of a state dict, which may be nested under a customary key.
fn state_dict(values: &Values, room: &mut Room) -> Result<Vec<(String, Tensor)>, Refusal> {
    let root = values.root();
    let nested = NESTED.iter().filter_map(|key| values.entry(root, key));
    for from in nested.chain([root]) {
        let found =
            values.tensors(from, |name, axes| room.add(NAMED + 4 * name as u64 + axes as u64 * AXIS))?;
        if !found.is_empty() {
            return Ok(found.into_iter().collect());
        }
    }
    Ok(Vec::new())
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
        // Elements that follow each other are read in pieces.
        let _others = budget.reserve("others", budget.free()).unwrap();
        file.read(name, &shape, &mut values).unwrap();
        // Those that do not, are gathered from what lies between them.
        file.tensors.get_mut(name).unwrap().strides.reverse();
        let error = file.read(name, &shape, &mut values).unwrap_err();
        assert!(matches!(error, WeightError::OverBudget { .. }), "{error}");
    }
}
