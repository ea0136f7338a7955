//! Intensities of structures: PyRadiomics' first-order features, in five passes over the image.

use plimsoll_memory::{Budget, Bytes, Mapped};

use super::census::{Census, Censuses};
use super::levels::{DIGITS, RANKS, Search};
use super::passes::Pass;
use crate::error::InferError;

/// The width of a bin of the histogram, PyRadiomics' default.
const BIN: f64 = 25.0;

/// The most bins of a structure: intensities may be 400,000 apart.
const MOST_BINS: u64 = 1 << 14;

/// The bytes of a structure: counts of digits and of bins, with sums.
pub(super) const BYTES: u64 = 8 * (RANKS * DIGITS) as u64 + 8 * MOST_BINS + TABLES;

/// The bytes of what is known of a structure beside its counts.
const TABLES: u64 = (size_of::<Search>()
    + size_of::<Sums>()
    + size_of::<Bins>()
    + size_of::<Order>()
    + size_of::<&Census>()
    + size_of::<Option<Intensities>>()) as u64;

/// The intensities inside a structure, in the unit of the image if nothing else is stated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Intensities {
    /// The smallest one.
    pub minimum: f64,
    /// The largest one.
    pub maximum: f64,
    /// The mean.
    pub mean: f64,
    /// Quantiles.
    pub order: Order,
    /// The mean squared difference from the mean.
    pub variance: f64,
    /// The third central moment divided by the third power of the standard deviation; 0 if all intensities are equal.
    pub skewness: f64,
    /// The fourth central moment divided by the square of the variance, which is 3 for a normal distribution; 0 if all are equal.
    pub kurtosis: f64,
    /// The mean absolute difference from the mean.
    pub mean_absolute_deviation: f64,
    /// The same of those between the 10th and the 90th percentile.
    pub robust_mean_absolute_deviation: f64,
    /// The sum of squares.
    pub energy: f64,
    /// The sum of squares, times the volume of a voxel in mm³.
    pub total_energy: f64,
    /// The root of the mean square.
    pub root_mean_square: f64,
    /// The histogram; `None` if it has more than 16,384 bins.
    pub histogram: Option<Histogram>,
}

/// Quantiles of intensities, interpolated linearly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Order {
    /// The 10th percentile.
    pub tenth: f64,
    /// The 25th percentile.
    pub first_quartile: f64,
    /// The median.
    pub median: f64,
    /// The 75th percentile.
    pub third_quartile: f64,
    /// The 90th percentile.
    pub ninetieth: f64,
}

/// Features of the histogram of intensities with bins of 25, one of which begins at 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Histogram {
    /// The entropy in bits.
    pub entropy: f64,
    /// The sum of the squared shares of bins.
    pub uniformity: f64,
}

/// Sums over the voxels of a structure, around its mean.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    /// Powers of the difference from the mean: absolute, second, third, fourth.
    absolute: f64,
    powers: [f64; 3],
    /// Those between the 10th and the 90th percentile: number, sum, and absolute differences from their mean.
    inner: u64,
    inner_sum: f64,
    inner_absolute: f64,
}

/// The bins of a structure among the bins of all structures.
#[derive(Clone, Copy, Debug)]
struct Bins {
    /// The number of the bin of the smallest intensity, counted from 0.
    first: f64,
    /// Its place among the bins of all structures.
    start: usize,
    count: usize,
}

impl Bins {
    /// The bins of structures, one after the other; without bins if there are too many.
    fn lay_out(censuses: &Censuses) -> (Vec<Bins>, usize) {
        let mut start = 0;
        let bins = censuses.iter().map(|census| {
            let first = bin(census.least);
            let count = bin(census.most) - first + 1.0;
            let is_counted = census.has_intensities() && count <= MOST_BINS as f64;
            let bins = Bins { first, start, count: if is_counted { count as usize } else { 0 } };
            start += bins.count;
            bins
        });
        (bins.collect(), start)
    }

    fn features(&self, counts: &[u64], voxels: u64) -> Option<Histogram> {
        /// Added by PyRadiomics to a share before its logarithm is taken.
        const EPSILON: f64 = f64::EPSILON;
        if self.count == 0 {
            return None;
        }
        let (mut entropy, mut uniformity) = (0.0, 0.0);
        for count in &counts[self.start..self.start + self.count] {
            let share = *count as f64 / voxels as f64;
            entropy -= share * (share + EPSILON).log2();
            uniformity += share * share;
        }
        Some(Histogram { entropy, uniformity })
    }
}

fn bin(value: f32) -> f64 {
    (f64::from(value) / BIN).floor()
}

/// Measures the intensities of all structures.
pub(super) fn measure(
    pass: &mut Pass<'_>,
    censuses: &Censuses,
    budget: &Budget,
) -> Result<Vec<Option<Intensities>>, InferError> {
    let censuses_of: Vec<&Census> = censuses.iter().collect();
    let (bins, all_bins) = Bins::lay_out(censuses);
    let _tables = budget.reserve("structures", Bytes(TABLES * bins.len() as u64))?;
    let mut counts = Mapped::<u64>::zeroed(budget, "digits of intensities", bins.len() * RANKS * DIGITS)?;
    let mut in_bins = Mapped::<u64>::zeroed(budget, "bins of intensities", all_bins)?;
    let mut searches: Vec<Search> = censuses.iter().map(|census| Search::new(census.voxels)).collect();
    let mut sums = vec![Sums::default(); bins.len()];
    let of = |structure: usize| structure * RANKS * DIGITS..(structure + 1) * RANKS * DIGITS;
    for place in 0..3 {
        counts.fill(0);
        pass.over_values(|_, run, values| {
            let at = run.structure;
            let census = censuses_of[at];
            if !census.has_intensities() {
                return;
            }
            let counts = &mut counts[of(at)];
            values.iter().for_each(|value| searches[at].count(*value, place, counts));
            if place == 0 {
                sums[at].add(values, census.mean());
                let Bins { first, start, count } = bins[at];
                let bins = &mut in_bins[start..start + count];
                if count > 0 {
                    values.iter().for_each(|value| bins[(bin(*value) - first) as usize] += 1);
                }
            }
        })?;
        for (at, search) in searches.iter_mut().enumerate() {
            search.refine(place, &counts[of(at)]);
        }
    }
    drop(counts);
    let orders: Vec<Order> =
        searches.iter().zip(censuses.iter()).map(|(search, census)| search.order(census.voxels)).collect();
    let is_inner = |value: &f32, order: &Order| {
        let value = f64::from(*value);
        (order.tenth..=order.ninetieth).contains(&value)
    };
    pass.over_values(|_, run, values| {
        let (order, sums) = (&orders[run.structure], &mut sums[run.structure]);
        for value in values.iter().filter(|value| is_inner(value, order)) {
            sums.inner += 1;
            sums.inner_sum += f64::from(*value);
        }
    })?;
    pass.over_values(|_, run, values| {
        let (order, sums) = (&orders[run.structure], &mut sums[run.structure]);
        let mean = sums.inner_sum / sums.inner as f64;
        let inner = values.iter().filter(|value| is_inner(value, order));
        sums.inner_absolute += inner.map(|value| (f64::from(*value) - mean).abs()).sum::<f64>();
    })?;
    let voxel: f64 = pass.files.spacing().iter().product();
    let all = censuses.iter().enumerate().map(|(at, census)| {
        let histogram = bins[at].features(&in_bins, census.voxels);
        census.has_intensities().then(|| sums[at].features(census, orders[at], histogram, voxel))
    });
    Ok(all.collect())
}

impl Sums {
    fn add(&mut self, values: &[f32], mean: f64) {
        let [mut second, mut third, mut fourth] = self.powers;
        for value in values {
            let difference = f64::from(*value) - mean;
            let square = difference * difference;
            self.absolute += difference.abs();
            second += square;
            third += square * difference;
            fourth += square * square;
        }
        self.powers = [second, third, fourth];
    }

    fn features(
        &self,
        census: &Census,
        order: Order,
        histogram: Option<Histogram>,
        voxel: f64,
    ) -> Intensities {
        let count = census.voxels as f64;
        let [variance, third, fourth] = self.powers.map(|sum| sum / count);
        let is_flat = variance == 0.0;
        Intensities {
            minimum: census.least.into(),
            maximum: census.most.into(),
            mean: census.mean(),
            order,
            variance,
            skewness: if is_flat { 0.0 } else { third / variance.powf(1.5) },
            kurtosis: if is_flat { 0.0 } else { fourth / (variance * variance) },
            mean_absolute_deviation: self.absolute / count,
            robust_mean_absolute_deviation: self.inner_absolute / self.inner as f64,
            energy: census.squares,
            total_energy: census.squares * voxel,
            root_mean_square: (census.squares / count).sqrt(),
            histogram,
        }
    }
}
