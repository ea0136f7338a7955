//! Arguments of `report`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::Ram;

/// A page about a run or a sweep.
#[derive(Debug, ClapArgs)]
pub struct Report {
    /// The folder of a run, of one of its folds, or of a sweep.
    pub run: PathBuf,
    /// The file of the page.
    #[arg(short, long, value_name = "FILE.html", default_value = "report.html")]
    pub output: PathBuf,
    /// The data set, for pictures of cases [default: its path at training].
    #[arg(long, value_name = "DATASET")]
    pub dataset: Option<PathBuf>,
    /// Read files outside the data set's folder that its list or table names.
    #[arg(long)]
    pub allow_outside: bool,
    /// The number of the worst cases with pictures, and of the best.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub cases: usize,
    /// The number of the worst cases whose image, reference and prediction are in the page as volumes, to be sliced and rotated with
    /// NiiVue: some megabytes each.
    #[arg(long, value_name = "N", default_value_t = 0, default_missing_value = "1", num_args = 0..=1)]
    pub volumes: usize,
    #[command(flatten)]
    pub ram: Ram,
}
