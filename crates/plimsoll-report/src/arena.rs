//! A drawing of an arena: time across, addresses up, a box for each value.

use plimsoll_graph::{Kind, Op, Role, TensorId, TensorInfo};
use plimsoll_memory::Bytes;
use plimsoll_plan::explain::{held_bytes, spans};
use plimsoll_plan::{Block, Plan, ProgramId};
use plimsoll_run::RunPlan;

use crate::svg::{Anchor, Drawing, line, rect, text};

const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 620.0;
const LEFT: f64 = 90.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 70.0;
const RIGHT: f64 = 20.0;
/// Boxes that would be thinner are left out.
const THINNEST: f64 = 0.4;

/// The kinds of tensors that share a colour.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Colour {
    Persistent,
    Input,
    Feature,
    Recomputed,
    Gradient,
    Small,
    Scratch,
}

impl Colour {
    const ALL: [Colour; 7] = [
        Colour::Persistent,
        Colour::Input,
        Colour::Feature,
        Colour::Recomputed,
        Colour::Gradient,
        Colour::Small,
        Colour::Scratch,
    ];

    /// Its fill and its meaning. The colours are distinguishable with colour-blind eyes (after Okabe and Ito).
    fn legend(self) -> (&'static str, &'static str) {
        match self {
            Colour::Persistent => ("#8c8c8c", "parameters, moments"),
            Colour::Input => ("#f0e442", "inputs"),
            Colour::Feature => ("#56b4e9", "features"),
            Colour::Recomputed => ("#0072b2", "recomputed features"),
            Colour::Gradient => ("#e69f00", "gradients"),
            Colour::Small => ("#009e73", "statistics, tables"),
            Colour::Scratch => ("#cc79a7", "scratch of kernels"),
        }
    }
}

/// Draws the arena of a run while loss and gradients of a micro-batch are computed, as SVG: the program `fullest` of its plan.
pub fn draw_step(plan: &Plan, fullest: ProgramId, numbers: &RunPlan) -> Drawing {
    let [d, h, w] = numbers.patch_size;
    let title = format!(
        "{}: patch {d}×{h}×{w}, {} at a time; arena {}, lower bound {}, {:+.1} % operations for recomputation",
        plan.program(fullest).name,
        numbers.micro_batch,
        numbers.arena_bytes,
        numbers.arena_lower_bound_bytes,
        100.0 * numbers.recompute_flops_fraction
    );
    draw(plan, fullest, &title)
}

/// Draws the arena while a program of a plan runs, as SVG.
fn draw(plan: &Plan, id: ProgramId, title: &str) -> Drawing {
    let (program, schedule) = (plan.program(id), plan.schedule(id));
    let lowered = &plan.lowered[id.index()];
    let nodes: Vec<_> = schedule.launches.iter().map(|launch| &lowered.nodes[launch.node]).collect();
    // Time at the start of each launch, and at the end of the last.
    let mut times = vec![0.0];
    for node in &nodes {
        times.push(times[times.len() - 1] + node.seconds);
    }
    let total = times[times.len() - 1].max(f64::MIN_POSITIVE);
    let x = |time: f64| LEFT + time / total * (WIDTH - LEFT - RIGHT);
    let y = |bytes: usize| {
        let share = bytes as f64 / plan.arena_bytes.max(1) as f64;
        HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    };
    let mut drawing =
        Drawing::scalable([WIDTH, HEIGHT]).set("font-family", "sans-serif").set("font-size", 12.0);
    drawing = drawing.on_white();
    let mut rectangle = |from: f64, to: f64, block: Block, colour: Colour, name: &str| {
        let (low, high) = (y(block.offset), y(block.end()));
        let (width, height) = (to - from, low - high);
        if width < THINNEST || height < THINNEST {
            return;
        }
        let area = rect([from, high], [width, height]).set("fill", colour.legend().0);
        let area = area.set("stroke", "#ffffff").set("stroke-width", 0.4);
        drawing.push(area.tooltip(&format!("{name} {}", Bytes::from_len(block.bytes))));
    };
    for (tensor, block) in &plan.persistent {
        rectangle(x(0.0), x(total), *block, Colour::Persistent, &tensor.name);
    }
    // Gradients begin where the gradient of the loss is set.
    let is_fill = |covered: &usize| matches!(program.nodes[*covered].op, Op::Fill(_));
    let backward = nodes.iter().position(|node| node.covers.iter().any(is_fill)).unwrap_or(nodes.len());
    let mut made_at = vec![0; schedule.places.len()];
    for (at, launch) in schedule.launches.iter().enumerate() {
        launch.outputs.iter().for_each(|id| made_at[id.index()] = at);
    }
    for (index, span) in spans(plan, id).into_iter().enumerate() {
        let value = TensorId(index as u32);
        let (Some(span), Some(block)) = (span, schedule.place(value)) else { continue };
        let Some(origin) = schedule.origin(value) else { continue };
        let tensor = program.tensor(origin);
        let colour = colour(tensor, value != origin, made_at[index] > backward);
        rectangle(x(times[span.start]), x(times[span.end + 1]), block, colour, &tensor.name);
    }
    for (at, (launch, node)) in schedule.launches.iter().zip(&nodes).enumerate() {
        rectangle(x(times[at]), x(times[at + 1]), launch.scratch, Colour::Scratch, &node.name);
    }
    let held = held_bytes(plan, id);
    let peak = (0..held.len()).rev().max_by_key(|at| held[*at]).unwrap_or(0);
    let at_peak = x((times[peak] + times[peak + 1]) / 2.0);
    let peak_bytes = plan.persistent_bytes() + held.get(peak).copied().unwrap_or(0);
    let mark = line([at_peak, TOP - 8.0], [at_peak, HEIGHT - BOTTOM]);
    drawing.push(mark.set("stroke", "#d00000").set("stroke-dasharray", "4 3"));
    let anchor = if at_peak > WIDTH / 2.0 { Anchor::End } else { Anchor::Start };
    let words = format!("peak: {} held at launch {peak} of {}", Bytes::from_len(peak_bytes), nodes.len());
    drawing.push(text([at_peak, TOP - 12.0], anchor, &words).set("fill", "#d00000"));
    axes(&mut drawing, plan.arena_bytes, total, y);
    drawing.push(text([LEFT, 22.0], Anchor::Start, title).set("font-size", 16.0));
    let mut at = LEFT;
    for colour in Colour::ALL {
        let (fill, what) = colour.legend();
        drawing.push(rect([at, HEIGHT - 24.0], [12.0, 12.0]).set("fill", fill));
        drawing.push(text([at + 16.0, HEIGHT - 14.0], Anchor::Start, what));
        at += 36.0 + 7.0 * what.len() as f64;
    }
    drawing
}

fn axes(drawing: &mut Drawing, arena: usize, seconds: f64, y: impl Fn(usize) -> f64) {
    for quarter in 0..=4 {
        let bytes = arena / 4 * quarter;
        let at = y(bytes);
        drawing.push(line([LEFT - 5.0, at], [LEFT, at]).set("stroke", "#000000"));
        drawing.push(text([LEFT - 8.0, at + 4.0], Anchor::End, &Bytes::from_len(bytes).to_string()));
        let across = LEFT + (WIDTH - LEFT - RIGHT) * quarter as f64 / 4.0;
        let anchor = if quarter == 4 { Anchor::End } else { Anchor::Middle };
        let words = format!("{:.3} s", seconds * quarter as f64 / 4.0);
        drawing.push(text([across, HEIGHT - BOTTOM + 16.0], anchor, &words));
    }
}

fn colour(tensor: &TensorInfo, is_copy: bool, is_backward: bool) -> Colour {
    let is_volume = tensor.kind == Kind::Volume;
    match tensor.role {
        Role::Input => Colour::Input,
        _ if is_copy => Colour::Recomputed,
        _ if is_backward && (is_volume || tensor.kind == Kind::Weights) => Colour::Gradient,
        _ if is_volume => Colour::Feature,
        _ => Colour::Small,
    }
}
