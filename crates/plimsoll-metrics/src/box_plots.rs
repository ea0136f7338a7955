//! Box plots of scores over cases, as SVG.

use std::io::{self, Write};

use crate::markup::escaped;
use crate::quantile::quantile;
use crate::{Metric, Summary};

/// Plots per row.
const COLUMNS: usize = 4;
/// The size of one plot in pixels, without and with its margins.
const PLOT: [f64; 2] = [210.0, 130.0];
const CELL: [f64; 2] = [280.0, 230.0];
/// The offset of a plot in its cell.
const CORNER: [f64; 2] = [52.0, 34.0];
const STEPS: usize = 4;
/// The width of a letter of the text, about, and the letters of a name that are shown.
const LETTER: f64 = 6.4;
const LONGEST: usize = 14;

const STYLE: &str = "text{font:11px sans-serif;fill:#333}.title{font-weight:bold;font-size:12px}\
    .axis{stroke:#bbb;fill:none}.box{fill:#9ec5e8;stroke:#1f5f99}.line{stroke:#1f5f99}\
    .median{stroke:#0b2e4f;stroke-width:2}.far{fill:none;stroke:#1f5f99}";

/// Cases that are drawn individually instead of as a box, at most: quartiles of fewer say nothing.
const FEW: usize = 4;

/// What is drawn of a class.
enum Drawn {
    Box(Plot),
    Cases(Vec<f64>),
}

impl Drawn {
    fn new(scores: Vec<f64>) -> Option<Drawn> {
        match scores.len() {
            0 => None,
            1..=FEW => Some(Drawn::Cases(scores)),
            _ => Plot::new(scores).map(Drawn::Box),
        }
    }

    /// The scores that are drawn furthest out.
    fn reach(&self) -> Vec<f64> {
        match self {
            Drawn::Box(plot) => plot.far.iter().copied().chain(plot.whiskers).collect(),
            Drawn::Cases(scores) => scores.clone(),
        }
    }
}

/// A box plot after Tukey (1977), as in matplotlib: the box spans the quartiles, the whiskers reach the furthest case
/// within 1.5 times its height, and cases beyond are drawn individually.
struct Plot {
    box_: [f64; 3],
    whiskers: [f64; 2],
    far: Vec<f64>,
}

impl Plot {
    fn new(mut scores: Vec<f64>) -> Option<Plot> {
        scores.sort_unstable_by(f64::total_cmp);
        let at = |share| quantile(scores.len(), |at| scores[at], share);
        let [low, middle, high] = [at(0.25)?, at(0.5)?, at(0.75)?];
        let reach = 1.5 * (high - low);
        let near = |score: &f64| (low - reach..=high + reach).contains(score);
        let whiskers = [scores.iter().copied().find(near)?, scores.iter().copied().rfind(near)?];
        let far = scores.into_iter().filter(|score| !near(score)).collect();
        Some(Plot { box_: [low, middle, high], whiskers, far })
    }
}

impl Summary {
    /// Writes a box plot per score, except for counts of voxels, with a box per class over its cases; of few cases a point for each. `name`
    /// gives the names of classes.
    ///
    /// # Errors
    /// If writing to `to` fails.
    pub fn write_box_plots(&self, name: &dyn Fn(u8) -> String, to: &mut dyn Write) -> io::Result<()> {
        let metrics: Vec<Metric> = self.metrics().into_iter().filter(|metric| !metric.is_count()).collect();
        let columns = metrics.len().clamp(1, COLUMNS);
        let rows = metrics.len().div_ceil(COLUMNS).max(1);
        let (width, height) = (columns as f64 * CELL[0], rows as f64 * CELL[1]);
        writeln!(
            to,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\">\n\
             <style>{STYLE}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>"
        )?;
        for (at, metric) in metrics.into_iter().enumerate() {
            let (x, y) = ((at % COLUMNS) as f64 * CELL[0], (at / COLUMNS) as f64 * CELL[1]);
            writeln!(to, "<g transform=\"translate({},{})\">", x + CORNER[0], y + CORNER[1])?;
            self.write_plot(metric, name, to)?;
            writeln!(to, "</g>")?;
        }
        writeln!(to, "</svg>")
    }

    fn write_plot(&self, metric: Metric, name: &dyn Fn(u8) -> String, to: &mut dyn Write) -> io::Result<()> {
        let plots: Vec<(u8, Option<Drawn>)> = self
            .mean
            .keys()
            .map(|class| {
                let cases = self.metric_per_case.iter().filter_map(|case| case.metrics.get(class));
                (*class, Drawn::new(cases.filter_map(|scores| scores.get(metric)).collect()))
            })
            .collect();
        let reach = plots.iter().filter_map(|(_, drawn)| drawn.as_ref()).flat_map(Drawn::reach);
        let top = if metric.is_share() { 1.0 } else { round_up(reach.fold(0.0, f64::max)) };
        let height = |score: f64| PLOT[1] * (1.0 - score / top);
        let unit = metric.unit().map(|unit| format!(" ({unit})")).unwrap_or_default();
        writeln!(to, "<text class=\"title\" y=\"-10\">{}{unit}</text>", metric.name())?;
        for step in 0..=STEPS {
            // Rounds, because multiples of a tenth are not exact in binary.
            let score = (top * step as f64 / STEPS as f64 * 1e9).round() / 1e9;
            let (y, right) = (height(score), PLOT[0]);
            writeln!(to, "<path class=\"axis\" d=\"M0 {y:.1}H{right}\"/>")?;
            writeln!(to, "<text x=\"-6\" y=\"{:.1}\" text-anchor=\"end\">{score}</text>", y + 4.0)?;
        }
        let slot = PLOT[0] / plots.len().max(1) as f64;
        // Names that would overlap are slanted.
        let named = |(class, _): &(u8, Option<Drawn>)| {
            let cases = self.mean_of(Some(*class), metric).cases;
            // Cases without the score are not drawn.
            let behind = if cases.is_complete() { String::new() } else { format!(" ({cases})") };
            format!("{}{behind}", shortened(&name(*class)))
        };
        let names: Vec<String> = plots.iter().map(named).collect();
        let is_slanted = names.iter().any(|name| name.chars().count() as f64 * LETTER > slot);
        for (at, ((_, drawn), name)) in plots.iter().zip(names).enumerate() {
            let middle = slot * (at as f64 + 0.5);
            let label = PLOT[1] + 16.0;
            let place = match is_slanted {
                false => format!("x=\"{middle:.1}\" y=\"{label}\" text-anchor=\"middle\""),
                true => format!(
                    "transform=\"translate({:.1},{}) rotate(-40)\" text-anchor=\"end\"",
                    middle + 4.0,
                    label - 4.0
                ),
            };
            writeln!(to, "<text {place}>{}</text>", escaped(&name))?;
            let plot = match drawn {
                None => continue,
                Some(Drawn::Box(plot)) => plot,
                Some(Drawn::Cases(scores)) => {
                    for score in scores {
                        write_point(to, middle, height(*score))?;
                    }
                    continue;
                }
            };
            let half = (slot * 0.3).min(22.0);
            let (left, right) = (middle - half, middle + half);
            let [low, median, high] = plot.box_.map(height);
            let [bottom, end] = plot.whiskers.map(height);
            writeln!(
                to,
                "<path class=\"line\" d=\"M{middle:.1} {bottom:.1}V{low:.1}M{middle:.1} {high:.1}V{end:.1}\"/>"
            )?;
            writeln!(to, "<path class=\"box\" d=\"M{left:.1} {low:.1}H{right:.1}V{high:.1}H{left:.1}Z\"/>")?;
            writeln!(to, "<path class=\"median\" d=\"M{left:.1} {median:.1}H{right:.1}\"/>")?;
            for score in &plot.far {
                write_point(to, middle, height(*score))?;
            }
        }
        Ok(())
    }
}

/// A case by itself.
fn write_point(to: &mut dyn Write, x: f64, y: f64) -> io::Result<()> {
    writeln!(to, "<circle class=\"far\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\"/>")
}

/// A name that has room below a plot.
fn shortened(name: &str) -> String {
    match name.chars().count() > LONGEST {
        true => name.chars().take(LONGEST - 1).chain(['…']).collect(),
        false => name.into(),
    }
}

/// The next of 1, 2, 4, 8 times a power of ten, whose quarters have few digits.
fn round_up(score: f64) -> f64 {
    if score <= 0.0 || !score.is_finite() {
        return 1.0;
    }
    let power = 10f64.powf(score.log10().floor());
    [1.0, 2.0, 4.0, 8.0, 10.0].map(|step| step * power).into_iter().find(|top| *top >= score).unwrap_or(score)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_follows_tukeys_definition() {
        let plot = Plot::new(vec![4.0, 1.0, 2.0, 3.0, 100.0]).unwrap();
        assert_eq!((plot.box_, plot.whiskers), ([2.0, 3.0, 4.0], [1.0, 4.0]));
        assert_eq!(plot.far, [100.0]);
        assert!(Plot::new(Vec::new()).is_none());
        assert_eq!((round_up(0.0), round_up(3.0), round_up(8.1), round_up(0.03)), (1.0, 4.0, 10.0, 0.04));
    }
}
