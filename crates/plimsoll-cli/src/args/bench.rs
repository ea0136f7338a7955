//! Arguments of `bench`.

use clap::{Args as ClapArgs, Subcommand};
use plimsoll_memory::Bytes;
use plimsoll_nn::NetworkName;

use super::bench_data::BenchData;
use super::{Compute, Precision, Ram, StorageArgs, Threads, network, thread_count, triple};

/// A benchmark.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// The speed of reading the files of a data set, with and without the system's cache.
    Load(Box<BenchData>),
    /// The speed of making batches of a data set from the cache that a run would have.
    Patch(Box<BenchData>),
    /// The whole path of a data set from the disk to a step, its slowest part, and a remedy.
    System(Box<BenchData>),
    /// Training steps of a network on generated data.
    Step(BenchStep),
    /// Points between keeping all values and the least memory: planned, predicted and measured.
    Curve(BenchCurve),
    /// The time of planning, for each network with each loss.
    Plan(BenchPlan),
    /// The passes of single convolutions, as fractions of the machine's peak.
    Kernels(BenchKernels),
    /// A generated case through a network with random weights, window by window, from its file to the file of its labels.
    Predict(BenchPredict),
    /// A step on many cores: each task is timed on one core, and the tasks are divided among the requested number of threads.
    Scaling(BenchScaling),
}

/// The prediction to measure.
#[derive(Debug, ClapArgs)]
pub struct BenchPredict {
    /// The network, as nnU-Net's rules design it for the windows.
    #[arg(long, value_parser = network(), default_value_t = NetworkName::PlainConvUNet)]
    pub net: NetworkName,
    /// Channels of each stage, the finest first [default: 32, doubled to at most 320].
    #[arg(long, value_delimiter = ',', value_name = "N,N,…")]
    pub features: Option<Vec<usize>>,
    /// Edge of a window, or depth,height,width.
    #[arg(long, value_parser = triple::<usize>, value_name = "D,H,W", default_value = "128")]
    pub size: [usize; 3],
    /// Depth,height,width of the case [default: two windows deep, with three windows along the depth].
    #[arg(long, value_parser = triple::<usize>, value_name = "D,H,W")]
    pub shape: Option<[usize; 3]>,
    /// Classes, including the background.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(2..))]
    pub classes: u16,
    /// The number of predictions of the case; the one with the median time counts.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,
    #[command(flatten)]
    pub held: StorageArgs,
    #[command(flatten)]
    pub compute: Compute,
    #[command(flatten)]
    pub ram: Ram,
}

/// The plans to time.
#[derive(Debug, ClapArgs)]
pub struct BenchPlan {
    /// The networks [default: all].
    #[arg(long, value_parser = network(), value_delimiter = ',', value_name = "NET,NET,…")]
    pub net: Vec<NetworkName>,
    /// Edge of the patch, or depth,height,width; networks for images take the last two.
    #[arg(long, value_parser = triple::<usize>, value_name = "D,H,W", default_value = "96")]
    pub size: [usize; 3],
    /// Samples of a step.
    #[arg(long, default_value_t = 2)]
    pub batch: usize,
    /// Number formats of stored features and of products.
    #[arg(long, value_enum, default_value_t)]
    pub precision: Precision,
    #[command(flatten)]
    pub compute: Compute,
}

/// The kernels to measure.
#[derive(Debug, ClapArgs)]
pub struct BenchKernels {
    /// Number formats of stored features and of products.
    #[arg(long, value_enum, default_value_t)]
    pub precision: Precision,
    /// The number of runs; the best counts.
    #[arg(long, default_value_t = 9)]
    pub rounds: usize,
    /// Only layers of two or of three dimensions.
    #[arg(long, value_parser = clap::value_parser!(u8).range(2..=3))]
    pub axes: Option<u8>,
    #[command(flatten)]
    pub threads: Threads,
}

/// The network to measure.
#[derive(Debug, ClapArgs)]
pub struct BenchedNet {
    /// The network.
    #[arg(long, value_parser = network(), default_value_t = NetworkName::DynUNet)]
    pub net: NetworkName,
    /// Channels of each stage, the finest first [default: its authors' values].
    #[arg(long, value_delimiter = ',', value_name = "N,N,…")]
    pub features: Option<Vec<usize>>,
    /// Edge of the patch, or depth,height,width.
    #[arg(long, value_parser = triple::<usize>, value_name = "D,H,W", default_value = "64")]
    pub size: [usize; 3],
    /// Samples of a step.
    #[arg(long, default_value_t = 1)]
    pub batch: usize,
    /// Number formats of stored features and of products.
    #[arg(long, value_enum, default_value_t)]
    pub precision: Precision,
}

/// The step to measure.
#[derive(Debug, ClapArgs)]
pub struct BenchedStep {
    #[command(flatten)]
    pub what: BenchedNet,
    #[command(flatten)]
    pub compute: Compute,
    #[command(flatten)]
    pub ram: Ram,
}

/// The number of threads.
#[derive(Debug, ClapArgs)]
pub struct BenchScaling {
    #[command(flatten)]
    pub what: BenchedNet,
    /// The forward pass alone: logits, without labels, gradients and updates.
    #[arg(long)]
    pub forward: bool,
    /// Numbers of threads. Numbers up to the machine's cores are measured, the others simulated.
    #[arg(long, value_delimiter = ',', value_name = "N,N,…", value_parser = thread_count, default_values_t = [8, 16, 32, 64])]
    pub threads: Vec<usize>,
    /// The number of runs; the best of each task counts.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,
    /// The number of listed nodes, those with the largest losses.
    #[arg(long, default_value_t = 8)]
    pub nodes: usize,
    #[command(flatten)]
    pub ram: Ram,
}

/// The curve to measure.
#[derive(Debug, ClapArgs)]
pub struct BenchCurve {
    #[command(flatten)]
    pub step: BenchedStep,
    /// Steps that are timed at each point, in turn.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
}

/// The step to measure.
#[derive(Debug, ClapArgs)]
pub struct BenchStep {
    #[command(flatten)]
    pub step: BenchedStep,
    /// The number of timed steps, after one untimed step.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u16).range(1..))]
    pub steps: u16,
    /// The forward pass alone: logits, without labels, gradients and updates.
    #[arg(long)]
    pub forward: bool,
    /// Print the predicted time of steps by kind of kernel, instead of measuring them: with --device sm_90, without a card.
    #[arg(long, conflicts_with_all = ["steps", "profile"])]
    pub predict: bool,
    /// Print the time of each node: its best of the steps.
    #[arg(long)]
    pub profile: bool,
    /// The most bytes of the arena; values are recomputed as far as needed.
    #[arg(long, value_name = "BYTES")]
    pub arena: Option<Bytes>,
}
