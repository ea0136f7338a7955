//! Arguments of predictions: memory, device and existing files.

use std::sync::Arc;

use clap::{Args as ClapArgs, ValueEnum};
use plimsoll_graph::DType;
use plimsoll_infer::{PredictOptions, RingStorage, Summed};
use plimsoll_plan::Backend;

use super::{Compute, PartArgs, Precision, Ram};
use crate::failure::Outcome;

/// Arguments of all commands that predict with a network.
#[derive(Clone, Debug, ClapArgs)]
pub struct Inference {
    /// Replace existing predictions [default: they are kept, and the missing ones are predicted].
    #[arg(long)]
    pub overwrite: bool,
    /// For volumes: print the memory and the time of each case, from the headers of its images alone; nothing is predicted.
    #[arg(long)]
    pub plan: bool,
    #[command(flatten)]
    pub part: PartArgs,
    #[command(flatten)]
    pub held: StorageArgs,
    #[command(flatten)]
    pub ram: Ram,
    #[command(flatten)]
    pub compute: Compute,
}

impl Inference {
    /// Opens the backend that computes as the arguments say; one for planning alone if nothing is predicted.
    pub fn backend(&self) -> Outcome<Arc<dyn Backend>> {
        self.held.on(if self.plan { self.compute.open_to_plan()? } else { self.compute.open()? })
    }
}

/// The storage of sums and features of a prediction.
#[derive(Clone, Copy, Debug, Default, ClapArgs)]
pub struct StorageArgs {
    /// For volumes: the quantity that is summed where windows overlap [default: features if there are at least twice as many classes as
    /// features before the head, and one fold; else logits].
    #[arg(long, value_enum, value_name = "WHAT")]
    sum: Option<WhichSum>,
    /// For volumes: the number format of sums while windows are added [default: f32 if the limit has room for it, else f16].
    #[arg(long, value_enum, value_name = "TYPE")]
    ring: Option<WhichRing>,
    /// For volumes: the number format of features and logits of a window [default: features as trained, logits as f32]. bf16, and f16 on
    /// GPUs, take half the memory; bf16 changes more labels than --ring f16 does, and bf16-dot some more.
    #[arg(long, value_enum, value_name = "TYPE")]
    precision: Option<Precision>,
    /// For volumes: the number of windows that the network takes at once, mirrored ones included. More windows take more memory, and less
    /// time on GPUs with small windows [default: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    window_batch: Option<u16>,
}

impl StorageArgs {
    /// The summed quantity, if set.
    pub fn summed(self) -> Option<Summed> {
        self.sum.map(Summed::from)
    }

    /// The number format of sums, if set.
    pub fn ring(self) -> Option<RingStorage> {
        self.ring.map(RingStorage::from)
    }

    /// The number formats of features and products; f32 if not set.
    pub fn said(self) -> Precision {
        self.precision.unwrap_or(Precision::F32)
    }

    /// The number format of features, if set.
    pub fn precision(self) -> Option<DType> {
        self.precision.map(DType::from)
    }

    /// The number of windows at once, if set.
    pub fn window_batch(self) -> Option<usize> {
        self.window_batch.map(usize::from)
    }

    /// The options of a prediction whose windows are `step` of their extent apart.
    pub fn options(self, step: f64, mirror: bool, threads: usize) -> PredictOptions {
        PredictOptions {
            window_batch: self.window_batch().unwrap_or(1),
            summed: self.summed(),
            ring: self.ring(),
            precision: self.precision(),
            ..PredictOptions::new(step, mirror, threads)
        }
    }

    /// A backend with the products of the set precision.
    pub fn on(self, backend: Arc<dyn Backend>) -> Outcome<Arc<dyn Backend>> {
        match self.precision {
            Some(precision) => precision.on(backend),
            None => Ok(backend),
        }
    }
}

/// The quantity that is summed where windows overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WhichSum {
    /// The logits of windows.
    Logits,
    /// The input of the network's last convolution, which is then applied once to each voxel. Equal to summed logits except for rounding,
    /// with less memory and time for many classes.
    Features,
}

impl From<WhichSum> for Summed {
    fn from(sum: WhichSum) -> Summed {
        match sum {
            WhichSum::Logits => Summed::Logits,
            WhichSum::Features => Summed::Features,
        }
    }
}

/// The number format of sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WhichRing {
    /// 32-bit floats.
    F32,
    /// 16-bit floats with 11 bits of precision; arithmetic stays in 32 bits.
    F16,
}

impl From<WhichRing> for RingStorage {
    fn from(ring: WhichRing) -> RingStorage {
        match ring {
            WhichRing::F32 => RingStorage::F32,
            WhichRing::F16 => RingStorage::F16,
        }
    }
}
