//! The containers that PyTorch has stored weights in: archives, and before PyTorch 1.6 pickles one after the other.

use std::collections::BTreeMap;
use std::io::{BufReader, Read, Seek, SeekFrom};

use plimsoll_disk::File;

use super::NO_TENSORS;
use super::elements::PIECE;
use crate::weights::archive::{self, CodeMember, Directory, Member, directory};
use crate::weights::element_bytes;
use crate::weights::pickle::{Id, Refusal, Room, Tensor, Value, Values, load};

/// The locations of the storages' elements.
pub(super) enum Places {
    /// Members of an archive, by their names in it.
    Archive(BTreeMap<String, Member>),
    /// After the pickles of a file of PyTorch before 1.6: where each begins, by its name.
    Legacy(BTreeMap<String, u64>),
}

/// All that a file says.
pub(super) struct Contents {
    /// The values of its pickle.
    pub(super) values: Values,
    /// The places of storages.
    pub(super) places: Places,
    /// The code of an archive of TorchScript, by the names of its members.
    pub(super) code: BTreeMap<String, CodeMember>,
}

/// Keys under which training scripts nest the state dict.
const NESTED: [&str; 4] = ["state_dict", "network_weights", "model_state_dict", "model"];

/// The offset and bytes that identify archives of PyTorch before 0.1.10.
const TAR_MAGIC: (usize, &[u8]) = (257, b"ustar");

/// Beside what is counted: buffers of readers.
const BUFFERS: u64 = 64 << 10;

/// A tensor under its name, beside that name and its extents.
const NAMED: u64 = 512;
const AXIS: u64 = 32;

/// Files of PyTorch before 1.6 have this number in their first bytes, or the same in decimal; how many bytes.
const LEGACY_MAGIC: [&[u8]; 2] =
    [&[0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19], b"119547037146038801333356"];
const LEGACY_START: usize = 64;

/// The pickles before the tensors' pickle in such files: the number, a version, what the machine was.
const LEGACY_HEADERS: usize = 3;

/// All that a file says, and where its storages are.
pub(super) fn read_values(file: &mut File, length: u64, room: &mut Room) -> Result<Contents, Refusal> {
    let (place, magic) = TAR_MAGIC;
    let mut start = Vec::new();
    #[expect(clippy::disallowed_methods, reason = "`take` limits the bytes")]
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

fn read_archive(file: &mut File, room: &mut Room) -> Result<Contents, Refusal> {
    let Directory { stored, code, members } = directory(file, room)?;
    if !stored {
        return Err(Refusal::NoPickle("it is compressed; save the weights again with `torch.save`"));
    }
    let Some(pickle) = members.get(archive::PICKLE) else { return Err(Refusal::NoPickle(NO_TENSORS)) };
    let order = members.get("byteorder").map(|order| order.start(file).map(|start| (start, order.length)));
    if let Some((start, length)) = order.transpose()? {
        let mut order = Vec::new();
        file.seek(SeekFrom::Start(start))?;
        #[expect(clippy::disallowed_methods, reason = "`take` limits the bytes")]
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
    Ok(Contents { values, places: Places::Archive(members), code })
}

/// A file of PyTorch before 1.6: pickles one after the other, the last of which lists the storages behind it. Each begins with the
/// number of its elements.
fn read_legacy(file: &mut File, length: u64, room: &mut Room) -> Result<Contents, Refusal> {
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
    Ok(Contents { values, places: Places::Legacy(places), code: BTreeMap::new() })
}

/// The tensors of a state dict, which may be nested under a customary key. A program of TorchScript is none: its tensors mean something only
/// together with its code.
pub(super) fn state_dict(values: &Values, room: &mut Room) -> Result<Vec<(String, Tensor)>, Refusal> {
    let root = values.root();
    if matches!(values.get(root), Value::Object(_)) {
        return Ok(Vec::new());
    }
    let nested = NESTED.iter().filter_map(|key| values.entry(root, key));
    for from in nested.chain([root]) {
        let found = tensors_below(values, from, room)?;
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Ok(Vec::new())
}

/// The tensors below a value.
pub(super) fn tensors_below(
    values: &Values,
    from: Id,
    room: &mut Room,
) -> Result<Vec<(String, Tensor)>, Refusal> {
    let found = values.tensors(from, |name, axes| room.add(NAMED + 4 * name as u64 + axes as u64 * AXIS))?;
    Ok(found.into_iter().collect())
}
