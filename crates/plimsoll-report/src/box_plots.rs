//! Box plots of scores over cases, as SVG.

use plimsoll_metrics::{Metric, Summary, quantile};

use crate::svg::{Anchor, Drawing, Element, Path, circle, group, path, text, turned_text};

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

/// The drawing of a class.
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

/// Draws a box plot per score, except for counts of voxels, with a box per class over its cases; of few cases a point for each. `name`
/// gives the names of classes.
pub fn box_plots(summary: &Summary, name: &dyn Fn(u8) -> String) -> Drawing {
    let metrics: Vec<Metric> = summary.metrics().into_iter().filter(|metric| !metric.is_count()).collect();
    let columns = metrics.len().clamp(1, COLUMNS);
    let rows = metrics.len().div_ceil(COLUMNS).max(1);
    let mut drawing = Drawing::new([columns as f64 * CELL[0], rows as f64 * CELL[1]]).styled(STYLE);
    for (at, metric) in metrics.into_iter().enumerate() {
        let (x, y) = ((at % COLUMNS) as f64 * CELL[0], (at / COLUMNS) as f64 * CELL[1]);
        drawing.push(plot(summary, metric, name, group([x + CORNER[0], y + CORNER[1]])));
    }
    drawing
}

/// Draws the boxes of one score into its place.
fn plot(summary: &Summary, metric: Metric, name: &dyn Fn(u8) -> String, mut at: Element) -> Element {
    let plots: Vec<(u8, Option<Drawn>)> = summary
        .mean
        .keys()
        .map(|class| {
            let cases = summary.metric_per_case.iter().filter_map(|case| case.metrics.get(class));
            (*class, Drawn::new(cases.filter_map(|scores| scores.get(metric)).collect()))
        })
        .collect();
    let reach = plots.iter().filter_map(|(_, drawn)| drawn.as_ref()).flat_map(Drawn::reach);
    let top = if metric.is_share() { 1.0 } else { round_up(reach.fold(0.0, f64::max)) };
    let height = |score: f64| PLOT[1] * (1.0 - score / top);
    let unit = metric.unit().map(|unit| format!(" ({unit})")).unwrap_or_default();
    let title = format!("{}{unit}", metric.name());
    at.push(text([0.0, -10.0], Anchor::Start, &title).set("class", "title"));
    for step in 0..=STEPS {
        // Rounds, because multiples of a tenth are not exact in binary.
        let score = (top * step as f64 / STEPS as f64 * 1e9).round() / 1e9;
        let y = height(score);
        at.push(path(Path::from([0.0, y]).across_to(PLOT[0])).set("class", "axis"));
        at.push(text([-6.0, y + 4.0], Anchor::End, &score.to_string()));
    }
    let slot = PLOT[0] / plots.len().max(1) as f64;
    // Names that would overlap are slanted.
    let named = |(class, _): &(u8, Option<Drawn>)| {
        let cases = summary.mean_of(Some(*class), metric).cases;
        // Cases without the score are not drawn.
        let behind = if cases.is_complete() { String::new() } else { format!(" ({cases})") };
        format!("{}{behind}", shortened(&name(*class)))
    };
    let names: Vec<String> = plots.iter().map(named).collect();
    let is_slanted = names.iter().any(|name| name.chars().count() as f64 * LETTER > slot);
    for (place, ((_, drawn), name)) in plots.iter().zip(names).enumerate() {
        let middle = slot * (place as f64 + 0.5);
        let label = PLOT[1] + 16.0;
        at.push(match is_slanted {
            false => text([middle, label], Anchor::Middle, &name),
            true => turned_text([middle + 4.0, label - 4.0], -40.0, Anchor::End, &name),
        });
        let point = |score: &f64| circle([middle, height(*score)], 2.5).set("class", "far");
        let plot = match drawn {
            None => continue,
            Some(Drawn::Box(plot)) => plot,
            Some(Drawn::Cases(scores)) => {
                scores.iter().for_each(|score| at.push(point(score)));
                continue;
            }
        };
        let half = (slot * 0.3).min(22.0);
        let (left, right) = (middle - half, middle + half);
        let [low, median, high] = plot.box_.map(height);
        let [bottom, end] = plot.whiskers.map(height);
        let whiskers = Path::from([middle, bottom]).down_to(low).jump([middle, high]).down_to(end);
        at.push(path(whiskers).set("class", "line"));
        let outline = Path::from([left, low]).across_to(right).down_to(high).across_to(left).closed();
        at.push(path(outline).set("class", "box"));
        at.push(path(Path::from([left, median]).across_to(right)).set("class", "median"));
        plot.far.iter().for_each(|score| at.push(point(score)));
    }
    at
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
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use plimsoll_metrics::{CaseScores, Scores, Settings};

    use super::*;

    #[test]
    fn a_box_follows_tukeys_definition() {
        let plot = Plot::new(vec![4.0, 1.0, 2.0, 3.0, 100.0]).unwrap();
        assert_eq!((plot.box_, plot.whiskers), ([2.0, 3.0, 4.0], [1.0, 4.0]));
        assert_eq!(plot.far, [100.0]);
        assert!(Plot::new(Vec::new()).is_none());
        assert_eq!((round_up(0.0), round_up(3.0), round_up(8.1), round_up(0.03)), (1.0, 4.0, 10.0, 0.04));
    }

    /// A case with these numbers of predicted and reference voxels of class 1, and its HD95.
    fn case([predicted, reference]: [f64; 2], hd95: f64) -> CaseScores {
        let mut scores = Scores::default();
        scores.set(Metric::Predicted, predicted);
        scores.set(Metric::Reference, reference);
        scores.set(Metric::HD95, hd95);
        CaseScores {
            prediction_file: "p.nii.gz".into(),
            reference_file: "r.nii.gz".into(),
            metrics: [(1, scores)].into(),
            counted_voxels: None,
            diagonal_mm: None,
        }
    }

    #[test]
    fn a_plot_names_its_score_its_class_and_the_cases_that_have_it() {
        // Found, missed, and in neither map.
        let cases = vec![case([9.0, 9.0], 2.0), case([0.0, 9.0], f64::INFINITY), case([0.0; 2], f64::NAN)];
        let svg =
            box_plots(&Summary::new(cases, Settings::new(vec![1])), &|class| format!("<{class}>")).in_page();
        assert!(svg.contains(">&lt;1&gt; (1 of 3)<"), "{svg}");
        assert!(svg.contains(">HD95 (mm)<") && !svg.contains("n_ref") && svg.ends_with("</svg>"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 1, "{svg}");
    }
}
