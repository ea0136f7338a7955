//! The memory of the training of a fold by holder, over steps, from its samples.

use std::collections::BTreeMap;
use std::fmt::Write;

use plimsoll_memory::Bytes;
use plimsoll_run::Sample;

use super::memory::COLOURS;
use super::read::Fold;
use crate::epoch_chart::legend;
use crate::markup::escaped;
use crate::progress_picture::axis::Axis;
use crate::svg::{Anchor, Drawing, Path, path, text};

/// The most samples. Beyond it, every second sample is removed.
const MOST: usize = 240;
/// Holders that are drawn; of more the others are left out.
const MOST_HOLDERS: usize = 24;

/// Pixels of the drawing, and room around it.
const SIZE: [f64; 2] = [1100.0, 260.0];
const LEFT: f64 = 64.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 20.0;
const BELOW: f64 = 36.0;

/// The least share of the drawing that memory must fill for the memory limit to be drawn in it.
const LEAST_SHARE: f64 = 0.3;

/// The memory after a number of steps.
struct Moment {
    steps: u64,
    resident: Option<Bytes>,
    held: BTreeMap<String, Bytes>,
}

/// The samples of a fold, as many as a drawing needs, and the most of all.
#[derive(Default)]
pub struct Samples {
    moments: Vec<Moment>,
    /// The number of samples of which one is kept.
    every: usize,
    seen: usize,
    /// The most of each holder.
    pub most: BTreeMap<String, Bytes>,
    /// The most that was resident.
    pub peak: Option<Bytes>,
}

impl Samples {
    /// Adds the next one. Where the run has gone back, what was held in steps that are done again is left out of the drawing.
    pub fn add(&mut self, sample: Sample) {
        for (holder, held) in &sample.held_bytes {
            let most = self.most.entry(holder.clone()).or_insert(*held);
            *most = (*most).max(*held);
        }
        self.peak = self.peak.max(sample.peak_resident_bytes).max(sample.resident_bytes);
        self.moments.retain(|moment| moment.steps <= sample.steps);
        if self.moments.is_empty() {
            (self.every, self.seen) = (0, 0);
        }
        self.seen += 1;
        if !self.seen.is_multiple_of(self.every.max(1)) {
            return;
        }
        let Sample { steps, resident_bytes: resident, held_bytes: held, .. } = sample;
        self.moments.push(Moment { steps, resident, held });
        if self.moments.len() > MOST {
            let mut place = 0;
            self.moments.retain(|_| {
                place += 1;
                place % 2 == 0
            });
            self.every = self.every.max(1) * 2;
        }
    }

    /// Returns `true` if there are none.
    pub fn is_empty(&self) -> bool {
        self.most.is_empty()
    }

    /// Holders in the order in which they are drawn: parts of the plan as they are there, then all others.
    fn holders(&self, planned: &[String]) -> Vec<String> {
        let known = planned.iter().filter(|part| self.most.contains_key(*part)).cloned();
        let others = self.most.keys().filter(|holder| !planned.contains(holder)).cloned();
        known.chain(others).take(MOST_HOLDERS).collect()
    }
}

/// Returns the drawings of all folds, the first one open.
pub fn drawings(folds: &[Fold]) -> String {
    let mut html = String::new();
    let sampled = folds.iter().filter(|fold| !fold.history.samples.is_empty());
    for (place, fold) in sampled.enumerate() {
        let parts: Vec<String> = fold
            .record
            .iter()
            .flat_map(|record| record.planned.iter().map(|part| part.name.clone()))
            .collect();
        let samples = &fold.history.samples;
        let holders = samples.holders(&parts);
        // Writing to a string cannot fail.
        let _ = writeln!(
            html,
            "<details{}><summary>{}: memory over steps, by holder, and resident memory (black)</summary>{}<figure>{}</figure></details>",
            if place == 0 { " open" } else { "" },
            escaped(&fold.name()),
            legend(holders.iter().enumerate().map(|(place, holder)| (colour(place), holder.clone()))),
            drawn(samples, &holders, fold.history.plan.map(|[limit, _]| limit))
        );
    }
    html
}

fn colour(place: usize) -> &'static str {
    COLOURS[place % COLOURS.len()]
}

/// Areas upon each other, with the limit where it is near.
fn drawn(samples: &Samples, holders: &[String], limit: Option<Bytes>) -> String {
    let [width, height] = SIZE;
    let mib = |bytes: Bytes| bytes.0 as f64 / f64::from(1 << 20);
    let moments = &samples.moments;
    let of = |moment: &Moment, holder: &String| moment.held.get(holder).map_or(0.0, |held| mib(*held));
    let sums = moments.iter().map(|moment| holders.iter().map(|holder| of(moment, holder)).sum::<f64>());
    let resident = moments.iter().filter_map(|moment| moment.resident).map(mib);
    // Of the moments that are left out, the most is still said.
    let most = sums.chain(resident).chain(samples.peak.map(mib)).fold(0.0, f64::max);
    let near = limit.map(mib).filter(|limit| most >= LEAST_SHARE * limit);
    let y_axis = Axis::new([0.0, most].into_iter().chain(near), 4.0);
    let [first, last] =
        [moments.first(), moments.last()].map(|moment| moment.map_or(0, |moment| moment.steps));
    let x_axis = Axis::for_epochs(first, last, 6.0);
    let x = |steps: u64| LEFT + x_axis.share(steps as f64) * (width - LEFT - RIGHT);
    let y = |mib: f64| TOP + (1.0 - y_axis.share(mib)) * (height - TOP - BELOW);
    let mut drawing = Drawing::new(SIZE);
    let right = width - RIGHT;
    for (value, label) in y_axis.ticks() {
        let at = y(value);
        drawing.push(path(Path::from([LEFT, at]).across_to(right)).set("class", "grid"));
        drawing.push(text([LEFT - 6.0, at + 4.0], Anchor::End, &label));
    }
    for (steps, label) in x_axis.ticks() {
        let at = LEFT + x_axis.share(steps) * (right - LEFT);
        drawing.push(text([at, height - BELOW + 16.0], Anchor::Middle, &label));
    }
    drawing.push(text([(LEFT + right) / 2.0, height - 4.0], Anchor::Middle, "steps"));
    drawing.push(text([4.0, 12.0], Anchor::Start, "MiB"));
    let mut below = vec![0.0; moments.len()];
    for (place, holder) in holders.iter().enumerate() {
        let above: Vec<f64> =
            moments.iter().zip(&below).map(|(moment, below)| below + of(moment, holder)).collect();
        let corner = |(moment, mib): (&Moment, &f64)| [x(moment.steps), y(*mib)];
        let upper = moments.iter().zip(&above).map(corner);
        let lower = moments.iter().zip(&below).rev().map(corner);
        let most = samples.most.get(holder).map_or(String::new(), |most| format!(": {most} at most"));
        // Of a single moment an area has no width: it is drawn as a bar.
        let (stroke, stroke_width) = if moments.len() == 1 { (colour(place), 12.0) } else { ("#fff", 0.4) };
        let area = path(Path::through(upper.chain(lower)).closed()).set("fill", colour(place));
        let area = area.set("stroke", stroke).set("stroke-width", stroke_width);
        drawing.push(area.tooltip(&format!("{holder}{most}")));
        below = above;
    }
    let resident: Vec<[f64; 2]> =
        moments.iter().filter_map(|moment| Some([x(moment.steps), y(mib(moment.resident?))])).collect();
    if resident.len() > 1 {
        let curve = path(Path::through(resident)).set("fill", "none").set("stroke", "#1d232b");
        drawing.push(curve.set("stroke-width", 1.5).tooltip("resident"));
    }
    match (limit, near) {
        (Some(limit), Some(at)) => {
            let at = y(at);
            drawing.push(path(Path::from([LEFT, at]).across_to(right)).set("class", "mark"));
            let name = text([right, at - 4.0], Anchor::End, &format!("limit {limit}"));
            drawing.push(name.set("class", "marked"));
        }
        (Some(limit), None) => {
            let share = 100.0 * most / mib(limit).max(f64::MIN_POSITIVE);
            let words = format!("limit {limit}, of which the most is {share:.0} % ↑");
            drawing.push(text([width, 12.0], Anchor::End, &words).set("class", "marked"));
        }
        (None, _) => {}
    }
    drawing.in_page()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(steps: u64, arena: u64) -> Sample {
        Sample {
            steps,
            resident_bytes: Some(Bytes::mib(arena + 10)),
            held_bytes: [("arena".to_string(), Bytes::mib(arena)), ("a<b".to_string(), Bytes::mib(1))].into(),
            ..Sample::default()
        }
    }

    #[test]
    fn a_few_of_many_samples_are_drawn_with_the_largest_of_all() {
        let mut samples = Samples::default();
        for steps in 0..5000 {
            samples.add(sample(steps, if steps == 1234 { 99 } else { 7 }));
        }
        assert!((MOST / 2..=MOST).contains(&samples.moments.len()), "{}", samples.moments.len());
        assert!(samples.moments.is_sorted_by_key(|moment| moment.steps));
        assert_eq!((samples.most["arena"], samples.peak), (Bytes::mib(99), Some(Bytes::mib(109))));
        let svg = drawn(&samples, &samples.holders(&["arena".into()]), Some(Bytes::mib(128)));
        assert!(svg.contains("<title>arena: 99.0 MiB at most</title>") && svg.contains("a&lt;b"), "{svg}");
        assert!(svg.contains("limit 128.0 MiB</text>") && !svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn steps_that_are_done_again_are_drawn_once() {
        let mut samples = Samples::default();
        [3, 6, 9, 4, 8].into_iter().for_each(|steps| samples.add(sample(steps, 5)));
        let steps: Vec<u64> = samples.moments.iter().map(|moment| moment.steps).collect();
        assert_eq!(steps, [3, 4, 8]);
    }

    #[test]
    fn a_single_sample_is_still_a_drawing() {
        let mut samples = Samples::default();
        assert!(samples.is_empty());
        samples.add(sample(8, 5));
        let svg = drawn(&samples, &samples.holders(&[]), Some(Bytes::mib(4096)));
        assert!(
            svg.ends_with("</svg>") && !svg.contains("NaN") && svg.contains("of which the most is 0 %"),
            "{svg}"
        );
    }
}
