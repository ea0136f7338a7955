//! A backend on paper: it fuses, inlines, works in place and needs scratch, and has no engine.

use std::sync::Arc;

use plimsoll_graph::{NodeId, Op, Program, Role, TensorId};
use plimsoll_memory::Reservation;
use plimsoll_plan::{
    Backend, Engine, EngineError, LoweredNode, LoweredProgram, PlanError, Rates, VerifiedPlan, agree,
};

/// The alignment of offsets in its arena.
pub const ALIGNMENT: usize = 64;
/// Bytes of each element: tests run its plans in f64.
pub const ELEMENT: usize = 8;

/// The backend.
pub struct Paper;

impl Backend for Paper {
    fn identity(&self) -> String {
        "paper".into()
    }

    fn alignment(&self) -> usize {
        ALIGNMENT
    }

    fn lower(&self, programs: &[Program], inline: bool) -> Result<Vec<LoweredProgram>, PlanError> {
        agree(programs)?;
        Ok(programs.iter().map(|program| lower(program, inline)).collect())
    }

    fn engine(&self, _plan: VerifiedPlan, _arena: Reservation) -> Result<Box<dyn Engine>, EngineError> {
        Err(EngineError::Internal("paper does not run".into()))
    }

    fn with_rates(&self, _rates: Option<Rates>) -> Arc<dyn Backend> {
        Arc::new(Paper)
    }
}

/// The same, with a lowering that is changed to something that it must not be.
pub struct Broken(pub fn(&mut Vec<LoweredProgram>));

impl Backend for Broken {
    fn identity(&self) -> String {
        "broken paper".into()
    }

    fn alignment(&self) -> usize {
        ALIGNMENT
    }

    fn lower(&self, programs: &[Program], inline: bool) -> Result<Vec<LoweredProgram>, PlanError> {
        let mut lowered = Paper.lower(programs, inline)?;
        self.0(&mut lowered);
        Ok(lowered)
    }

    fn engine(&self, plan: VerifiedPlan, arena: Reservation) -> Result<Box<dyn Engine>, EngineError> {
        Paper.engine(plan, arena)
    }

    fn with_rates(&self, _rates: Option<Rates>) -> Arc<dyn Backend> {
        Arc::new(Broken(self.0))
    }
}

fn lower(program: &Program, inline: bool) -> LoweredProgram {
    let is_inlined = |node: NodeId| {
        let node = &program.nodes[node];
        let is_cheap = matches!(node.op, Op::LeakyRelu(_) | Op::Normalise(_));
        let is_updated = |id: &TensorId| {
            program.tensor(*id).role.is_persistent()
                && program.nodes.iter().any(|node| node.outputs.contains(id))
        };
        // A reader may come after an update of what the value is made of.
        inline
            && is_cheap
            && !node.inputs.iter().any(is_updated)
            && node.outputs.iter().all(|id| program.tensor(*id).role == Role::Intermediate)
    };
    let maker = |id: &TensorId| program.nodes.iter().position(|node| node.outputs.contains(id));
    let mut nodes: Vec<LoweredNode> = Vec::new();
    for node in 0..program.nodes.len() {
        if is_inlined(node) {
            continue;
        }
        let mut covers = vec![node];
        let mut inputs = Vec::new();
        let mut open = program.nodes[node].inputs.clone();
        while let Some(id) = open.pop() {
            match maker(&id).filter(|maker| is_inlined(*maker)) {
                Some(maker) if covers.contains(&maker) => {}
                Some(maker) => {
                    covers.push(maker);
                    open.extend(&program.nodes[maker].inputs);
                }
                None if inputs.contains(&id) => {}
                None => inputs.push(id),
            }
        }
        covers.sort_unstable();
        // Statistics are taken by the convolution before them.
        let joins = matches!(program.nodes[node].op, Op::NormStats(_));
        if let (true, Some(last)) = (joins, nodes.last_mut())
            && covers == [node]
            && last.covers.last() == Some(&(node - 1))
            && matches!(program.nodes[node - 1].op, Op::Conv(_))
            && program.nodes[node].inputs == program.nodes[node - 1].outputs
        {
            last.name = "conv+norm_stats".into();
            last.covers.push(node);
            last.outputs.extend(&program.nodes[node].outputs);
            continue;
        }
        nodes.push(one(program, node, covers, inputs));
    }
    LoweredProgram {
        bytes: program.tensors.iter().map(|tensor| tensor.shape.count() * ELEMENT).collect(),
        nodes,
    }
}

fn one(program: &Program, node: NodeId, covers: Vec<NodeId>, inputs: Vec<TensorId>) -> LoweredNode {
    let of = &program.nodes[node];
    let works_in_place =
        matches!(of.op, Op::Add(_) | Op::LeakyRelu(_) | Op::LeakyReluGrad(_) | Op::Dropout(_))
            && covers.len() == 1;
    let alike = |operand: &usize| program.shape(inputs[*operand]) == program.shape(of.outputs[0]);
    let in_place = (0..inputs.len()).filter(|_| works_in_place).filter(alike).map(|operand| (0, operand));
    let in_place = in_place.collect();
    let cost = program.cost(of);
    let scratch = match of.op {
        Op::Conv(_) | Op::ConvTranspose(_) | Op::ConvWeightGrad(_) => {
            program.shape(of.outputs[0]).count() * ELEMENT / 3
        }
        _ => 0,
    };
    LoweredNode {
        name: of.op.rule().name().into(),
        in_place,
        scratch,
        may_be_recomputed: covers.iter().all(|node| program.nodes[*node].op.rule().may_be_recomputed()),
        covers,
        inputs,
        outputs: of.outputs.clone(),
        cost,
        seconds: cost.flops as f64 / 1e9 + cost.bytes as f64 / 1e9,
        bound: None,
    }
}
