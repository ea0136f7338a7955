//! From which node to which each value must be held.

use plimsoll_graph::{Program, Role, TensorId};

use crate::{Launch, ProgramPlan};

/// A stretch of nodes, both ends included, for which some bytes must be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first node.
    pub start: usize,
    /// The last node.
    pub end: usize,
}

impl Span {
    /// Returns `true` if two stretches have a node in common.
    pub fn meets(&self, other: &Span) -> bool {
        self.start <= other.end && other.start <= self.end
    }
}

/// One stretch of memory: values that follow one another in the same place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// The values, in order of time.
    pub tensors: Vec<TensorId>,
    /// From the first value's birth to the last one's end.
    pub span: Span,
    /// The bytes of each value.
    pub bytes: usize,
}

/// The input of a liveness analysis: the tensors each node touches, in order.
#[derive(Clone, Debug)]
pub struct Flow<'a> {
    /// In order of execution.
    pub nodes: Vec<FlowNode<'a>>,
    /// All values, by their ids.
    pub values: Vec<FlowValue>,
}

/// The tensors a node touches.
#[derive(Clone, Copy, Debug)]
pub struct FlowNode<'a> {
    /// The tensors it reads.
    pub inputs: &'a [TensorId],
    /// The tensors it writes.
    pub outputs: &'a [TensorId],
    /// Pairs (result, operand) that may share one place; see [`LoweredNode::in_place`](crate::LoweredNode::in_place).
    pub in_place: &'a [(usize, usize)],
}

/// The role of a value in its program, and its size.
#[derive(Clone, Copy, Debug)]
pub struct FlowValue {
    /// Its role.
    pub role: Role,
    /// Its size in bytes.
    pub bytes: usize,
}

impl<'a> Flow<'a> {
    /// The flow of a schedule of a program, in which no launch works in place.
    pub fn new(program: &Program, plan: &'a ProgramPlan) -> Flow<'a> {
        let node =
            |launch: &'a Launch| FlowNode { inputs: &launch.inputs, outputs: &launch.outputs, in_place: &[] };
        let own = program.tensors.iter().map(|tensor| tensor.role);
        let copies = plan.copies.iter().map(|id| program.tensor(*id).role);
        Flow {
            nodes: plan.launches.iter().map(node).collect(),
            values: own.chain(copies).map(|role| FlowValue { role, bytes: 0 }).collect(),
        }
    }

    /// The live range of each value, in nodes; none for parameters and states, and for values that no node touches.
    /// Inputs are live from the first node on, outputs until the last.
    pub fn spans(&self) -> Vec<Option<Span>> {
        let last = self.nodes.len().saturating_sub(1);
        let mut spans: Vec<Option<Span>> = self
            .values
            .iter()
            .map(|value| (value.role == Role::Input).then_some(Span { start: 0, end: 0 }))
            .collect();
        for (place, node) in self.nodes.iter().enumerate() {
            for id in node.inputs.iter().chain(node.outputs) {
                let role = self.values[id.index()].role;
                if role.is_persistent() {
                    continue;
                }
                let end = if role == Role::Output { last } else { place };
                spans[id.index()].get_or_insert(Span { start: place, end }).end = end;
            }
        }
        spans
    }

    /// The buffers of all values but parameters and states, which live for ever. A result takes the place of an
    /// operand that ends with the node, where the node may work in place and the sizes agree.
    pub fn buffers(&self) -> Vec<Buffer> {
        let (stretches, of_value) = self.stretches();
        let mut buffers: Vec<Buffer> = stretches
            .iter()
            .map(|(span, bytes)| Buffer { tensors: Vec::new(), span: *span, bytes: *bytes })
            .collect();
        // Values of one buffer follow one another in order of time.
        let inputs = (0..self.values.len()).map(|index| TensorId(index as u32));
        let inputs = inputs.filter(|id| self.values[id.index()].role == Role::Input);
        for id in inputs.chain(self.nodes.iter().flat_map(|node| node.outputs.iter().copied())) {
            if let Some(buffer) = of_value[id.index()] {
                buffers[buffer].tensors.push(id);
            }
        }
        buffers
    }

    /// The buffers without the names of their values, and the buffer of each value.
    pub(crate) fn stretches(&self) -> (Vec<(Span, usize)>, Vec<Option<usize>>) {
        let spans = self.spans();
        let mut stretches: Vec<(Span, usize)> = Vec::with_capacity(self.values.len());
        let mut of_value: Vec<Option<usize>> = vec![None; self.values.len()];
        for (index, (value, span)) in self.values.iter().zip(&spans).enumerate() {
            if let (Role::Input, Some(span)) = (value.role, span) {
                of_value[index] = Some(stretches.len());
                stretches.push((*span, value.bytes));
            }
        }
        for (place, node) in self.nodes.iter().enumerate() {
            for (result, id) in node.outputs.iter().enumerate() {
                let Some(span) = spans[id.index()] else { continue };
                let bytes = self.values[id.index()].bytes;
                let is_taken = |buffer: usize| {
                    node.outputs[..result].iter().any(|other| of_value[other.index()] == Some(buffer))
                };
                let shared = node
                    .in_place
                    .iter()
                    .filter(|(of, _)| *of == result)
                    .filter_map(|(_, operand)| node.inputs.get(*operand))
                    .filter(|operand| {
                        let value = self.values[operand.index()];
                        value.role == Role::Intermediate
                            && spans[operand.index()].is_some_and(|span| span.end == place)
                            && value.bytes == bytes
                            && node.inputs.iter().filter(|input| input == operand).count() == 1
                    })
                    .filter_map(|operand| of_value[operand.index()])
                    .find(|buffer| !is_taken(*buffer));
                // A state that is updated in place has no span, so every result here is a new value.
                of_value[id.index()] = Some(match shared {
                    Some(buffer) => {
                        stretches[buffer].0.end = span.end;
                        buffer
                    }
                    None => {
                        stretches.push((span, bytes));
                        stretches.len() - 1
                    }
                });
            }
        }
        (stretches, of_value)
    }
}
