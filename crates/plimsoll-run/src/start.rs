//! The start of a run from trained weights: the rule by which their tensors become parameters, and the fate of each.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The rule by which tensors of a file of weights become the parameters of a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "name", deny_unknown_fields)]
pub enum StartRule {
    /// Each parameter takes the tensor of its name.
    Names {
        /// Ignores tensors that the network does not have.
        allow_extra: bool,
        /// The treatment of heads.
        heads: HeadRule,
        /// Sums the weights of three image channels for a network of one channel.
        sum_stem: bool,
        /// Resamples kernels of another extent linearly.
        upkern: bool,
    },
    /// Stem and encoder take the tensors of a pre-trained encoder, adapted to the network; all else is new.
    Encoder(PretrainedEncoder),
}

/// The treatment of heads by [`StartRule::Names`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeadRule {
    /// Heads are taken like all other parameters.
    #[default]
    Taken,
    /// Heads that are missing or have another shape are new. So is all that is no part of an encoder, in files of one alone.
    NewUnlessFitting,
    /// All heads are new, as with nnU-Net's `-pretrained_weights`.
    New,
}

/// The encoder in a checkpoint of nnssl, as its adaptation plan describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PretrainedEncoder {
    /// The prefix of the names of the encoder's stages (`key_to_encoder`).
    pub encoder: String,
    /// The prefix of the names of the stem (`key_to_stem`).
    pub stem: String,
    /// The number of image channels that it was trained with.
    pub channels: usize,
    /// Tokens along depth, height and width of the patches that it was trained with, if it has a vector for the position of each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grid: Option<[usize; 3]>,
}

/// The fate of every parameter of a network, and of every tensor of a file that none takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartTable {
    /// Parameters in the order of the network, then tensors of the file.
    pub tensors: Vec<StartedTensor>,
}

/// A parameter of a network, or a tensor that no parameter takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartedTensor {
    /// The name of the parameter, or of the tensor of the file.
    pub name: String,
    /// The shape of the parameter, or of the tensor of the file.
    pub shape: Vec<usize>,
    /// Its fate.
    #[serde(flatten)]
    pub fate: TensorFate,
}

/// The fate of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "fate")]
pub enum TensorFate {
    /// A parameter has the values of the file.
    Taken,
    /// A parameter has values that were computed from those of the file, in this order.
    Adapted {
        /// The changes.
        how: Vec<Adaptation>,
    },
    /// A parameter has initial values.
    New {
        /// The reason.
        why: NewReason,
    },
    /// A tensor of the file has no effect.
    Unused {
        /// The reason.
        why: UnusedReason,
    },
}

/// A change of the weights of a convolution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "change")]
pub enum Adaptation {
    /// The weights of one image channel, divided by the number of channels, are those of each.
    Repeated {
        /// The number of channels.
        channels: usize,
    },
    /// The mean over those axes of the kernel along which it now has one voxel.
    MeanOfKernel {
        /// The kernel in the file.
        from: [usize; 3],
        /// The kernel of the network.
        to: [usize; 3],
    },
    /// Linear interpolation between the voxels of a kernel of another extent.
    Resampled {
        /// The kernel in the file.
        from: [usize; 3],
        /// The kernel of the network.
        to: [usize; 3],
    },
    /// Linear interpolation between the vectors of positions of a grid of tokens.
    Interpolated {
        /// The grid in the file.
        from: [usize; 3],
        /// The grid of the network.
        to: [usize; 3],
    },
    /// The sum over image channels.
    Summed {
        /// The number of channels in the file.
        channels: usize,
    },
}

/// The reason for which a parameter begins anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum NewReason {
    /// It belongs to a head, which learns the classes.
    Head,
    /// It belongs to the decoder, which a pre-trained encoder lacks.
    Decoder,
    /// The file has no tensor for it.
    Missing,
    /// The tensor of the file has other features.
    OtherShape {
        /// The shape of the tensor.
        found: Vec<usize>,
    },
}

/// The reason for which a tensor of a file has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnusedReason {
    /// It belongs to a head.
    Head,
    /// It is no part of the encoder.
    NotEncoder,
    /// The network has no parameter for it.
    NoPlace,
    /// The parameter has other features.
    OtherShape,
}

impl StartTable {
    /// The number of tensors by the kind of their fate: taken, adapted, new and unused.
    pub fn counts(&self) -> [(&'static str, usize); 4] {
        let count = |kind| self.tensors.iter().filter(|tensor| tensor.fate.kind() == kind).count();
        ["taken", "adapted", "new", "unused"].map(|kind| (kind, count(kind)))
    }

    /// A line for each tensor, and one with their counts.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let lines = self.tensors.iter().map(|tensor| {
            let note = tensor.fate.note();
            let note = if note.is_empty() { note } else { format!(" ({note})") };
            format!("{}: {}{note}", tensor.name, tensor.fate.kind())
        });
        lines.chain([format!("start: {self}")])
    }
}

impl fmt::Display for StartTable {
    /// The counts, like `12 tensors taken, 1 adapted, 7 new, 9 unused`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [(taken, first), rest @ ..] = self.counts();
        write!(f, "{first} tensors {taken}")?;
        rest.iter()
            .filter(|(_, count)| *count > 0)
            .try_for_each(|(kind, count)| write!(f, ", {count} {kind}"))
    }
}

impl TensorFate {
    /// The kind of fate in a word: taken, adapted, new, unused.
    pub fn kind(&self) -> &'static str {
        match self {
            TensorFate::Taken => "taken",
            TensorFate::Adapted { .. } => "adapted",
            TensorFate::New { .. } => "new",
            TensorFate::Unused { .. } => "unused",
        }
    }

    /// The changes or the reason in a few words; empty for values that were taken as they are.
    pub fn note(&self) -> String {
        match self {
            TensorFate::Taken => String::new(),
            TensorFate::Adapted { how } => {
                how.iter().map(ToString::to_string).collect::<Vec<_>>().join(", then ")
            }
            TensorFate::New { why } => why.to_string(),
            TensorFate::Unused { why } => why.to_string(),
        }
    }
}

impl fmt::Display for Adaptation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extents = |[depth, height, width]: &[usize; 3]| format!("{depth}×{height}×{width}");
        match self {
            Adaptation::Repeated { channels } => write!(f, "repeated over {channels} channels"),
            Adaptation::MeanOfKernel { from, to } => {
                write!(f, "mean of kernel {} to {}", extents(from), extents(to))
            }
            Adaptation::Resampled { from, to } => {
                write!(f, "kernel resampled from {} to {}", extents(from), extents(to))
            }
            Adaptation::Interpolated { from, to } => {
                write!(f, "positions interpolated from {} to {} tokens", extents(from), extents(to))
            }
            Adaptation::Summed { channels } => write!(f, "summed over {channels} channels"),
        }
    }
}

impl fmt::Display for NewReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NewReason::Head => f.write_str("head"),
            NewReason::Decoder => f.write_str("decoder"),
            NewReason::Missing => f.write_str("not in the start"),
            NewReason::OtherShape { found } => {
                let extents: Vec<String> = found.iter().map(usize::to_string).collect();
                write!(f, "{} in the start", extents.join("×"))
            }
        }
    }
}

impl fmt::Display for UnusedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UnusedReason::Head => "head",
            UnusedReason::NotEncoder => "not of the encoder",
            UnusedReason::NoPlace => "no place in the network",
            UnusedReason::OtherShape => "other features in the network",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(fate: TensorFate) -> StartedTensor {
        StartedTensor { name: "stem.weight".into(), shape: vec![4, 2], fate }
    }

    #[test]
    fn a_table_counts_its_tensors_and_is_read_as_it_is_written() {
        let how = vec![
            Adaptation::Repeated { channels: 2 },
            Adaptation::MeanOfKernel { from: [3; 3], to: [1, 3, 3] },
        ];
        let fates = [
            TensorFate::Taken,
            TensorFate::Taken,
            TensorFate::Adapted { how },
            TensorFate::New { why: NewReason::OtherShape { found: vec![4, 8] } },
        ];
        let table = StartTable { tensors: fates.map(tensor).into() };
        assert_eq!(table.to_string(), "2 tensors taken, 1 adapted, 1 new");
        let notes: Vec<String> = table.tensors.iter().map(|tensor| tensor.fate.note()).collect();
        assert_eq!(
            notes,
            ["", "", "repeated over 2 channels, then mean of kernel 3×3×3 to 1×3×3", "4×8 in the start"]
        );
        let json = serde_json::to_string(&table).unwrap();
        assert_eq!(serde_json::from_str::<StartTable>(&json).unwrap(), table, "{json}");
    }
}
