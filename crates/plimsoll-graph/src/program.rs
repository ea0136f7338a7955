//! A program: tensors, and the nodes that make them, in the order of execution.

use std::collections::HashSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{DType, GraphError, Kind, Op, Role, Shape, Signature, TensorId, TensorInfo};

/// A node's place in the order of execution.
pub type NodeId = usize;

/// One op applied to tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// The operation.
    pub op: Op,
    /// Operands, in the order that the op's documentation gives.
    pub inputs: Vec<TensorId>,
    /// Results. A state or a parameter here is updated in place; it is then among the inputs too.
    pub outputs: Vec<TensorId>,
}

/// A list of nodes over tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// Tells the programs of a set from each other: `step`, `validate`, `predict`.
    pub name: String,
    /// All tensors.
    pub tensors: Vec<TensorInfo>,
    /// All nodes, in order.
    pub nodes: Vec<Node>,
}

impl Program {
    /// An empty program.
    pub fn new(name: impl Into<String>) -> Program {
        Program { name: name.into(), tensors: Vec::new(), nodes: Vec::new() }
    }

    /// The description of a tensor.
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

    /// Declares an input of f32, or of u8 for labels.
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
    /// Returns an error if the operands do not fit the op, or are impossible by themselves.
    pub fn push(&mut self, op: impl Into<Op>, inputs: &[TensorId]) -> Result<Vec<TensorId>, GraphError> {
        let op = op.into();
        let (place, rule) = (self.nodes.len(), op.rule());
        let signatures = self.infer(place, &op, inputs)?;
        let mut outputs: Vec<TensorId> = rule.updates().iter().map(|operand| inputs[*operand]).collect();
        for signature in signatures {
            let Signature { shape, dtype, kind } = signature;
            let name = format!("{}.{place}", rule.name());
            outputs.push(self.declare(TensorInfo { name, shape, dtype, role: Role::Intermediate, kind }));
        }
        self.nodes.push(Node { op, inputs: inputs.to_vec(), outputs: outputs.clone() });
        Ok(outputs)
    }

    /// The results of a node of an op on some operands, without the tensors it updates.
    fn infer(&self, place: usize, op: &Op, inputs: &[TensorId]) -> Result<Vec<Signature>, GraphError> {
        for id in inputs {
            self.check_tensor(*id)?;
        }
        let operands: Vec<&TensorInfo> = inputs.iter().map(|id| self.tensor(*id)).collect();
        let signatures = op.rule().infer(&operands)?;
        for signature in &signatures {
            if let Some(why) = signature.shape.fault() {
                let (program, tensor) = (self.name.clone(), format!("{}.{place}", op.rule().name()));
                return Err(GraphError::Tensor { program, tensor, why });
            }
        }
        for updated in op.rule().updates() {
            let id = inputs[updated];
            let is_read_twice = inputs.iter().filter(|input| **input == id).count() > 1;
            if !self.tensor(id).role.is_persistent() || is_read_twice {
                return Err(GraphError::Order {
                    program: self.name.clone(),
                    node: place,
                    what: "updates what is no parameter or state of its own,",
                    tensor: self.tensor(id).name.clone(),
                });
            }
        }
        Ok(signatures)
    }

    /// Checks that there is a tensor of an id, with a possible shape, and a dtype that its kind can have.
    fn check_tensor(&self, id: TensorId) -> Result<(), GraphError> {
        let fault =
            |tensor: String, why: String| Err(GraphError::Tensor { program: self.name.clone(), tensor, why });
        let Some(tensor) = self.tensors.get(id.index()) else {
            return fault(id.to_string(), format!("there are {} tensors", self.tensors.len()));
        };
        if let Some(why) = tensor.shape.fault() {
            return fault(tensor.name.clone(), why);
        }
        let fits = match tensor.kind {
            Kind::Volume => tensor.dtype.stores_volumes(),
            Kind::Labels => tensor.dtype == DType::U8,
            Kind::Weights | Kind::Channels | Kind::Statistics => tensor.dtype == DType::F32,
            Kind::Table => matches!(tensor.dtype, DType::F32 | DType::F64),
        };
        let axes = match tensor.kind {
            Kind::Volume | Kind::Labels | Kind::Weights => Some(5),
            Kind::Statistics => Some(3),
            Kind::Channels => Some(1),
            Kind::Table => None,
        };
        if !fits || axes.is_some_and(|axes| tensor.shape.0.len() != axes) {
            return fault(tensor.name.clone(), format!("there is no {}", tensor.describe()));
        }
        Ok(())
    }

    /// Appends a node with one result and returns it.
    ///
    /// # Errors
    /// Returns an error if the operands do not fit the op.
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

    /// The cost of one node.
    pub fn cost(&self, node: &Node) -> crate::Cost {
        let info = |ids: &[TensorId]| -> Vec<&TensorInfo> { ids.iter().map(|id| self.tensor(*id)).collect() };
        node.op.rule().cost(&info(&node.inputs), &info(&node.outputs))
    }

    /// Checks the whole program, however it was built: that all tensors are possible, that every node reads only
    /// tensors that exist and fits its operands and results, that only persistent tensors are written twice, and that
    /// no name of an input, parameter, state or output denotes two tensors.
    ///
    /// # Errors
    /// At the first fault.
    pub fn validate(&self) -> Result<(), GraphError> {
        let mut names: HashSet<&str> = HashSet::new();
        let declared = |id: &TensorId| {
            let role = self.tensor(*id).role;
            role == Role::Input || role.is_persistent()
        };
        for id in self.ids() {
            self.check_tensor(id)?;
            let tensor = self.tensor(id);
            if tensor.role != Role::Intermediate && !names.insert(&tensor.name) {
                let why = "another tensor has this name".into();
                return Err(GraphError::Tensor {
                    program: self.name.clone(),
                    tensor: tensor.name.clone(),
                    why,
                });
            }
        }
        let mut written: HashSet<TensorId> = self.ids().filter(declared).collect();
        let mut made: HashSet<TensorId> = HashSet::new();
        for (place, node) in self.nodes.iter().enumerate() {
            let wrong = |what, id: TensorId| GraphError::Order {
                program: self.name.clone(),
                node: place,
                what,
                tensor: self.tensors.get(id.index()).map_or(id.to_string(), |tensor| tensor.name.clone()),
            };
            if let Some(id) = node.inputs.iter().find(|id| !written.contains(id)) {
                return Err(wrong("reads what was not yet written,", *id));
            }
            self.check_results(place, node)?;
            let updated = node.op.rule().updates().len();
            for (result, id) in node.outputs.iter().enumerate() {
                if result >= updated && (declared(id) || !made.insert(*id)) {
                    return Err(wrong("writes a second time", *id));
                }
                written.insert(*id);
            }
        }
        match self.ids().find(|id| self.tensor(*id).role == Role::Output && !made.contains(id)) {
            None => Ok(()),
            Some(id) => Err(GraphError::Tensor {
                program: self.name.clone(),
                tensor: self.tensor(id).name.clone(),
                why: "it is an output that no node makes".into(),
            }),
        }
    }

    /// Checks that a node has the results that its op makes of its operands.
    fn check_results(&self, place: usize, node: &Node) -> Result<(), GraphError> {
        let signatures = self.infer(place, &node.op, &node.inputs)?;
        let updated = node.op.rule().updates();
        let wrong = |expected: String, found: String| {
            let (program, op) = (self.name.clone(), node.op.rule().name());
            Err(GraphError::Results { program, node: place, op, expected, found })
        };
        let count = updated.len() + signatures.len();
        if node.outputs.len() != count {
            return wrong(format!("{count} results"), node.outputs.len().to_string());
        }
        let (in_place, made) = node.outputs.split_at(updated.len());
        for (operand, id) in updated.iter().zip(in_place) {
            if node.inputs[*operand] != *id {
                return wrong(format!("its operand {operand}"), id.to_string());
            }
        }
        for (signature, id) in signatures.iter().zip(made) {
            match self.tensors.get(id.index()) {
                Some(tensor) if signature.is_of(tensor) => {}
                found => {
                    let found = found.map_or(id.to_string(), TensorInfo::describe);
                    return wrong(signature.describe(), found);
                }
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
