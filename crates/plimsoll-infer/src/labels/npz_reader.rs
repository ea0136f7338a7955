//! Reading probabilities from NumPy's `.npz`, plane by plane, whoever wrote it.
//!
//! The array has one output after the other, and planes are wanted with all outputs at a time. So there is a reader for each output, each
//! at its own place in the file: a compressed archive, as nnU-Net writes it, is decompressed by all of them side by side. The checksum of
//! the whole is combined from the checksums of the outputs, and compared after the last plane.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crc32fast::Hasher;
use plimsoll_memory::{Budget, Bytes, Reservation};
use plimsoll_volume::{ArrayMember, ByteOrder, ElementType, MemberReader};

use crate::error::InferError;

/// The memory of a reader: its buffer, the decompressor's window, and a part that is decoded.
const READER: Bytes = Bytes(128 << 10);

/// The memory of the headers of an array and of its archive.
const HEADERS: Bytes = Bytes(1 << 20);

/// The array's name in the archive.
const NAME: &str = "probabilities";

/// Probabilities `[output][depth][height][width]` in f32.
pub(crate) struct ProbabilityReader {
    path: PathBuf,
    outputs: Vec<Output>,
    /// Depth, height, width.
    shape: [usize; 3],
    /// Planes that are still to be read.
    left: usize,
    /// The checksum of the array's header.
    header: Hasher,
    /// The checksum of the whole array, as the archive states it.
    stated: u32,
    _reservation: Reservation,
}

/// An output of the array, and the checksum of the part of it that has been read.
struct Output {
    source: MemberReader,
    sum: Hasher,
}

impl ProbabilityReader {
    /// Opens a file, whose array must be of an image of `shape` (depth, height, width) and have `outputs`.
    ///
    /// # Errors
    /// Returns an error if it cannot be read, is no archive with such an array, or the budget has no room for its readers.
    pub(crate) fn open(
        path: &Path,
        outputs: usize,
        shape: [usize; 3],
        budget: &Budget,
    ) -> Result<ProbabilityReader, InferError> {
        let failed = |source| InferError::Probabilities { path: path.into(), source };
        let member = {
            let _headers = budget.reserve("headers of probabilities", HEADERS)?;
            ArrayMember::open(path, NAME).map_err(failed)?
        };
        let bytes = Bytes(READER.0.saturating_mul(outputs as u64));
        let reservation = budget.reserve("readers of probabilities", bytes)?;
        check(&member, outputs, shape).map_err(failed)?;
        let bytes = shape.iter().product::<usize>() as u64 * size_of::<f32>() as u64;
        let readers = (0..outputs as u64)
            .map(|output| Ok(Output { source: member.reader(path, output * bytes)?, sum: Hasher::new() }));
        let outputs = readers.collect::<io::Result<_>>().map_err(failed)?;
        let mut header = Hasher::new();
        header.update(&member.header);
        let (path, left, stated) = (path.into(), shape[0], member.checksum);
        Ok(ProbabilityReader { path, outputs, shape, left, header, stated, _reservation: reservation })
    }

    /// Adds the next plane to `sums`, `[output][row][column]`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, a probability is no number, or with the last plane, if the file's checksum is another.
    pub(crate) fn add_plane(&mut self, sums: &mut [f32]) -> Result<(), InferError> {
        self.plane(sums).map_err(|source| InferError::Probabilities { path: self.path.clone(), source })
    }

    fn plane(&mut self, sums: &mut [f32]) -> io::Result<()> {
        self.left =
            self.left.checked_sub(1).ok_or_else(|| invalid("all its planes have been read".into()))?;
        let [_, height, width] = self.shape;
        let mut bytes = [0; 4096];
        for (output, sums) in self.outputs.iter_mut().zip(sums.chunks_exact_mut(height * width)) {
            for part in sums.chunks_mut(bytes.len() / size_of::<f32>()) {
                let bytes = &mut bytes[..size_of_val(part)];
                output.source.read_exact(bytes)?;
                output.sum.update(bytes);
                for (sum, value) in part.iter_mut().zip(bytes.as_chunks::<4>().0) {
                    *sum += f32::from_le_bytes(*value);
                }
                if !part.iter().fold(true, |all, sum| all & sum.is_finite()) {
                    return Err(invalid("a probability is not finite".into()));
                }
            }
        }
        if self.left == 0 { self.check_sum() } else { Ok(()) }
    }

    /// Compares the checksum of all that has been read with the stated one.
    fn check_sum(&self) -> io::Result<()> {
        let mut found = self.header.clone();
        self.outputs.iter().for_each(|output| found.combine(&output.sum));
        let (found, stated) = (found.finalize(), self.stated);
        if found == stated {
            return Ok(());
        }
        Err(invalid(format!("it is damaged: its checksum is {found:08x}, not {stated:08x}")))
    }
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Checks that an array holds probabilities of an image of `shape` with `outputs` outputs.
fn check(member: &ArrayMember, outputs: usize, shape: [usize; 3]) -> io::Result<()> {
    let kind = (member.element_type, member.byte_order, member.is_fortran);
    let extents: Result<[usize; 4], _> = member.shape.as_slice().try_into();
    let (Ok([found, depth, height, width]), (ElementType::F32, ByteOrder::Little, false)) = (extents, kind)
    else {
        let ArrayMember { element_type, shape, .. } = member;
        return Err(invalid(format!(
            "its array must be `[output][depth][height][width]` in little-endian f32 in C order, but is {shape:?} in {}",
            element_type.name()
        )));
    };
    if (found, [depth, height, width]) == (outputs, shape) {
        return Ok(());
    }
    let [d, h, w] = shape;
    Err(invalid(format!(
        "it has {found} outputs of {depth} × {height} × {width} voxels, but {outputs} of {d} × {h} × {w} are averaged"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::npz::ProbabilityWriter;
    use std::fs;
    use std::io::{Cursor, Write};

    use zip::write::SimpleFileOptions;
    use zip::{CompressionMethod, ZipWriter};

    /// Outputs of the archive that is tested, and its shape.
    const OUTPUTS: usize = 2;
    const SHAPE: [usize; 3] = [3, 4, 5];
    /// Values of the array, and bytes of its header.
    const VALUES: usize = OUTPUTS * 3 * 4 * 5;
    const ARRAY_HEADER: usize = 128;

    /// An archive as it is written here, and where the array's file begins in it.
    fn written(folder: &Path) -> (Vec<u8>, usize) {
        let path = folder.join("written.npz");
        let mut writer = ProbabilityWriter::create(&path, OUTPUTS, SHAPE).unwrap();
        for plane in 0..SHAPE[0] {
            let value = |at: usize| ((1 + plane * 100 + at) as f32).recip();
            writer.write_plane(&(0..VALUES / SHAPE[0]).map(value).collect::<Vec<_>>()).unwrap();
        }
        writer.finish().unwrap();
        let bytes = fs::read(&path).unwrap();
        let data = bytes.windows(6).position(|six| six == b"\x93NUMPY").unwrap();
        (bytes, data)
    }

    /// Reads all planes of an archive with such bytes. Returns the sum of all probabilities.
    fn read(folder: &Path, bytes: &[u8]) -> Result<f64, String> {
        let path = folder.join("read.npz");
        fs::write(&path, bytes).unwrap();
        let budget = Budget::new(Bytes::mib(2));
        let mut reader =
            ProbabilityReader::open(&path, OUTPUTS, SHAPE, &budget).map_err(|error| error.to_string())?;
        let mut sums = vec![0.0; VALUES / SHAPE[0]];
        for _ in 0..SHAPE[0] {
            reader
                .add_plane(&mut sums)
                .map_err(|error| std::error::Error::source(&error).unwrap().to_string())?;
        }
        assert!(reader.add_plane(&mut sums).is_err());
        Ok(sums.iter().map(|sum| f64::from(*sum)).sum())
    }

    #[test]
    fn a_flipped_bit_of_any_value_is_found_after_the_last_plane() {
        let folder = tempfile::tempdir().unwrap();
        let (sound, data) = written(folder.path());
        let first = data + ARRAY_HEADER;
        assert!(read(folder.path(), &sound).unwrap() > 0.0);
        for value in 0..VALUES {
            let mut bytes = sound.clone();
            bytes[first + 4 * value] ^= 1;
            let error = read(folder.path(), &bytes).unwrap_err();
            assert!(error.contains("it is damaged: its checksum is"), "{error}");
        }
        // A bit of the header's padding, and one of the checksum in the archive's directory.
        let directory = sound.windows(4).rposition(|four| four == b"PK\x01\x02").unwrap();
        for at in [first - 2, directory + 16] {
            let mut bytes = sound.clone();
            bytes[at] ^= 1;
            assert!(read(folder.path(), &bytes).unwrap_err().contains("it is damaged"), "{at}");
        }
    }

    #[test]
    fn archives_are_read_compressed_or_not_and_with_checksums_behind_members() {
        let folder = tempfile::tempdir().unwrap();
        let (sound, data) = written(folder.path());
        let expected = read(folder.path(), &sound).unwrap();
        let array = &sound[data..][..ARRAY_HEADER + 4 * VALUES];
        for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
            let options = SimpleFileOptions::default().compression_method(method);
            let mut seekable = ZipWriter::new(Cursor::new(Vec::new()));
            let mut streamed = ZipWriter::new_stream(Vec::new());
            seekable.start_file("probabilities.npy", options).unwrap();
            seekable.write_all(array).unwrap();
            streamed.start_file("probabilities.npy", options).unwrap();
            streamed.write_all(array).unwrap();
            let (seekable, streamed) =
                (seekable.finish().unwrap().into_inner(), streamed.finish().unwrap().into_inner());
            for bytes in [seekable, streamed] {
                assert_eq!(read(folder.path(), &bytes), Ok(expected), "{method}");
            }
        }
    }

    #[test]
    fn the_checksum_that_numpy_writes_is_that_of_what_is_read() {
        let file = "../../oracles/nnunet/flat/expected/2d/second.npz";
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let member = ArrayMember::open(&path, NAME).unwrap();
        let [outputs, depth, height, width] = member.shape[..].try_into().unwrap();
        let budget = Budget::new(Bytes::mib(2));
        let mut reader = ProbabilityReader::open(&path, outputs, [depth, height, width], &budget).unwrap();
        let mut sums = vec![0.0; outputs * height * width];
        (0..depth).for_each(|_| reader.add_plane(&mut sums).unwrap());
    }

    #[test]
    fn arrays_of_other_numbers_orders_and_extents_are_refused() {
        let sound = ArrayMember::open(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/nnunet/flat/expected/2d/second.npz"),
            NAME,
        )
        .unwrap();
        let [outputs, depth, height, width] = sound.shape[..].try_into().unwrap();
        let shape = [depth, height, width];
        assert!(check(&sound, outputs, shape).is_ok());
        assert!(check(&sound, outputs + 1, shape).unwrap_err().to_string().contains("are averaged"));
        assert!(check(&sound, outputs, [depth, width + 1, height]).is_err());
        let changes: [fn(&mut ArrayMember); 4] = [
            |array| array.element_type = ElementType::F64,
            |array| array.byte_order = ByteOrder::Big,
            |array| array.is_fortran = true,
            |array| array.shape = vec![9, 30, 32],
        ];
        for change in changes {
            let mut array = sound.clone();
            change(&mut array);
            assert!(check(&array, outputs, shape).unwrap_err().to_string().contains("in C order"));
        }
    }
}
