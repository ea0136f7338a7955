//! The reference interpreter: programs in f64, in plain loops, with everything kept.

use std::collections::HashMap;

use crate::{GraphError, Program, Role, Shape, TensorId};

/// A row-major array of f64.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Logical shape.
    pub shape: Shape,
    /// Elements, the last axis fastest.
    pub data: Vec<f64>,
}

impl Array {
    /// Zeroes.
    pub fn zeros(shape: Shape) -> Array {
        Array { data: vec![0.0; shape.count()], shape }
    }

    /// From a function of the element's place.
    pub fn from_fn(shape: Shape, f: impl FnMut(usize) -> f64) -> Array {
        Array { data: (0..shape.count()).map(f).collect(), shape }
    }

    /// The place of the first voxel of a channel of a sample.
    pub fn plane(&self, sample: usize, channel: usize) -> usize {
        (sample * self.shape.channels() + channel) * self.shape.voxels()
    }

    /// The value at a voxel of a volume, with zeroes all around it.
    pub fn voxel(&self, sample: usize, channel: usize, at: [isize; 3]) -> f64 {
        let mut offset = 0;
        for (at, extent) in at.into_iter().zip(self.shape.spatial()) {
            match usize::try_from(at) {
                Ok(at) if at < extent => offset = offset * extent + at,
                _ => return 0.0,
            }
        }
        self.data[self.plane(sample, channel) + offset]
    }
}

/// Runs a program on `values`, which hold every input, parameter and state by name; returns the value of every tensor after
/// the last node.
///
/// # Errors
/// Returns an error if a value is missing or has another shape than the program says.
pub fn interpret(program: &Program, values: &HashMap<String, Array>) -> Result<Vec<Array>, GraphError> {
    program.validate()?;
    let mut arrays: Vec<Option<Array>> = vec![None; program.tensors.len()];
    for id in program.ids() {
        let tensor = program.tensor(id);
        if tensor.role == Role::Input || tensor.role.is_persistent() {
            let value = values.get(&tensor.name).filter(|value| value.shape == tensor.shape);
            let missing = || GraphError::MissingValue {
                program: program.name.clone(),
                tensor: format!("{} {}", tensor.name, tensor.shape),
            };
            arrays[id.index()] = Some(value.cloned().ok_or_else(missing)?);
        }
    }
    for node in &program.nodes {
        let operands: Vec<&Array> = node.inputs.iter().filter_map(|id| arrays[id.index()].as_ref()).collect();
        let shapes: Vec<Shape> = node.outputs.iter().map(|id| program.shape(*id).clone()).collect();
        let results = node.op.rule().evaluate(&operands, &shapes);
        for (id, result) in node.outputs.iter().zip(results) {
            arrays[id.index()] = Some(result);
        }
    }
    let shape_of = |id: TensorId| program.shape(id).clone();
    Ok(program.ids().zip(arrays).map(|(id, a)| a.unwrap_or_else(|| Array::zeros(shape_of(id)))).collect())
}
