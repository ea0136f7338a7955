//! Arguments of `bench`.

use clap::{Args as ClapArgs, Subcommand};
use plimsoll_memory::Bytes;
use plimsoll_nn::NetworkName;

use super::{Compute, Precision, Ram, Threads, network, triple};

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Training steps of a network on made-up data.
    Step(BenchStep),
    /// Points between keeping all values and the least memory: planned, predicted and measured.
    Curve(BenchCurve),
    /// The passes of single convolutions, as fractions of what the machine can do.
    Kernels(BenchKernels),
}

/// How to measure kernels.
#[derive(Debug, ClapArgs)]
pub struct BenchKernels {
    /// How features are stored.
    #[arg(long, value_enum, default_value_t)]
    pub precision: Precision,
    /// Runs, of which the best counts.
    #[arg(long, default_value_t = 9)]
    pub rounds: usize,
    /// Only layers of two or of three dimensions.
    #[arg(long, value_parser = clap::value_parser!(u8).range(2..=3))]
    pub axes: Option<u8>,
    #[command(flatten)]
    pub threads: Threads,
}

/// Of which step.
#[derive(Debug, ClapArgs)]
pub struct BenchedStep {
    /// The network.
    #[arg(long, value_parser = network(), default_value_t = NetworkName::DynUNet)]
    pub net: NetworkName,
    /// Channels of each stage, the finest first [default: those that its authors give it].
    #[arg(long, value_delimiter = ',', value_name = "N,N,…")]
    pub features: Option<Vec<usize>>,
    /// Edge of the patch, or depth,height,width.
    #[arg(long, value_parser = triple::<usize>, value_name = "D,H,W", default_value = "64")]
    pub size: [usize; 3],
    /// Samples of a step.
    #[arg(long, default_value_t = 1)]
    pub batch: usize,
    /// How features are stored.
    #[arg(long, value_enum, default_value_t)]
    pub precision: Precision,
    #[command(flatten)]
    pub compute: Compute,
    #[command(flatten)]
    pub ram: Ram,
}

/// Which curve to measure.
#[derive(Debug, ClapArgs)]
pub struct BenchCurve {
    #[command(flatten)]
    pub step: BenchedStep,
    /// Steps that are timed at each point, in turn.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
}

/// Which step to measure.
#[derive(Debug, ClapArgs)]
pub struct BenchStep {
    #[command(flatten)]
    pub step: BenchedStep,
    /// Steps that are timed, after one that is not.
    #[arg(long, default_value_t = 6)]
    pub steps: usize,
    /// The forward pass alone: logits, without labels, gradients and updates.
    #[arg(long)]
    pub forward: bool,
    /// Print what the steps are predicted to take, by kind of kernel, instead of measuring them: with --device sm_90, without a card.
    #[arg(long, conflicts_with_all = ["steps", "profile"])]
    pub predict: bool,
    /// Print the time of each node: its best of the steps.
    #[arg(long)]
    pub profile: bool,
    /// Bytes that the arena may take; values are recomputed instead of held as far as needed.
    #[arg(long, value_name = "BYTES")]
    pub arena: Option<Bytes>,
}
