//! From which node to which each value must be held.

use plimsoll_graph::{Program, Role, TensorId};

/// A stretch of nodes, both ends included, for which some bytes must be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first node.
    pub start: usize,
    /// The last node.
    pub end: usize,
}

impl Span {
    /// Whether two stretches have a node in common.
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
    /// Of each of the values.
    pub bytes: usize,
}

/// The buffers of a program's tensors, but for parameters and states, which live for ever. With `in_place`, a result takes
/// the place of an operand that ends with the node, where the op allows it and the sizes agree.
pub fn buffers(program: &Program, bytes: impl Fn(TensorId) -> usize, in_place: bool) -> Vec<Buffer> {
    let spans = spans(program);
    let mut buffers: Vec<Buffer> = Vec::new();
    let mut buffer_of: Vec<Option<usize>> = vec![None; program.tensors.len()];
    let start = |id: TensorId, buffers: &mut Vec<Buffer>, buffer_of: &mut Vec<Option<usize>>| {
        if let Some(span) = spans[id.index()] {
            buffer_of[id.index()] = Some(buffers.len());
            buffers.push(Buffer { tensors: vec![id], span, bytes: bytes(id) });
        }
    };
    for id in program.with_role(Role::Input) {
        start(id, &mut buffers, &mut buffer_of);
    }
    for (place, node) in program.nodes.iter().enumerate() {
        let mut taken: Vec<TensorId> = Vec::new();
        for (result, id) in node.outputs.iter().enumerate() {
            let Some(span) = spans[id.index()] else { continue };
            let fits = |operand: &TensorId| {
                program.tensor(*operand).role == Role::Intermediate
                    && spans[operand.index()].is_some_and(|span| span.end == place)
                    && bytes(*operand) == bytes(*id)
                    && node.inputs.iter().filter(|input| *input == operand).count() == 1
            };
            let operand = node
                .op
                .rule()
                .in_place()
                .into_iter()
                .filter(|(of, _)| in_place && *of == result)
                .filter_map(|(_, operand)| node.inputs.get(operand).copied())
                .find(|operand| fits(operand) && !taken.contains(operand));
            let shared = operand.and_then(|operand| buffer_of[operand.index()].map(|b| (operand, b)));
            match shared {
                Some((operand, buffer)) => {
                    taken.push(operand);
                    buffer_of[id.index()] = Some(buffer);
                    buffers[buffer].tensors.push(*id);
                    buffers[buffer].span.end = span.end;
                }
                None => start(*id, &mut buffers, &mut buffer_of),
            }
        }
    }
    buffers
}

/// From which node to which each tensor is held; none for parameters and states, and for tensors that no node touches.
/// Inputs are there from the first node on, outputs until the last.
pub fn spans(program: &Program) -> Vec<Option<Span>> {
    let mut spans: Vec<Option<Span>> = vec![None; program.tensors.len()];
    let last = program.nodes.len().saturating_sub(1);
    for id in program.with_role(Role::Input) {
        spans[id.index()] = Some(Span { start: 0, end: 0 });
    }
    for (place, node) in program.nodes.iter().enumerate() {
        for id in node.inputs.iter().chain(&node.outputs) {
            let tensor = program.tensor(*id);
            if tensor.role.is_persistent() {
                continue;
            }
            let end = if tensor.role == Role::Output { last } else { place };
            spans[id.index()].get_or_insert(Span { start: place, end }).end = end;
        }
    }
    spans
}
