//! Lines over epochs, as SVG.

use std::fmt::Write;

use crate::markup::{escaped, number};
use crate::progress_picture::axis::{Axis, LARGEST};
use crate::svg::{Anchor, Drawing, Element, Path, circle, group, path, text};

/// Colours that are distinguishable with colour-blind eyes (after Okabe and Ito), without those that are too pale for lines.
pub const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#7a5a00", "#56b4e9", "#000000"];

/// The style rules of charts and their legends.
pub const STYLE: &str = ".legend span{margin-right:1rem;white-space:nowrap}.legend i{display:inline-block;width:.9rem;height:.28rem;\
    margin-right:.35rem;vertical-align:middle}svg .title{font-weight:bold;font-size:12px;fill:#1d232b}svg path.grid{fill:none}\
    svg .mark{stroke:#c2410c;stroke-width:1.5;stroke-dasharray:4 3;fill:none}svg text.marked{fill:#c2410c}svg g path{stroke-width:1.5}";

/// Room around a plot: for numbers at the left, and for those below.
const LEFT: f64 = 52.0;
const RIGHT: f64 = 10.0;
const TOP: f64 = 26.0;
const BELOW: f64 = 34.0;

/// The most pieces of a line. With more epochs, the lowest and the highest point of each piece are drawn.
const MOST_PIECES: usize = 240;

/// A line of a chart.
pub struct Series {
    /// In the legend and where the line is pointed at.
    pub name: String,
    pub colour: &'static str,
    pub dashed: bool,
    /// Epoch and value; values that are no numbers are not drawn.
    pub points: Vec<[f64; 2]>,
}

/// A chart of values over epochs.
pub struct Chart<'a> {
    pub title: &'a str,
    pub series: &'a [Series],
    pub size: [f64; 2],
    /// Values that the axis has in any case.
    pub has: &'a [f64],
    /// The first and the last epoch of the axis; those that have values, where none are given.
    pub epochs: Option<[u64; 2]>,
    /// A level with its name.
    pub mark: Option<(f64, String)>,
}

impl Chart<'_> {
    /// Draws it.
    pub fn svg(&self) -> String {
        let [width, height] = self.size;
        let is_drawn = |value: &f64| value.abs() <= LARGEST;
        let all = || self.series.iter().flat_map(|series| &series.points).filter(|[_, y]| is_drawn(y));
        let mark = self.mark.as_ref().map(|(value, _)| *value);
        let values = all().map(|[_, y]| *y).chain(self.has.iter().copied()).chain(mark);
        let y_axis = Axis::new(values, 4.0);
        let (first, last) = all().fold((f64::INFINITY, 0.0f64), |(a, b), [x, _]| (a.min(*x), b.max(*x)));
        let drawn = [if first.is_finite() { first as u64 } else { 0 }, last as u64];
        let [first, last] = self.epochs.unwrap_or(drawn);
        let x_axis = Axis::for_epochs(first, last, 5.0);
        let x = |epoch: f64| LEFT + x_axis.share(epoch) * (width - LEFT - RIGHT);
        let y = |value: f64| TOP + (1.0 - y_axis.share(value)) * (height - TOP - BELOW);
        let mut drawing = Drawing::new(self.size);
        drawing.push(text([LEFT, 14.0], Anchor::Start, self.title).set("class", "title"));
        let right = width - RIGHT;
        for (value, label) in y_axis.ticks() {
            let at = y(value);
            drawing.push(path(Path::from([LEFT, at]).across_to(right)).set("class", "grid"));
            drawing.push(text([LEFT - 6.0, at + 4.0], Anchor::End, &label));
        }
        for (epoch, label) in x_axis.ticks() {
            drawing.push(text([x(epoch), height - BELOW + 16.0], Anchor::Middle, &label));
        }
        drawing.push(text([(LEFT + right) / 2.0, height - 3.0], Anchor::Middle, "epoch"));
        if let Some((value, name)) = &self.mark {
            let at = y(*value);
            drawing.push(path(Path::from([LEFT, at]).across_to(right)).set("class", "mark"));
            drawing.push(text([right, at - 4.0], Anchor::End, name).set("class", "marked"));
        }
        for series in self.series {
            drawing.push(series.drawn(&|[epoch, value]| [x(epoch), y(value)]));
        }
        drawing.in_page()
    }
}

/// Returns the legend of colours, in a line.
pub fn legend(lines: impl Iterator<Item = (&'static str, String)>) -> String {
    let mut html = String::from("<p class=\"legend\">");
    for (colour, name) in lines {
        let _ = write!(html, "<span><i style=\"background:{colour}\"></i>{}</span> ", escaped(&name));
    }
    html + "</p>\n"
}

impl Series {
    /// A line for each run of epochs whose values are numbers; a dot for one by itself.
    fn drawn(&self, place: &dyn Fn([f64; 2]) -> [f64; 2]) -> Element {
        let last = self.points.iter().rev().find(|[_, y]| y.is_finite());
        let title = match last {
            Some([_, value]) => format!("{}: {} at the end", self.name, number(*value)),
            None => self.name.clone(),
        };
        let mut lines = group([0.0; 2]).set("fill", "none").set("stroke", self.colour);
        if self.dashed {
            lines = lines.set("stroke-dasharray", "5 3");
        }
        lines = lines.tooltip(&title);
        for run in self.points.split(|[_, y]| y.is_nan() || y.abs() > LARGEST).filter(|run| !run.is_empty()) {
            lines.push(match run {
                [only] => circle(place(*only), 2.0),
                several => path(Path::through(thinned(several).into_iter().map(place))),
            });
        }
        lines
    }
}

/// Returns points whose line looks like the line of all points: the lowest and the highest of each piece.
fn thinned(points: &[[f64; 2]]) -> Vec<[f64; 2]> {
    if points.len() <= 2 * MOST_PIECES {
        return points.to_vec();
    }
    let pieces = points.chunks(points.len().div_ceil(MOST_PIECES));
    let ends = pieces.flat_map(|piece| {
        let by_value = |a: &&[f64; 2], b: &&[f64; 2]| a[1].total_cmp(&b[1]);
        let (low, high) = (piece.iter().min_by(by_value), piece.iter().max_by(by_value));
        let mut both: Vec<[f64; 2]> = low.into_iter().chain(high).copied().collect();
        both.sort_by(|a, b| a[0].total_cmp(&b[0]));
        both.dedup();
        both
    });
    ends.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(points: Vec<[f64; 2]>, epochs: Option<[u64; 2]>) -> String {
        let series = [Series { name: "a < b".into(), colour: COLOURS[0], dashed: false, points }];
        let size = [400.0, 200.0];
        Chart { title: "t", series: &series, size, has: &[], epochs, mark: None }.svg()
    }

    #[test]
    fn charts_of_different_lines_can_have_the_same_epochs() {
        let points = vec![[0.0, 1.0], [2.0, 2.0]];
        assert!(!drawn(points.clone(), None).contains(">80</text>"));
        assert!(drawn(points, Some([0, 99])).contains(">80</text>"));
    }

    #[test]
    fn a_long_line_keeps_its_spikes_and_a_gap_breaks_it() {
        let mut points: Vec<[f64; 2]> = (0..5000).map(|epoch| [f64::from(epoch), 1.0]).collect();
        points[1234][1] = 9.0;
        let few = thinned(&points);
        assert!(few.len() <= 2 * MOST_PIECES && few.contains(&[1234.0, 9.0]), "{}", few.len());
        points.truncate(10);
        points[5][1] = f64::NAN;
        let svg = drawn(points, None);
        let line = svg.split("<g ").nth(1).unwrap_or_default();
        assert_eq!(line.matches("<path d=\"M").count(), 2, "{svg}");
        assert!(svg.contains("a &lt; b"), "{svg}");
    }

    #[test]
    fn nothing_at_all_is_still_a_chart() {
        for points in [vec![], vec![[3.0, 0.5]], vec![[0.0, f64::INFINITY]]] {
            let svg = drawn(points, None);
            assert!(svg.ends_with("</svg>") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
