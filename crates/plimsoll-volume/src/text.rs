//! The lines of a header of text, as NRRD and MetaImage have them.

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use plimsoll_disk::File;

use crate::VolumeError;
use crate::affine::Affine;
use crate::{Geometry, GeometryError};

/// The longest line that is read, and the most bytes of a header: names of a few thousand segments take less.
const MOST_LINE: usize = 64 << 10;
const MOST_HEADER: u64 = 4 << 20;

/// The lines of a file from its beginning on, and how many bytes they took.
pub(crate) struct Lines {
    path: PathBuf,
    file: BufReader<File>,
    read: u64,
    line: Vec<u8>,
}

impl Lines {
    /// # Errors
    /// Returns an error if the file cannot be opened.
    pub(crate) fn open(path: &Path) -> Result<Lines, VolumeError> {
        let file = File::open(path);
        let file = file.map_err(|source| VolumeError::Io { path: path.into(), action: "open", source })?;
        Ok(Lines { path: path.into(), file: BufReader::new(file), read: 0, line: Vec::new() })
    }

    /// The next line without its end, `None` where there are no more; letters that are no UTF-8 are replaced.
    ///
    /// # Errors
    /// Returns the reason if the file cannot be read, or its lines are longer or more than any header has.
    pub(crate) fn next(&mut self) -> Result<Option<String>, LineError> {
        self.line.clear();
        let mut limited = (&mut self.file).take(MOST_LINE as u64);
        let count = limited.read_until(b'\n', &mut self.line).map_err(LineError::Io)?;
        self.read += count as u64;
        if count == MOST_LINE || self.read > MOST_HEADER {
            return Err(LineError::Why(format!(
                "its header has a line of more than {MOST_LINE} bytes, or more than {MOST_HEADER} bytes"
            )));
        }
        if count == 0 {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&self.line);
        Ok(Some(text.trim_end_matches(['\n', '\r']).to_string()))
    }

    /// The bytes that all lines so far have taken.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.read
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Why a line cannot be read.
pub(crate) enum LineError {
    Io(io::Error),
    Why(String),
}

impl LineError {
    pub(crate) fn at_path(self, path: &Path, refused: impl FnOnce(String) -> VolumeError) -> VolumeError {
        match self {
            LineError::Io(source) => VolumeError::Io { path: path.into(), action: "read", source },
            LineError::Why(why) => refused(why),
        }
    }
}

/// The longest value of a field that is kept: grids of four axes and paths take less.
const MOST_VALUE: usize = 8 << 10;

/// A value of a field.
///
/// # Errors
/// Returns an error in words if it is longer than the limit.
pub(crate) fn short<'a>(field: &str, value: &'a str) -> Result<&'a str, String> {
    match value.len() <= MOST_VALUE {
        true => Ok(value),
        false => Err(format!("`{field}` has {} bytes, more than {MOST_VALUE}", value.len())),
    }
}

/// The numbers of a text, between blanks.
///
/// # Errors
/// Returns an error in words if a word is no number.
pub(crate) fn numbers<T: std::str::FromStr>(field: &str, text: &str) -> Result<Vec<T>, String> {
    let number = |word: &str| word.parse().map_err(|_| format!("`{field}` has {word:?} instead of a number"));
    text.split_whitespace().map(number).collect()
}

/// The file that a header names for its voxels, which is in the folder of the header or one in it.
///
/// # Errors
/// Returns an error if the file is in another folder.
pub(crate) fn data_file(header: &Path, named: &str) -> Result<PathBuf, String> {
    let is_inside = |part| matches!(part, std::path::Component::Normal(_) | std::path::Component::CurDir);
    let named = Path::new(named);
    match named.components().all(is_inside) && named.file_name().is_some() {
        true => Ok(header.with_file_name("").join(named)),
        false => Err(format!("its voxels are in {}, which is outside its folder", named.display())),
    }
}

/// A grid of up to three axes: their extents, their steps in LPS millimetres, and the place of the first voxel, fastest axis first.
/// Missing axes have one voxel, and are at right angles to the others.
///
/// # Errors
/// Returns an error if the grid is not valid.
pub(crate) fn grid(sizes: &[usize], steps: &[[f64; 3]], origin: [f64; 3]) -> Result<Geometry, GeometryError> {
    let mut all = [[0.0; 3]; 3];
    for (to, step) in all.iter_mut().zip(steps) {
        *to = *step;
    }
    if let [a, b] = steps {
        let normal = [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
        let length = normal.iter().map(|part| part * part).sum::<f64>().sqrt();
        all[2] = normal.map(|part| part / length);
    }
    let size = |axis: usize| sizes.get(axis).copied().unwrap_or(1);
    // To right, anterior, superior; adding 0 turns −0 into 0.
    let sign = [-1.0, -1.0, 1.0];
    let row = |axis: usize| {
        [all[2][axis], all[1][axis], all[0][axis], origin[axis]].map(|value| sign[axis] * value + 0.0)
    };
    Geometry::new([size(2), size(1), size(0)], Affine([row(0), row(1), row(2)]))
}

/// The steps of the axes (width, height, depth) of a grid and the place of its first voxel, in LPS millimetres.
pub(crate) fn lps(geometry: &Geometry) -> ([[f64; 3]; 3], [f64; 3]) {
    let affine = geometry.affine().0;
    let column = |column: usize| {
        // Adding 0 turns −0 into 0, which people would stumble over.
        [-affine[0][column], -affine[1][column], affine[2][column]].map(|value| value + 0.0)
    };
    ([column(2), column(1), column(0)], column(3))
}
