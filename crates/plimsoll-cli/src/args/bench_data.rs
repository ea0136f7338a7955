//! Arguments of `bench load`, `bench patch` and `bench system`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::RunArgs;

/// The data path to measure.
#[derive(Debug, ClapArgs)]
pub struct BenchData {
    #[command(flatten)]
    pub run: RunArgs,
    /// The most cases to read, spread over the data set.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..))]
    pub cases: u16,
    /// Batches to prepare, after the cache is filled.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    pub batches: u16,
    /// Draw the seconds of a step and of its batches into this SVG file.
    #[arg(long, value_name = "FILE.svg")]
    pub draw: Option<PathBuf>,
}
