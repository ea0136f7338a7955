//! A program: tensors, and the nodes that make them, in the order of execution.

use std::collections::HashSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{DType, GraphError, Kind, Op, Role, Shape, TensorId, TensorInfo};

/// A node's place in the order of execution.
pub type NodeId = usize;

/// One op applied to tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// What is done.
    pub op: Op,
    /// Operands, in the order that the op's documentation gives.
    pub inputs: Vec<TensorId>,
    /// Results. A state or a parameter here is updated in place; it is then among the inputs too.
    pub outputs: Vec<TensorId>,
}

/// A list of nodes over tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// For people: `step`, `validate`, `predict`.
    pub name: String,
    /// How features are stored.
    pub precision: DType,
    /// All tensors.
    pub tensors: Vec<TensorInfo>,
    /// All nodes, in order.
    pub nodes: Vec<Node>,
}

impl Program {
    /// An empty program whose features are stored as `precision`.
    pub fn new(name: impl Into<String>, precision: DType) -> Program {
        Program { name: name.into(), precision, tensors: Vec::new(), nodes: Vec::new() }
    }

    /// What is known of a tensor.
    pub fn tensor(&self, id: TensorId) -> &TensorInfo {
        &self.tensors[id.index()]
    }

    /// The shape of a tensor.
    pub fn shape(&self, id: TensorId) -> &Shape {
        &self.tensor(id).shape
    }

    /// All tensors' ids.
    pub fn ids(&self) -> impl Iterator<Item = TensorId> + use<> {
        (0..self.tensors.len() as u32).map(TensorId)
    }

    /// The tensor of a name, among inputs, outputs, parameters and states.
    pub fn find(&self, name: &str) -> Option<TensorId> {
        self.ids().find(|id| {
            let tensor = self.tensor(*id);
            tensor.role != Role::Intermediate && tensor.name == name
        })
    }

    /// All tensors of a role, in the order they were declared.
    pub fn with_role(&self, role: Role) -> impl Iterator<Item = TensorId> + '_ {
        self.ids().filter(move |id| self.tensor(*id).role == role)
    }

    /// Declares a tensor that no node makes (an input, parameter or state).
    pub fn declare(&mut self, info: TensorInfo) -> TensorId {
        let id = TensorId(self.tensors.len() as u32);
        self.tensors.push(info);
        id
    }

    /// Declares an f32 input.
    pub fn input(&mut self, name: impl Into<String>, shape: Shape, kind: Kind) -> TensorId {
        let dtype = if kind == Kind::Labels { DType::U8 } else { DType::F32 };
        self.declare(TensorInfo { name: name.into(), shape, dtype, role: Role::Input, kind })
    }

    /// Declares an f32 parameter, or returns the one of that name.
    pub fn parameter(&mut self, name: impl Into<String>, shape: Shape, kind: Kind) -> TensorId {
        self.persistent(name.into(), shape, kind, Role::Parameter)
    }

    /// Declares an f32 state, or returns the one of that name.
    pub fn state(&mut self, name: impl Into<String>, shape: Shape, kind: Kind) -> TensorId {
        self.persistent(name.into(), shape, kind, Role::State)
    }

    fn persistent(&mut self, name: String, shape: Shape, kind: Kind, role: Role) -> TensorId {
        match self.find(&name) {
            Some(known) => known,
            None => self.declare(TensorInfo { name, shape, dtype: DType::F32, role, kind }),
        }
    }

    /// Appends a node and returns its results.
    ///
    /// # Errors
    /// If the operands do not fit the op.
    pub fn push(&mut self, op: impl Into<Op>, inputs: &[TensorId]) -> Result<Vec<TensorId>, GraphError> {
        let op = op.into();
        let operands: Vec<&TensorInfo> = inputs.iter().map(|id| self.tensor(*id)).collect();
        let signatures = op.rule().infer(&operands)?;
        let updated = op.rule().updates();
        let mut outputs = Vec::with_capacity(updated.len() + signatures.len());
        outputs.extend(updated.iter().map(|operand| inputs[*operand]));
        for signature in signatures {
            let dtype = if signature.kind == Kind::Features { self.precision } else { signature.dtype };
            let name = format!("{}.{}", op.rule().name(), self.nodes.len());
            outputs.push(self.declare(TensorInfo {
                name,
                shape: signature.shape,
                dtype,
                role: Role::Intermediate,
                kind: signature.kind,
            }));
        }
        self.nodes.push(Node { op, inputs: inputs.to_vec(), outputs: outputs.clone() });
        Ok(outputs)
    }

    /// Appends a node with one result and returns it.
    ///
    /// # Errors
    /// If the operands do not fit the op.
    pub fn push_one(&mut self, op: impl Into<Op>, inputs: &[TensorId]) -> Result<TensorId, GraphError> {
        Ok(self.push(op, inputs)?[0])
    }

    /// Gives a tensor a name that people will read.
    pub fn rename(&mut self, id: TensorId, name: impl Into<String>) {
        self.tensors[id.index()].name = name.into();
    }

    /// Makes an intermediate an output under a name.
    pub fn mark_output(&mut self, id: TensorId, name: impl Into<String>) {
        self.tensors[id.index()].role = Role::Output;
        self.rename(id, name);
    }

    /// Floating-point operations of one run.
    pub fn flops(&self) -> u64 {
        self.nodes.iter().map(|node| self.cost(node).flops).sum()
    }

    /// What one node costs.
    pub fn cost(&self, node: &Node) -> crate::Cost {
        let info = |ids: &[TensorId]| -> Vec<&TensorInfo> { ids.iter().map(|id| self.tensor(*id)).collect() };
        node.op.rule().cost(&info(&node.inputs), &info(&node.outputs))
    }

    /// Checks that every node reads only what is there, and that nothing but a persistent tensor is written twice.
    ///
    /// # Errors
    /// At the first node that does not.
    pub fn validate(&self) -> Result<(), GraphError> {
        let declared = |id: &TensorId| {
            let role = self.tensor(*id).role;
            role == Role::Input || role.is_persistent()
        };
        let mut written: HashSet<TensorId> = self.ids().filter(declared).collect();
        let mut made: HashSet<TensorId> = HashSet::new();
        for (place, node) in self.nodes.iter().enumerate() {
            let wrong = |what, id: TensorId| GraphError::Order {
                program: self.name.clone(),
                node: place,
                what,
                tensor: self.tensor(id).name.clone(),
            };
            if let Some(id) = node.inputs.iter().find(|id| !written.contains(id)) {
                return Err(wrong("reads what was not yet written,", *id));
            }
            for id in &node.outputs {
                if self.tensor(*id).role == Role::Input || (!declared(id) && !made.insert(*id)) {
                    return Err(wrong("writes a second time", *id));
                }
                written.insert(*id);
            }
        }
        Ok(())
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "program {}", self.name)?;
        for (place, node) in self.nodes.iter().enumerate() {
            let ids = |ids: &[TensorId]| ids.iter().map(TensorId::to_string).collect::<Vec<_>>().join(" ");
            write!(f, "{place:4} {:18} {} -> ", node.op.rule().name(), ids(&node.inputs))?;
            for id in &node.outputs {
                let tensor = self.tensor(*id);
                write!(f, "{id} {} {} ", tensor.name, tensor.shape)?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
