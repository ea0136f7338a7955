//! Changes of a request that a remedy proposes.

use plimsoll_memory::Bytes;

use crate::Parameter;

/// A limit of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The limit of the process's memory.
    Ram,
    /// The limit of a device's own memory.
    Vram,
}

/// A change of a request.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Change {
    /// Raise a limit of memory.
    RaiseLimit {
        /// The limit.
        limit: Limit,
        /// The least that suffices, where it is known.
        to: Option<Bytes>,
    },
    /// Continue with what an earlier job has left.
    Resume,
    /// Replace existing results.
    Overwrite,
    /// Go on with data that has changed.
    AcceptChangedData,
    /// Write to another place.
    OtherOutput,
    /// Store features in this precision.
    UsePrecision(String),
    /// Train on a smaller patch, as (depth, height, width) in voxels.
    SmallerPatch([usize; 3]),
    /// Change another parameter: to this value, or as the text says.
    Set {
        /// The parameter.
        parameter: Parameter,
        /// Its value, where the remedy names one.
        value: Option<String>,
    },
}

impl Change {
    /// The change of a parameter.
    pub(crate) fn new(parameter: Parameter, value: Option<&str>) -> Change {
        let other = || Change::Set { parameter, value: value.map(String::from) };
        let raise = |limit| match value.map(str::parse) {
            None => Change::RaiseLimit { limit, to: None },
            Some(Ok(to)) => Change::RaiseLimit { limit, to: Some(to) },
            Some(Err(_)) => other(),
        };
        match (parameter, value) {
            (Parameter::Ram, _) => raise(Limit::Ram),
            (Parameter::Vram, _) => raise(Limit::Vram),
            (Parameter::Resume, None) => Change::Resume,
            (Parameter::Overwrite, None) => Change::Overwrite,
            (Parameter::AcceptChangedData, None) => Change::AcceptChangedData,
            (Parameter::Out, None) => Change::OtherOutput,
            (Parameter::Precision, Some(precision)) => Change::UsePrecision(precision.into()),
            (Parameter::PatchSize, Some(patch)) => {
                let numbers: Option<Vec<usize>> =
                    patch.split(',').map(|number| number.parse().ok()).collect();
                match numbers.as_deref() {
                    Some(&[depth, height, width]) => Change::SmallerPatch([depth, height, width]),
                    _ => other(),
                }
            }
            _ => other(),
        }
    }

    /// The parameter that is changed.
    pub fn parameter(&self) -> Parameter {
        match self {
            Change::RaiseLimit { limit: Limit::Ram, .. } => Parameter::Ram,
            Change::RaiseLimit { limit: Limit::Vram, .. } => Parameter::Vram,
            Change::Resume => Parameter::Resume,
            Change::Overwrite => Parameter::Overwrite,
            Change::AcceptChangedData => Parameter::AcceptChangedData,
            Change::OtherOutput => Parameter::Out,
            Change::UsePrecision(_) => Parameter::Precision,
            Change::SmallerPatch(_) => Parameter::PatchSize,
            Change::Set { parameter, .. } => *parameter,
        }
    }

    /// The proposed value of the parameter, as written in a shell; `None` if the remedy names no value.
    pub fn value(&self) -> Option<String> {
        match self {
            // Rounded up, so that the limit suffices.
            Change::RaiseLimit { to: Some(to), .. } => Some(shown(*to)),
            Change::UsePrecision(precision) => Some(precision.clone()),
            Change::SmallerPatch([depth, height, width]) => Some(format!("{depth},{height},{width}")),
            Change::Set { value, .. } => value.clone(),
            Change::RaiseLimit { to: None, .. }
            | Change::Resume
            | Change::Overwrite
            | Change::AcceptChangedData
            | Change::OtherOutput => None,
        }
    }
}

/// A number of bytes as one word that is read as no less: `12GiB`, `513MiB`.
fn shown(bytes: Bytes) -> String {
    match bytes.0.div_ceil(1 << 20) {
        mebibytes if mebibytes.is_multiple_of(1 << 10) => format!("{}GiB", mebibytes >> 10),
        mebibytes => format!("{mebibytes}MiB"),
    }
}
