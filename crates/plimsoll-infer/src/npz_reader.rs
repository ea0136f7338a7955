//! Reading probabilities from NumPy's `.npz`, plane by plane, whoever wrote it.
//!
//! The array has one output after the other, and planes are wanted with all outputs at a time. So there is a reader for each output, each
//! at its own place in the file: a compressed archive, as nnU-Net writes it, is decompressed by all of them side by side. The checksum of
//! the whole is put together from those of the outputs, and compared after the last plane.

use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crc32fast::Hasher;
use flate2::bufread::DeflateDecoder;
use plimsoll_disk::File;
use plimsoll_memory::{Budget, Bytes, Reservation};

use crate::InferError;

/// Bytes read from a file at a time.
const BUFFER: usize = 32 << 10;

/// What a reader takes: its buffer, the decompressor's window, and a part that is decoded.
const READER: Bytes = Bytes(128 << 10);

/// The longest header of an array that is believed.
const LONGEST_HEADER: usize = 64 << 10;

/// ZIP's headers before a file.
const LOCAL_HEADER: usize = 30;

/// The flag of a file whose checksum stands behind it, as its writer could not go back.
const SUM_BEHIND: u16 = 1 << 3;

/// What may stand before such a checksum.
const BEFORE_SUM: [u8; 4] = *b"PK\x07\x08";

/// Probabilities `[output][depth][height][width]` in f32.
pub(crate) struct ProbabilityReader {
    path: PathBuf,
    outputs: Vec<Output>,
    /// Depth, height, width.
    shape: [usize; 3],
    /// Planes that are still to be read.
    left: usize,
    /// Of the array's header.
    header: Hasher,
    /// What the whole array's checksum is said to be; none if it stands behind the array.
    sum: Option<u32>,
    _reservation: Reservation,
}

/// An output of the array, and the checksum of what has been read of it.
struct Output {
    source: Source,
    sum: Hasher,
}

/// A file of an archive, from some place on.
enum Source {
    Stored(BufReader<File>),
    Compressed(DeflateDecoder<BufReader<File>>),
}

impl Read for Source {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Source::Stored(file) => file.read(to),
            Source::Compressed(file) => file.read(to),
        }
    }
}

impl Source {
    /// The checksum behind the array, of which all has been read.
    fn sum_behind(&mut self) -> io::Result<u32> {
        let behind = match self {
            Source::Stored(file) => file,
            Source::Compressed(file) => {
                // The end of what is compressed comes after its last byte.
                if file.read(&mut [0])? != 0 {
                    return Err(invalid("its array is longer than its shape".into()));
                }
                file.get_mut()
            }
        };
        let mut sum = [0; 4];
        behind.read_exact(&mut sum)?;
        if sum == BEFORE_SUM {
            behind.read_exact(&mut sum)?;
        }
        Ok(u32::from_le_bytes(sum))
    }
}

/// What the headers of an archive say.
struct Headers {
    is_compressed: bool,
    /// Where the file of the array begins in the archive.
    data: u64,
    /// Where the array begins in its file.
    array: u64,
    outputs: usize,
    shape: [usize; 3],
    /// The checksum of the array's header.
    header: Hasher,
    /// The checksum of the array's file; none if it stands behind it.
    sum: Option<u32>,
}

impl ProbabilityReader {
    /// Opens a file, whose array must be of an image of `shape` (depth, height, width) and have `outputs`.
    ///
    /// # Errors
    /// If it cannot be read, is no archive with such an array, or the budget has no room for its readers.
    pub(crate) fn open(
        path: &Path,
        outputs: usize,
        shape: [usize; 3],
        budget: &Budget,
    ) -> Result<ProbabilityReader, InferError> {
        let failed = |source| InferError::Probabilities { path: path.into(), source };
        let bytes = Bytes(READER.0.saturating_mul(outputs as u64 + 1));
        let reservation = budget.reserve("readers of probabilities", bytes)?;
        let headers = headers(path).map_err(failed)?;
        if (headers.outputs, headers.shape) != (outputs, shape) {
            let (found, [depth, height, width]) = (headers.outputs, headers.shape);
            let [d, h, w] = shape;
            return Err(failed(invalid(format!(
                "it has {found} outputs of {depth} × {height} × {width} voxels, but {outputs} of {d} × {h} × {w} are \
                 averaged"
            ))));
        }
        let voxels = shape.iter().product::<usize>() as u64;
        let readers = (0..outputs).map(|output| {
            let skip = headers.array + output as u64 * voxels * size_of::<f32>() as u64;
            let mut source = reader(path, headers.data, headers.is_compressed, skip)?;
            // Of a compressed one what precedes has to be decompressed.
            if headers.is_compressed {
                let skipped = io::copy(&mut source.by_ref().take(skip), &mut io::sink())?;
                if skipped != skip {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            Ok(Output { source, sum: Hasher::new() })
        });
        let outputs = readers.collect::<io::Result<_>>().map_err(failed)?;
        let Headers { header, sum, .. } = headers;
        let left = shape[0];
        Ok(ProbabilityReader {
            path: path.into(),
            outputs,
            shape,
            left,
            header,
            sum,
            _reservation: reservation,
        })
    }

    /// Adds the next plane to `sums`, `[output][row][column]`.
    ///
    /// # Errors
    /// If the file cannot be read, a probability is no number, or with the last plane, if the file's checksum is another.
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

    /// Compares the checksum of all that has been read with what it is said to be.
    fn check_sum(&mut self) -> io::Result<()> {
        let mut found = self.header.clone();
        self.outputs.iter().for_each(|output| found.combine(&output.sum));
        let found = found.finalize();
        let said = match (self.sum, self.outputs.last_mut()) {
            (Some(said), _) => said,
            (None, Some(last)) => last.source.sum_behind()?,
            (None, None) => return Ok(()),
        };
        if found != said {
            return Err(invalid(format!("it is damaged: its checksum is {found:08x}, not {said:08x}")));
        }
        Ok(())
    }
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// A reader of the file that begins at `data`; of one that is not compressed, from `skip` on.
fn reader(path: &Path, data: u64, is_compressed: bool, skip: u64) -> io::Result<Source> {
    let mut file = File::open(path)?;
    let past = || invalid("its array is longer than any file".into());
    let skip = if is_compressed { 0 } else { skip };
    file.seek(SeekFrom::Start(data.checked_add(skip).ok_or_else(past)?))?;
    let file = BufReader::with_capacity(BUFFER, file);
    Ok(if is_compressed { Source::Compressed(DeflateDecoder::new(file)) } else { Source::Stored(file) })
}

/// Reads the headers of the first file of an archive, and of the array in it.
fn headers(path: &Path) -> io::Result<Headers> {
    let mut file = File::open(path)?;
    let mut header = [0; LOCAL_HEADER];
    file.read_exact(&mut header)?;
    let number = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let mut name = vec![0; usize::from(number(26))];
    file.read_exact(&mut name)?;
    if header[..4] != *b"PK\x03\x04" || name != b"probabilities.npy" {
        return Err(invalid("it is no .npz whose first array is `probabilities`".into()));
    }
    let is_compressed = match number(8) {
        0 => false,
        8 => true,
        method => return Err(invalid(format!("it is compressed by method {method} of ZIP, not deflate"))),
    };
    let sum = match number(6) & SUM_BEHIND {
        0 => Some(u32::from_le_bytes([header[14], header[15], header[16], header[17]])),
        _ => None,
    };
    let data = (LOCAL_HEADER + name.len()) as u64 + u64::from(number(28));
    let mut array = reader(path, data, is_compressed, 0)?;
    let mut start = [0; 12];
    array.read_exact(&mut start[..8])?;
    let before = match (&start[..6], start[6]) {
        (b"\x93NUMPY", 1) => 10,
        (b"\x93NUMPY", 2 | 3) => 12,
        _ => return Err(invalid("`probabilities` is no array of NumPy".into())),
    };
    array.read_exact(&mut start[8..before])?;
    // Where it has two bytes, the others are zero.
    let length = u32::from_le_bytes([start[8], start[9], start[10], start[11]]) as usize;
    if length > LONGEST_HEADER {
        return Err(invalid(format!("the header of its array is said to have {length} bytes")));
    }
    let mut text = vec![0; length];
    array.read_exact(&mut text)?;
    let mut header = Hasher::new();
    header.update(&start[..before]);
    header.update(&text);
    let text = String::from_utf8_lossy(&text);
    let shape = shape(&text).ok_or_else(|| {
        invalid(format!("its array is no `[output][depth][height][width]` in f32: {}", text.trim()))
    })?;
    let [outputs, depth, height, width] = shape;
    Ok(Headers {
        is_compressed,
        data,
        array: (before + length) as u64,
        outputs,
        shape: [depth, height, width],
        header,
        sum,
    })
}

/// The four extents of an array that is described so, if it is of f32 in C's order.
fn shape(description: &str) -> Option<[usize; 4]> {
    let after = |key: &str| Some(description.split_once(key)?.1.trim_start_matches(':').trim_start());
    let is_f32 = after("'descr'")?.starts_with("'<f4'");
    let is_in_order = after("'fortran_order'")?.starts_with("False");
    let inside = after("'shape'")?.strip_prefix('(')?.split_once(')')?.0;
    let extents = inside.split(',').map(str::trim).filter(|extent| !extent.is_empty());
    let extents: Vec<usize> = extents.map(|extent| extent.parse().ok()).collect::<Option<_>>()?;
    // What cannot be addressed is no array.
    extents.iter().try_fold(size_of::<f32>(), |product, extent| product.checked_mul(*extent))?;
    if is_f32 && is_in_order { extents.try_into().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::npz::ProbabilityWriter;
    use std::fs;
    use std::io::Write;

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
        let budget = Budget::new(Bytes::mib(1));
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
        // Of the header's padding, and of the checksum itself.
        for at in [first - 2, 14] {
            let mut bytes = sound.clone();
            bytes[at] ^= 1;
            assert!(read(folder.path(), &bytes).unwrap_err().contains("it is damaged"), "{at}");
        }
    }

    #[test]
    fn checksums_are_found_behind_arrays_and_compressed_arrays_have_them_too() {
        let folder = tempfile::tempdir().unwrap();
        let (sound, data) = written(folder.path());
        let expected = read(folder.path(), &sound).unwrap();
        let (array, sum) = (&sound[data..][..ARRAY_HEADER + 4 * VALUES], &sound[14..18]);
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(array).unwrap();
        let compressed = encoder.finish().unwrap();
        for (method, content) in [(0, array), (8, &compressed[..])] {
            for behind in [None, Some(&b""[..]), Some(&BEFORE_SUM[..])] {
                let mut start = sound[..data].to_vec();
                start[8] = method;
                let mut end = Vec::new();
                if let Some(before) = behind {
                    start[6] |= SUM_BEHIND as u8;
                    start[14..18].fill(0);
                    end = [before, sum].concat();
                }
                let bytes = [&start, content, &end].concat();
                assert_eq!(read(folder.path(), &bytes), Ok(expected), "{method} {behind:?}");
                let mut other = bytes;
                let at = if behind.is_some() { other.len() - 1 } else { 14 };
                other[at] ^= 1;
                let error = read(folder.path(), &other).unwrap_err();
                assert!(error.contains("it is damaged"), "{method} {behind:?}: {error}");
            }
        }
    }

    #[test]
    fn the_checksum_that_numpy_writes_is_that_of_what_is_read() {
        let file = "../../oracles/nnunet/flat/expected/2d/second.npz";
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let Headers { outputs, shape, sum, is_compressed, .. } = headers(&path).unwrap();
        assert!(is_compressed && sum.is_some_and(|sum| sum != 0));
        let budget = Budget::new(Bytes::mib(1));
        let mut reader = ProbabilityReader::open(&path, outputs, shape, &budget).unwrap();
        let mut sums = vec![0.0; outputs * shape[1] * shape[2]];
        (0..shape[0]).for_each(|_| reader.add_plane(&mut sums).unwrap());
    }

    #[test]
    fn arrays_of_other_numbers_orders_and_extents_are_not_taken() {
        let described = |descr: &str, order: &str, shape: &str| {
            format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}   \n")
        };
        assert_eq!(shape(&described("<f4", "False", "(3, 9, 30, 32)")), Some([3, 9, 30, 32]));
        for (descr, order, extents) in [
            ("<f8", "False", "(3, 9, 30, 32)"),
            ("<f4", "True", "(3, 9, 30, 32)"),
            ("<f4", "False", "(9, 30, 32)"),
            ("<f4", "False", "(3, 9, 30, -1)"),
            ("<f4", "False", "(4294967296, 4294967296, 1, 1)"),
            ("<f4", "False", "3, 9, 30, 32"),
        ] {
            assert_eq!(shape(&described(descr, order, extents)), None, "{descr} {order} {extents}");
        }
        assert_eq!(shape(""), None);
    }
}
