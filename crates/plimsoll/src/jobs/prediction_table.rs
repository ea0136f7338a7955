//! The table that classes of images are written to.

use std::io::{self, Write};

use plimsoll_data::pictures::ImageDataset;
use plimsoll_memory::Mapped;
use plimsoll_metrics::csv::cell_of;
use plimsoll_run::ClassificationTask;

/// The separator of several labels.
const BETWEEN: &str = "|";

/// The probabilities of images, ready to be written.
pub struct PredictionTable<'a> {
    /// The images, with their labels where those are known.
    pub images: &'a ImageDataset,
    /// The task, which defines how classes follow from probabilities.
    pub task: &'a ClassificationTask,
    /// The names of the classes.
    pub classes: &'a [&'a str],
    /// `[image][class]`.
    pub probabilities: &'a [f64],
    /// The probabilities of the classifiers of pairs, if the table has columns for them.
    pub pairs: Option<PairProbabilities>,
}

/// The probability of each pair's classifier for each image.
pub struct PairProbabilities {
    /// The places of both classes of each pair.
    pub pairs: Vec<(usize, usize)>,
    /// The probability of the second class, `[image][pair]`.
    pub second: Mapped<f64>,
}

impl PredictionTable<'_> {
    /// Writes a line for each image but those at the places that are `left_out`, in rising order: its name, its label, the probability of each class,
    /// the class that is predicted; of pairs also the probability of the second class against the first.
    ///
    /// # Errors
    /// Returns an error if writing fails.
    pub fn write(&self, left_out: &[usize], to: &mut dyn Write) -> io::Result<()> {
        let mut table = csv::Writer::from_writer(to);
        let pairs = self.pairs.as_ref();
        let against = |(a, b): &(usize, usize)| format!("{} vs {}", self.class(*b), self.class(*a));
        let of_pairs: Vec<String> = pairs.iter().flat_map(|pairs| &pairs.pairs).map(against).collect();
        let header = ["case", "label"].into_iter().chain(self.classes.iter().copied()).chain(["predicted"]);
        let header = header.chain(of_pairs.iter().map(String::as_str));
        table.write_record(header.map(|name| cell_of(name).into_owned()))?;
        let rows = self.images.cases.iter().zip(self.probabilities.chunks_exact(self.classes.len().max(1)));
        for (place, (case, row)) in rows.enumerate() {
            if left_out.binary_search(&place).is_ok() {
                continue;
            }
            let label =
                case.labels.iter().filter_map(|label| self.images.classes.get(*label as usize)).cloned();
            let label = label.collect::<Vec<_>>().join(BETWEEN);
            let predicted =
                self.task.given(row).map(|place| self.class(place)).collect::<Vec<_>>().join(BETWEEN);
            let second =
                pairs.and_then(|pairs| pairs.second.chunks_exact(pairs.pairs.len().max(1)).nth(place));
            let number = |probability: &f64| format!("{probability:.6}");
            let numbers = row.iter().map(number);
            let fields =
                [&case.name, &label].map(|text| cell_of(text).into_owned()).into_iter().chain(numbers);
            let fields = fields.chain([cell_of(&predicted).into_owned()]);
            table.write_record(fields.chain(second.into_iter().flatten().map(number)))?;
        }
        table.flush()
    }

    fn class(&self, place: usize) -> &str {
        self.classes.get(place).copied().unwrap_or("?")
    }
}
