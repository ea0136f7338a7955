//! The same ops in the midst of a program: every operand is made by another node, and every result read by one.
//!
//! There, and not at the boundary, backends choose layouts, put results in the place of operands and fuse.

use std::collections::HashMap;

use plimsoll_graph::ops::{Add, DownsampleLabels, Dropout, LeakyRelu, WeightedSum};
use plimsoll_graph::{DType, Kind, Op, Program, Role, Shape, TensorId, TensorInfo};

use crate::{Case, ZEROS};

/// An op between the boundary and a volume; none of them changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Neighbour {
    /// A leaky ReLU of slope 1, in whatever layout.
    LeakyRelu,
    /// A dropout of nothing, in the layout of convolutions.
    Dropout,
}

struct Rewrite<'a> {
    old: &'a Program,
    new: Program,
    neighbour: Neighbour,
    /// The tensor of the new program for each tensor of the old one.
    now: HashMap<TensorId, TensorId>,
    zeros: usize,
}

/// The case with a node before each operand and behind each result.
pub(crate) fn between(case: &Case, neighbour: Neighbour) -> Case {
    let old = &case.program;
    let new = Program::new(old.name.clone());
    let mut of = Rewrite { old, new, neighbour, now: HashMap::new(), zeros: 0 };
    for id in old.ids() {
        let role = old.tensor(id).role;
        if role == Role::Input || role.is_persistent() {
            let outside = of.new.declare(old.tensor(id).clone());
            let inside = if role == Role::Input { of.unchanged(outside) } else { None };
            of.now.insert(id, inside.unwrap_or(outside));
        }
    }
    for node in &old.nodes {
        let inputs: Vec<TensorId> = node.inputs.iter().map(|id| of.now[id]).collect();
        let made = of.push(node.op.clone(), &inputs);
        for (id, made) in node.outputs.iter().zip(made) {
            of.now.insert(*id, made);
        }
    }
    for id in old.ids().filter(|id| old.tensor(*id).role == Role::Output) {
        let inside = of.now[&id];
        let outside = of.unchanged(inside).unwrap_or(inside);
        of.new.mark_output(outside, old.tensor(id).name.clone());
    }
    let name = format!("{}, between {neighbour:?}", case.name);
    Case { name, program: of.new, ..case.clone() }
}

impl Rewrite<'_> {
    fn push(&mut self, op: impl Into<Op>, inputs: &[TensorId]) -> Vec<TensorId> {
        self.new.push(op, inputs).unwrap_or_else(|error| panic!("{}: {error}", self.old.name))
    }

    fn zeros(&mut self, like: TensorInfo) -> TensorId {
        self.zeros += 1;
        let name = format!("{ZEROS} {}", self.zeros);
        self.new.declare(TensorInfo { name, role: Role::Input, ..like })
    }

    /// The same numbers, made by a node; none for f64 tables, which are results of some ops and read by their gradients only.
    fn unchanged(&mut self, id: TensorId) -> Option<TensorId> {
        let tensor = self.new.tensor(id).clone();
        let made = match tensor.kind {
            Kind::Volume if self.neighbour == Neighbour::LeakyRelu => {
                self.push(LeakyRelu { slope: 1.0 }, &[id])
            }
            Kind::Volume => {
                let table = self.new.find(ZEROS).unwrap_or_else(|| {
                    let shape = Shape(vec![plimsoll_graph::ops::NOISE]);
                    self.new.input(ZEROS, shape, Kind::Table)
                });
                self.push(Dropout { p: 0.0, layer: 0, whole_channels: false }, &[id, table])
            }
            Kind::Labels => self.push(DownsampleLabels { output: tensor.shape.spatial() }, &[id]),
            Kind::Table if tensor.dtype == DType::F32 => self.push(WeightedSum { weights: vec![1.0] }, &[id]),
            Kind::Table => return None,
            Kind::Weights | Kind::Channels | Kind::Statistics => {
                let zeros = self.zeros(tensor);
                self.push(Add, &[id, zeros])
            }
        };
        made.first().copied()
    }
}
