//! Plots of one number of each case, in columns beside each other on a logarithmic axis, as SVG.

use plimsoll_metrics::quantile;

use crate::markup::number;
use crate::svg::{Anchor, Drawing, circle, line, text};

/// The size of a plot, and what is left for the names of numbers and columns.
const HEIGHT: f64 = 220.0;
const COLUMN: f64 = 120.0;
const LEFT: f64 = 56.0;
const BELOW: f64 = 24.0;
const ABOVE: f64 = 12.0;

/// Numbers of cases that are of one kind.
pub struct Column {
    pub name: String,
    /// Each with the name of its case; those that are not above 0 are not drawn.
    pub points: Vec<(String, f64)>,
}

/// Draws columns, each point with the name of its case, and the median as a line.
pub fn plot(columns: &[Column], unit: &str) -> String {
    let all = || {
        columns.iter().flat_map(|column| &column.points).map(|(_, value)| *value).filter(|value| *value > 0.0)
    };
    let (least, most) =
        all().fold((f64::INFINITY, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)));
    if most <= 0.0 {
        return "<p>nothing to show</p>".into();
    }
    // At least a factor of two, with a little room at both ends.
    let (low, high) = (least.log10() - 0.08, most.log10().max(least.log10() + 0.3) + 0.08);
    let y = |value: f64| ABOVE + (high - value.log10()) / (high - low) * (HEIGHT - ABOVE - BELOW);
    let width = LEFT + COLUMN * columns.len() as f64;
    let mut drawing = Drawing::new([width, HEIGHT]);
    for value in ticks(low, high) {
        let at = y(value);
        drawing.push(line([LEFT, at], [width, at]).set("class", "grid"));
        drawing.push(text([LEFT - 6.0, at + 4.0], Anchor::End, &number(value)));
    }
    for (place, column) in columns.iter().enumerate() {
        let centre = LEFT + COLUMN * (place as f64 + 0.5);
        drawing.push(text([centre, HEIGHT - 6.0], Anchor::Middle, &column.name));
        let shown: Vec<&(String, f64)> = column.points.iter().filter(|(_, value)| *value > 0.0).collect();
        for (index, (case, value)) in shown.iter().enumerate() {
            // Spread evenly and in no order, so that equal values do not cover each other.
            let offset = ((index * 7919) % 101) as f64 / 101.0 - 0.5;
            let point = circle([centre + offset * COLUMN * 0.6, y(*value)], 3.0);
            drawing.push(point.tooltip(&format!("{case}: {} {unit}", number(*value))));
        }
        let mut sorted: Vec<f64> = shown.iter().map(|(_, value)| *value).collect();
        sorted.sort_by(f64::total_cmp);
        if let Some(median) = quantile(sorted.len(), |at| sorted[at], 0.5) {
            let (left, right, at) = (centre - COLUMN * 0.36, centre + COLUMN * 0.36, y(median));
            drawing.push(line([left, at], [right, at]).set("class", "median"));
        }
    }
    drawing.in_page()
}

/// 1, 2 and 5 times powers of ten between two logarithms; powers alone where these are many.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let steps: &[f64] = if high - low > 3.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let powers = low.floor() as i32..=high.ceil() as i32;
    let all = powers.flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)));
    all.filter(|value| (low..=high).contains(&value.log10())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_a_point_with_its_name_and_zero_is_none() {
        let column = |name: &str, values: &[f64]| Column {
            name: name.into(),
            points: values.iter().enumerate().map(|(at, value)| (format!("case {at}"), *value)).collect(),
        };
        let svg = plot(&[column("depth", &[5.0, 4.97, 2.48]), column("a < b", &[0.0, 1.0])], "mm");
        assert_eq!(svg.matches("<circle").count(), 4);
        assert!(svg.contains("<title>case 1: 4.97 mm</title>") && svg.contains("a &lt; b"), "{svg}");
        assert_eq!(plot(&[column("none", &[0.0])], "mm"), "<p>nothing to show</p>");
    }
}
