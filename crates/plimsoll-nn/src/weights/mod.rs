//! Weight files: safetensors, and PyTorch's own.
//!
//! Tensors are in PyTorch's layout and under PyTorch's names in both, so that weights travel both ways.

mod archive;
mod exchange;
mod header;
mod naming;
mod pickle;
mod prefix;
mod pytorch;
pub mod safetensors;
mod source;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use plimsoll_graph::{Shape, TensorInfo};
use plimsoll_memory::{Budget, OverBudget};

pub use archive::archive_directory_bytes;
pub use exchange::exchange_axes;
pub use naming::NamingScheme;
pub use pytorch::{JSON_BYTES, PytorchFile, Said, TorchScriptFile};
pub use safetensors::{SafetensorsFile, TensorFault};
pub use source::WeightSource;

/// Errors of weight files.
#[derive(Debug, thiserror::Error)]
pub enum WeightError {
    /// It cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// It is not what its name says.
    #[error("{}: {why}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The fault.
        why: String,
    },
    /// A parameter is not in it.
    #[error("{}: there is no tensor `{name}`, which the network needs with shape {shape}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// The parameter.
        name: String,
        /// Its shape.
        shape: Shape,
    },
    /// A parameter has another shape in it.
    #[error("{}: `{name}` has shape {found}, but the network needs {expected}", path.display())]
    Shape {
        /// The file.
        path: PathBuf,
        /// The parameter.
        name: String,
        /// In the file.
        found: Shape,
        /// In the network.
        expected: Shape,
    },
    /// It calls a function that no file of weights needs.
    #[error("{}: it calls `{function}`, which no weights need; nothing was executed", path.display())]
    Calls {
        /// The file.
        path: PathBuf,
        /// The name of the function.
        function: String,
    },
    /// Its bytes are not those that were written.
    #[error("{} is damaged: {} does not have the checksum that it was written with", path.display(), part(tensor))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The tensor; the header if none.
        tensor: Option<String>,
    },
    /// A tensor has values that are no numbers, or infinite.
    #[error("{}: {count} of the {of} values of `{name}` are not finite", path.display())]
    NotFinite {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// The number of such values.
        count: usize,
        /// The number of all values.
        of: usize,
    },
    /// There is no room to read a tensor.
    #[error("{}: {source}", path.display())]
    OverBudget {
        /// The file.
        path: PathBuf,
        /// The error of the budget, with its largest holders.
        source: OverBudget,
    },
}

/// Returns the name of a part of a file for messages.
fn part(tensor: &Option<String>) -> String {
    tensor.as_ref().map_or("its header".into(), |name| format!("`{name}`"))
}

impl WeightError {
    /// A remedy.
    pub fn remedy(&self) -> Option<String> {
        match self {
            WeightError::Io { .. } => None,
            WeightError::Format { .. } => {
                Some("weights must be in a .safetensors, .pt or .pth file".into())
            }
            WeightError::Calls { .. } => {
                Some("the file may be malicious: do not open it with PyTorch, and inform its source".into())
            }
            WeightError::Missing { .. } | WeightError::Shape { .. } => Some(
                "the file must hold the state dict of the same network: its kind, features, kernels and deep supervision \
                 decide names and shapes"
                    .into(),
            ),
            WeightError::Damaged { .. } => Some(
                "restore the file from a copy; where another program has changed it, leave `plimsoll.checksums` and \
                 `plimsoll.header` out of its metadata"
                    .into(),
            ),
            WeightError::NotFinite { .. } => {
                Some("the network diverged before these weights were saved: take an earlier checkpoint".into())
            }
            WeightError::OverBudget { source, .. } => Some(format!(
                "{}, or convert the weights to .safetensors, which have less metadata",
                source.remedy()
            )),
        }
    }

    pub(crate) fn format(path: &Path, why: impl Into<String>) -> WeightError {
        WeightError::Format { path: path.into(), why: why.into() }
    }

    pub(crate) fn io(path: &Path, source: io::Error) -> WeightError {
        WeightError::Io { path: path.into(), source }
    }
}

/// An open weight file: one tensor in memory at a time.
pub enum WeightFile {
    /// `.safetensors`
    Safetensors(SafetensorsFile),
    /// `.pt`, `.pth` and whatever else `torch.save` wrote.
    Pytorch(PytorchFile),
}

impl WeightFile {
    /// Opens a file by its ending: `.safetensors`, or anything else as PyTorch's, whose tensors are read inside the budget.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or is no such file.
    pub fn open(path: &Path, budget: &Budget) -> Result<WeightFile, WeightError> {
        match path.extension().is_some_and(|ending| ending == "safetensors") {
            true => Ok(WeightFile::Safetensors(SafetensorsFile::open(path)?)),
            false => Ok(WeightFile::Pytorch(PytorchFile::open(path, budget)?)),
        }
    }

    /// Opens the weights of one network: a file of its own by its ending, or the part of a safetensors file whose names have a prefix.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, is no such file, or has no tensor under the prefix.
    pub fn open_source(source: &WeightSource, budget: &Budget) -> Result<WeightFile, WeightError> {
        match source.prefix.as_str() {
            "" => WeightFile::open(&source.path, budget),
            prefix => Ok(WeightFile::Safetensors(SafetensorsFile::open(&source.path)?.within(prefix)?)),
        }
    }

    /// The names of all tensors, without what wrappers of a network put before them, in order.
    pub fn names(&self) -> Vec<&str> {
        match self {
            WeightFile::Safetensors(file) => file.tensors().map(|(name, _)| name).collect(),
            WeightFile::Pytorch(file) => file.names().collect(),
        }
    }

    /// The shape of a tensor, if it is there.
    pub fn shape(&self, name: &str) -> Option<Shape> {
        match self {
            WeightFile::Safetensors(file) => file.shape(name),
            WeightFile::Pytorch(file) => file.shape(name),
        }
    }

    /// Returns `true` if the file has a tensor of this name.
    pub fn contains(&self, name: &str) -> bool {
        match self {
            WeightFile::Safetensors(file) => file.contains(name),
            WeightFile::Pytorch(file) => file.contains(name),
        }
    }

    /// Reads the values of a parameter under its own name, in the logical order of its shape.
    ///
    /// # Errors
    /// Returns an error if the tensor is missing, has another shape, or cannot be read.
    ///
    /// # Panics
    /// Panics unless the buffer is exactly as long as the parameter.
    pub fn read(&mut self, parameter: &TensorInfo, values: &mut [f32]) -> Result<(), WeightError> {
        self.read_named(&parameter.name, &parameter.shape, values)
    }

    /// Reads the tensor of a name, in the logical order of its shape, which that in the file [`fits`].
    ///
    /// # Errors
    /// Returns an error if the tensor is missing, has another shape, or cannot be read.
    ///
    /// # Panics
    /// Panics unless the buffer is exactly as long as the shape asks for.
    pub fn read_named(&mut self, name: &str, shape: &Shape, values: &mut [f32]) -> Result<(), WeightError> {
        match self {
            WeightFile::Safetensors(file) => file.read(name, shape, values),
            WeightFile::Pytorch(file) => file.read(name, shape, values),
        }
    }

    /// Passes the values of the named tensor to `each` in runs of the logical order of its shape, each with the index of its first
    /// value. Takes the same memory for every tensor.
    ///
    /// # Errors
    /// Returns the errors of [`read_named`](Self::read_named).
    pub fn each_run(&mut self, name: &str, shape: &Shape, each: &mut EachRun<'_>) -> Result<(), WeightError> {
        match self {
            WeightFile::Safetensors(file) => file.each_run(name, shape, each),
            WeightFile::Pytorch(file) => file.each_run(name, shape, each),
        }
    }

    /// Checks all tensors except those in `read`, including tensors that no network uses: their bytes must match their checksums, where
    /// the file has any, and their values must be finite.
    ///
    /// # Errors
    /// Returns an error if a tensor is damaged, has a value that is not finite, or cannot be read.
    pub fn verify_others(&mut self, read: &BTreeSet<&str>) -> Result<(), WeightError> {
        match self {
            WeightFile::Safetensors(file) => file.verify_others(read),
            WeightFile::Pytorch(file) => file.verify_others(read),
        }
    }
}

/// Receives a run of a tensor's values and the index of the first in the logical order of its shape.
pub type EachRun<'a> = dyn FnMut(usize, &[f32]) + 'a;

/// Copies a run into the values of the whole tensor.
fn copy_run(first: usize, run: &[f32], values: &mut [f32]) {
    let own = values.iter_mut().skip(first);
    own.zip(run).for_each(|(value, read)| *value = *read);
}

/// Returns `true` if a tensor of a file can be one of another shape: axes of extent one may be more or fewer. What is of two dimensions in
/// a file, and linear layers, are of three here; a number without an axis is a list of one.
pub fn fits(found: &Shape, expected: &Shape) -> bool {
    let others = |shape: &Shape| shape.0.iter().copied().filter(|extent| *extent != 1).collect::<Vec<_>>();
    others(found) == others(expected)
}

/// Bytes of an element of a named type; none for types that hold no numbers that are read.
pub(crate) fn element_bytes(dtype: &str) -> Option<usize> {
    match dtype {
        // Counts of batches.
        "I64" => Some(8),
        "F64" => Some(8),
        "F32" => Some(4),
        "F16" | "BF16" => Some(2),
        _ => None,
    }
}

/// Widens little-endian elements of a named type.
pub(crate) fn widen(dtype: &str, bytes: &[u8], values: &mut [f32]) {
    fn each<const N: usize>(bytes: &[u8], values: &mut [f32], f: impl Fn([u8; N]) -> f32) {
        for (value, element) in values.iter_mut().zip(bytes.as_chunks::<N>().0) {
            *value = f(*element);
        }
    }
    match dtype {
        "I64" => each(bytes, values, |b| i64::from_le_bytes(b) as f32),
        "F64" => each(bytes, values, |b| f64::from_le_bytes(b) as f32),
        "F16" => each(bytes, values, |b| half::f16::from_le_bytes(b).to_f32()),
        "BF16" => each(bytes, values, |b| half::bf16::from_le_bytes(b).to_f32()),
        _ => each(bytes, values, f32::from_le_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_of_extent_one_may_be_more_or_fewer() {
        let fits =
            |found: &[usize], expected: &[usize]| fits(&Shape(found.to_vec()), &Shape(expected.to_vec()));
        assert!(fits(&[64, 3, 7, 7], &[64, 3, 1, 7, 7]));
        assert!(fits(&[5, 2048], &[5, 2048, 1, 1, 1]));
        assert!(fits(&[], &[1]));
        assert!(!fits(&[64, 3, 7, 7], &[64, 1, 1, 7, 7]));
        assert!(!fits(&[4, 8], &[8, 4]));
    }
}
