//! The layouts of the tensors of a set of programs.
//!
//! Each op says what its kernels can read and write ([`VolumeRule`]). The remaining freedom is used as follows: a
//! volume that is copied from or to the host, or is not used, is stored in rows, as on the host, if its kernels support
//! that; every other volume is stored in blocks. The layout of weights follows from the convolutions that use them; all
//! tensors that are combined element by element with weights (their gradients, moments) have the same layout, in all
//! programs that share them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use plimsoll_graph::{DType, Kind, Node, Op, Program, Role, TensorId};
use plimsoll_plan::Unsupported;

use super::rule::VolumeRule;
use super::{Layout, VolumeLayout, WeightBlocks};
use crate::lower::{NodeOperands, unsupported};
use crate::ops;

/// The layouts of all tensors of each program, or the layouts of one program whose volumes have the layouts `pinned`.
pub(crate) fn assign(
    programs: &[Program],
    pinned: Option<&[VolumeLayout]>,
) -> Result<Vec<Vec<Layout>>, Unsupported> {
    let mut weights = WeightClasses::new(programs);
    let volumes: Vec<Vec<VolumeLayout>> = match pinned {
        Some(pinned) => vec![pinned.to_vec(); programs.len()],
        None => Volumes::solve(programs, &weights)?,
    };
    weights.see_all(programs, &volumes)?;
    let mut all = Vec::with_capacity(programs.len());
    for (at, (program, volumes)) in programs.iter().zip(&volumes).enumerate() {
        let mut layouts = Vec::with_capacity(program.tensors.len());
        for id in program.ids() {
            layouts.push(match program.tensor(id).kind {
                Kind::Volume if volumes[id.index()] == VolumeLayout::Blocks => Layout::Blocks,
                Kind::Volume | Kind::Labels | Kind::Table => Layout::Given,
                Kind::Channels => Layout::Channels,
                Kind::Statistics => Layout::Statistics,
                Kind::Weights => weights.layout(program, at, id)?,
            });
        }
        all.push(layouts);
    }
    Ok(all)
}

/// A demand on the layouts of some volumes.
#[derive(Clone, Copy, Debug)]
enum Demand {
    /// All have this layout.
    Are(VolumeLayout),
    /// All have one layout.
    Alike,
    /// At most one of the two is stored in rows.
    NotBothRows,
}

/// A demand on volumes, by their numbers, and the op that it comes from.
#[derive(Debug)]
struct Constraint {
    op: &'static str,
    demand: Demand,
    volumes: Vec<usize>,
}

/// The layouts of all programs' volumes as far as they are known. All are solved together, as weights that programs share must be
/// read from and lead to volumes of the same layouts in all of them.
struct Volumes<'a> {
    numbers: &'a Numbers<'a>,
    constraints: Vec<Constraint>,
    /// The constraints of each volume.
    of: Vec<Vec<usize>>,
    known: Vec<Option<VolumeLayout>>,
}

impl Volumes<'_> {
    /// Decides all. Tensors that are no volumes count as rows.
    fn solve(
        programs: &[Program],
        weights: &WeightClasses<'_>,
    ) -> Result<Vec<Vec<VolumeLayout>>, Unsupported> {
        let numbers = &weights.numbers;
        let mut constraints = Vec::new();
        for (at, program) in programs.iter().enumerate() {
            for node in &program.nodes {
                constrain(numbers, at, program, node, &mut constraints);
            }
        }
        constraints.extend(weights.constraints(programs));
        let mut of = vec![Vec::new(); numbers.count];
        for (at, constraint) in constraints.iter().enumerate() {
            constraint.volumes.iter().for_each(|volume| of[*volume].push(at));
        }
        let known = vec![None; numbers.count];
        let mut volumes = Volumes { numbers, constraints, of, known };
        volumes.propagate((0..volumes.constraints.len()).collect(), &mut Vec::new())?;
        let read: Vec<HashSet<TensorId>> = programs
            .iter()
            .map(|program| program.nodes.iter().flat_map(|node| node.inputs.iter().copied()).collect())
            .collect();
        // What nobody reads, like a head that no loss counts, needs no blocks either.
        let is_boundary = |id: &TensorId, at: usize| {
            matches!(programs[at].tensor(*id).role, Role::Input | Role::Output) || !read[at].contains(id)
        };
        let orders = [
            (true, [VolumeLayout::Rows, VolumeLayout::Blocks]),
            (false, [VolumeLayout::Blocks, VolumeLayout::Rows]),
        ];
        for (boundary, order) in orders {
            for (at, program) in programs.iter().enumerate() {
                let open = |id: &TensorId| program.tensor(*id).kind == Kind::Volume;
                let ids = program.ids().filter(|id| open(id) && is_boundary(id, at) == boundary);
                for id in ids {
                    volumes.decide(volumes.numbers.number(at, id), order)?;
                }
            }
        }
        let layouts = |(at, program): (usize, &Program)| {
            let layout = |id| volumes.known[volumes.numbers.number(at, id)].unwrap_or(VolumeLayout::Rows);
            program.ids().map(layout).collect()
        };
        Ok(programs.iter().enumerate().map(layouts).collect())
    }

    /// Gives a volume that is still open the first layout, or where that is impossible the second.
    fn decide(&mut self, volume: usize, [first, second]: [VolumeLayout; 2]) -> Result<(), Unsupported> {
        if self.known[volume].is_some() {
            return Ok(());
        }
        let mut followed = vec![volume];
        self.known[volume] = Some(first);
        if self.propagate(self.of[volume].clone(), &mut followed).is_ok() {
            return Ok(());
        }
        followed.into_iter().for_each(|volume| self.known[volume] = None);
        self.known[volume] = Some(second);
        self.propagate(self.of[volume].clone(), &mut Vec::new())
    }

    /// Draws all conclusions from some constraints; adds what becomes known to `followed`.
    fn propagate(&mut self, mut open: Vec<usize>, followed: &mut Vec<usize>) -> Result<(), Unsupported> {
        while let Some(at) = open.pop() {
            let Constraint { demand, volumes, .. } = &self.constraints[at];
            let known = |volume: &usize| self.known[*volume];
            let conclusions: Vec<(usize, VolumeLayout)> = match (demand, &volumes[..]) {
                (Demand::Are(layout), all) => all.iter().map(|volume| (*volume, *layout)).collect(),
                (Demand::Alike, all) => match all.iter().find_map(known) {
                    Some(layout) => all.iter().map(|volume| (*volume, layout)).collect(),
                    None => Vec::new(),
                },
                (Demand::NotBothRows, [a, b]) => match (known(a), known(b)) {
                    (Some(VolumeLayout::Rows), _) => vec![(*b, VolumeLayout::Blocks)],
                    (_, Some(VolumeLayout::Rows)) => vec![(*a, VolumeLayout::Blocks)],
                    _ => Vec::new(),
                },
                (Demand::NotBothRows, _) => Vec::new(),
            };
            for (volume, layout) in conclusions {
                match self.known[volume] {
                    None => {
                        self.known[volume] = Some(layout);
                        followed.push(volume);
                        open.extend(&self.of[volume]);
                    }
                    Some(known) if known == layout => {}
                    Some(_) => {
                        let tensor = self.numbers.name(volume);
                        let why = format!("`{tensor}` would have to lie in rows and in blocks of channels");
                        return Err(unsupported(self.constraints[at].op, why));
                    }
                }
            }
        }
        Ok(())
    }
}

/// The constraints of a node.
fn constrain(
    numbers: &Numbers<'_>,
    at: usize,
    program: &Program,
    node: &Node,
    constraints: &mut Vec<Constraint>,
) {
    let op = node.op.rule().name();
    let volumes = |ids: &[TensorId]| -> Vec<usize> {
        let volumes = ids.iter().filter(|id| program.tensor(**id).kind == Kind::Volume);
        volumes.map(|id| numbers.number(at, *id)).collect()
    };
    let mut add = |demand: Demand, volumes: Vec<usize>| constraints.push(Constraint { op, demand, volumes });
    let all = || [volumes(&node.inputs), volumes(&node.outputs)].concat();
    let rule = ops::lowering(&node.op).volumes(&NodeOperands { program, node });
    // Features of bf16 lie in blocks; logits may lie in rows of it.
    let may_be_rows = matches!(rule, VolumeRule::Conv { point: true, .. });
    let made = if may_be_rows { &[][..] } else { &node.outputs };
    for id in node.inputs.iter().chain(made) {
        if program.tensor(*id).dtype == DType::Bf16 {
            add(Demand::Are(VolumeLayout::Blocks), volumes(&[*id]));
        }
    }
    match rule {
        VolumeRule::Any => {}
        VolumeRule::Rows => add(Demand::Are(VolumeLayout::Rows), all()),
        VolumeRule::Blocks => add(Demand::Are(VolumeLayout::Blocks), all()),
        VolumeRule::Alike => add(Demand::Alike, all()),
        VolumeRule::Transpose { point } => {
            add(Demand::Are(VolumeLayout::Blocks), volumes(&node.outputs));
            if !point {
                add(Demand::Are(VolumeLayout::Blocks), volumes(&node.inputs));
            }
        }
        VolumeRule::Conv { sources, image, point } => {
            let (sources, rest) = node.inputs.split_at(sources);
            // The result, or of the gradient by weights the gradient of the result.
            let (sources, other) = (volumes(sources), [volumes(rest), volumes(&node.outputs)].concat());
            let both = vec![sources[0], other[0]];
            let of_sources = if image { Demand::Alike } else { Demand::Are(VolumeLayout::Blocks) };
            add(of_sources, sources);
            if !point {
                add(Demand::Are(VolumeLayout::Blocks), other);
            }
            add(Demand::NotBothRows, both);
        }
    }
}

/// A number for each tensor of several programs.
struct Numbers<'a> {
    programs: &'a [Program],
    /// The number of a program's first tensor.
    first: Vec<usize>,
    count: usize,
}

impl<'a> Numbers<'a> {
    fn new(programs: &'a [Program]) -> Numbers<'a> {
        let mut count = 0;
        let first = programs.iter().map(|program| {
            count += program.tensors.len();
            count - program.tensors.len()
        });
        let first = first.collect();
        Numbers { programs, first, count }
    }

    fn number(&self, program: usize, id: TensorId) -> usize {
        self.first[program] + id.index()
    }

    fn name(&self, number: usize) -> &'a str {
        let at = self.first.partition_point(|first| *first <= number).saturating_sub(1);
        &self.programs[at].tensors[number - self.first[at]].name
    }
}

/// The layout that the convolutions which use some weights ask for.
#[derive(Clone, Debug, Default)]
struct WeightUse {
    /// Channels of each source.
    sources: Option<Vec<usize>>,
    /// All inputs.
    inputs: usize,
    /// First channel and number of those that transposed convolutions make, each of one source.
    parts: BTreeSet<[usize; 2]>,
    from: Option<VolumeLayout>,
    to: Option<VolumeLayout>,
}

/// A convolution's weights, and the volumes that they are applied to.
struct Applied<'a> {
    weights: TensorId,
    sources: &'a [TensorId],
    result: TensorId,
}

impl<'a> Applied<'a> {
    fn find(node: &'a Node) -> Option<Applied<'a>> {
        match &node.op {
            Op::Conv(conv) => {
                let (sources, rest) = node.inputs.split_at(conv.sources(node.inputs.len()));
                Some(Applied { weights: rest[0], sources, result: node.outputs[0] })
            }
            Op::ConvWeightGrad(_) => {
                let (result, sources) = node.inputs.split_last()?;
                Some(Applied { weights: node.outputs[0], sources, result: *result })
            }
            Op::ConvTranspose(_) => {
                let (weights, result) = (node.inputs[1], node.inputs[0]);
                Some(Applied { weights, sources: &node.outputs, result })
            }
            _ => None,
        }
    }
}

/// Weights that lie alike, in all programs.
struct WeightClasses<'a> {
    numbers: Numbers<'a>,
    /// The class of each tensor of each program, by following from one to the next.
    parent: Vec<usize>,
    uses: HashMap<usize, WeightUse>,
    made: HashMap<usize, Layout>,
}

impl<'a> WeightClasses<'a> {
    fn new(programs: &'a [Program]) -> WeightClasses<'a> {
        let numbers = Numbers::new(programs);
        let parent = (0..numbers.count).collect();
        let mut classes = WeightClasses { numbers, parent, uses: HashMap::new(), made: HashMap::new() };
        let mut by_name: HashMap<&str, usize> = HashMap::new();
        for (at, program) in programs.iter().enumerate() {
            let is_weights = |id: &TensorId| program.tensor(*id).kind == Kind::Weights;
            for id in program.ids().filter(is_weights) {
                let (tensor, number) = (program.tensor(id), classes.numbers.number(at, id));
                if tensor.role.is_persistent() {
                    let known = *by_name.entry(&tensor.name).or_insert(number);
                    classes.join(known, number);
                }
            }
            for node in &program.nodes {
                if !ops::lowering(&node.op).combines_weights() {
                    continue;
                }
                let all = node.inputs.iter().chain(&node.outputs).filter(|id| is_weights(id));
                let numbers: Vec<usize> = all.map(|id| classes.numbers.number(at, *id)).collect();
                numbers.windows(2).for_each(|pair| classes.join(pair[0], pair[1]));
            }
        }
        classes
    }

    /// The sources of all convolutions with the same weights lie alike, and so do the results.
    fn constraints(&self, programs: &[Program]) -> Vec<Constraint> {
        let mut by_class: BTreeMap<usize, [Vec<usize>; 2]> = BTreeMap::new();
        for (at, program) in programs.iter().enumerate() {
            for applied in program.nodes.iter().filter_map(Applied::find) {
                let [sources, results] =
                    by_class.entry(self.root(self.numbers.number(at, applied.weights))).or_default();
                sources.extend(applied.sources.iter().map(|id| self.numbers.number(at, *id)));
                results.push(self.numbers.number(at, applied.result));
            }
        }
        let alike = |volumes| Constraint { op: "conv", demand: Demand::Alike, volumes };
        by_class.into_values().flatten().map(alike).collect()
    }

    /// Notes how all convolutions would have their weights.
    fn see_all(&mut self, programs: &[Program], volumes: &[Vec<VolumeLayout>]) -> Result<(), Unsupported> {
        for (at, (program, volumes)) in programs.iter().zip(volumes).enumerate() {
            for node in &program.nodes {
                self.see(at, program, volumes, node)?;
            }
        }
        Ok(())
    }

    fn root(&self, mut number: usize) -> usize {
        while self.parent[number] != number {
            number = self.parent[number];
        }
        number
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        // The lesser is the root, so that the order of joining does not matter.
        self.parent[a.max(b)] = a.min(b);
    }

    /// Notes how a convolution would have its weights.
    fn see(
        &mut self,
        at: usize,
        program: &Program,
        volumes: &[VolumeLayout],
        node: &Node,
    ) -> Result<(), Unsupported> {
        let Some(Applied { weights, sources, result }) = Applied::find(node) else { return Ok(()) };
        let (from, to) = (volumes[sources[0].index()], volumes[result.index()]);
        let (sources, part, inputs) = match &node.op {
            Op::ConvTranspose(conv) => {
                let inputs = program.shape(weights).dim(1) * conv.groups;
                (None, Some([conv.first_channel, conv.channels]), inputs)
            }
            _ => {
                let channels: Vec<usize> = sources.iter().map(|id| program.shape(*id).channels()).collect();
                let inputs = channels.iter().sum();
                (Some(channels), None, inputs)
            }
        };
        let root = self.root(self.numbers.number(at, weights));
        let of = self.uses.entry(root).or_default();
        let conflict = || {
            let why = format!("its weights `{}` are used in two ways", program.tensor(weights).name);
            unsupported(node.op.rule().name(), why)
        };
        if of.from.is_some_and(|known| known != from) || of.to.is_some_and(|known| known != to) {
            return Err(conflict());
        }
        (of.from, of.to) = (Some(from), Some(to));
        if let Some(sources) = sources {
            if of.sources.as_ref().is_some_and(|known| *known != sources) {
                return Err(conflict());
            }
            of.sources = Some(sources);
        }
        of.inputs = inputs;
        of.parts.extend(part);
        Ok(())
    }

    /// The layout of a program's weights.
    fn layout(&mut self, program: &Program, at: usize, id: TensorId) -> Result<Layout, Unsupported> {
        let root = self.root(self.numbers.number(at, id));
        if let Some(known) = self.made.get(&root) {
            return Ok(known.clone());
        }
        let Some(WeightUse { sources, inputs, parts, from: Some(from), to: Some(to) }) =
            self.uses.remove(&root)
        else {
            // No convolution uses them: they are numbers like any other.
            return Ok(Layout::Given);
        };
        let shape = program.shape(id);
        let sources = sources.unwrap_or_else(|| {
            // Transposed convolutions alone: all inputs, cut where those that one of them wants begin or end.
            let ends: BTreeSet<usize> = parts
                .iter()
                .flat_map(|[first, channels]| [*first, first + channels])
                .chain([0, inputs])
                .collect();
            let ends: Vec<usize> = ends.into_iter().collect();
            ends.windows(2).map(|pair| pair[1] - pair[0]).collect()
        });
        let mut end = 0;
        let whole: BTreeSet<[usize; 2]> = sources
            .iter()
            .map(|channels| {
                end += channels;
                [end - channels, *channels]
            })
            .collect();
        if let Some([first, channels]) = parts.difference(&whole).next() {
            let name = &program.tensor(id).name;
            let why = format!("{channels} channels of `{name}` from {first} on are not those of one source");
            return Err(unsupported("conv_transpose", why));
        }
        let made = match to {
            VolumeLayout::Rows => Layout::HeadWeights(sources),
            VolumeLayout::Blocks => {
                let groups = sources.iter().sum::<usize>() / shape.dim(1);
                Layout::Weights(Arc::new(WeightBlocks::new(shape.dim(0), &sources, groups, from)))
            }
        };
        self.made.insert(root, made.clone());
        Ok(made)
    }
}
