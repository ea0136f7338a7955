//! Curves as SVG.

use std::fmt::Write;

use crate::markup::escaped;
use crate::progress_picture::axis::{Axis, LARGEST};

const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 210.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 10.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 24.0;

/// A curve.
pub struct Series<'a> {
    pub name: &'a str,
    /// The class of its line, which has a colour.
    pub class: &'a str,
    /// Numbers over epochs.
    pub points: Vec<(u64, f64)>,
}

/// Curves over epochs with their names below, and a dashed line where `mark` is.
pub fn chart(title: &str, series: &[Series<'_>], mark: Option<(&str, f64)>) -> String {
    let all =
        || series.iter().flat_map(|series| &series.points).filter(|(_, number)| number.abs() <= LARGEST);
    let numbers = all().map(|(_, number)| *number).chain(mark.map(|(_, number)| number));
    // Memory begins at zero.
    let up = Axis::of(numbers.chain(mark.map(|_| 0.0)), 4.0);
    let across = Axis::of_epochs(0, all().map(|(epoch, _)| *epoch).max().unwrap_or(0), 5.0);
    let x = |epoch: f64| LEFT + across.share(epoch) * (WIDTH - LEFT - RIGHT);
    let y = |number: f64| HEIGHT - BOTTOM - up.share(number) * (HEIGHT - BOTTOM - TOP);
    let mut svg = format!(
        "<figure><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
        escaped(title)
    );
    // Writing to a string cannot fail.
    for (number, label) in up.ticks() {
        let (at, right) = (y(number), WIDTH - RIGHT);
        let _ =
            write!(svg, "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>");
        let _ = write!(
            svg,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            LEFT - 6.0,
            at + 4.0
        );
    }
    for (epoch, label) in across.ticks() {
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
            x(epoch),
            HEIGHT - 6.0
        );
    }
    if let Some((_, number)) = mark {
        let (at, right) = (y(number), WIDTH - RIGHT);
        let _ =
            write!(svg, "<line class=\"mark\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>");
    }
    for Series { class, points, .. } in series {
        let points: Vec<&(u64, f64)> = points.iter().filter(|(_, number)| number.abs() <= LARGEST).collect();
        if let [(epoch, number)] = points[..] {
            let _ = write!(
                svg,
                "<circle class=\"{class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\"/>",
                x(*epoch as f64),
                y(*number)
            );
            continue;
        }
        let _ = write!(svg, "<polyline class=\"{class}\" points=\"");
        for (epoch, number) in points {
            let _ = write!(svg, "{:.1},{:.1} ", x(*epoch as f64), y(*number));
        }
        svg.push_str("\"/>");
    }
    let _ = write!(svg, "</svg><figcaption><b>{}</b>", escaped(title));
    for Series { name, class, points } in series {
        let now = points.last().map_or(String::new(), |(_, number)| format!(" {number:.4}"));
        let _ = write!(svg, " <span class=\"{class}\">■</span> {}{now}", escaped(name));
    }
    if let Some((name, _)) = mark {
        let _ = write!(svg, " <span class=\"mark\">╌</span> {}", escaped(name));
    }
    svg.push_str("</figcaption></figure>");
    svg
}
