//! Comparisons of a network with its reference: numbers of parameters, and the names and shapes in its files.

use std::collections::BTreeMap;

use plimsoll_graph::{DType, Kind, Program, Role, Shape};
use plimsoll_nn::{Architecture, ForwardMode, names};

/// Returns the pass of a network for the least patch.
pub fn forward_pass(net: &dyn Architecture, training: bool) -> Program {
    let mut program = Program::new("forward");
    let image = Shape::volume(1, net.in_channels(), net.extents().next_larger([1; 3]));
    let image = program.input(names::IMAGE, image, Kind::Volume);
    net.forward(&mut program, image, ForwardMode { training, precision: DType::F32 }).unwrap();
    program.validate().unwrap();
    program
}

/// Numbers of the reference's parameters: all, and those without an effect, such as biases that a normalisation cancels.
pub struct Parameters {
    pub all: usize,
    pub idle: usize,
}

/// Asserts that a network trains all parameters of its reference that have an effect, and knows the others.
pub fn parameters_agree(net: &dyn Architecture, expected: &Parameters, case: &str) {
    let program = forward_pass(net, true);
    let own = program.with_role(Role::Parameter).map(|id| program.tensor(id));
    let trained = own.filter(|info| net.is_trained(&info.name)).map(|info| info.shape.count());
    assert_eq!(trained.sum::<usize>(), expected.all - expected.idle, "{case}");
    assert_eq!(net.idle_biases().iter().map(|(_, count)| count).sum::<usize>(), expected.idle, "{case}");
}

/// Returns the names and shapes of the tensors in a file of a network's weights.
pub fn stored_shapes(net: &dyn Architecture) -> BTreeMap<String, Vec<usize>> {
    let program = forward_pass(net, true);
    let own = program.with_role(Role::Parameter).map(|id| program.tensor(id));
    let own = own.map(|info| (info.name.clone(), net.stored_shape(&info.name, &info.shape).0));
    own.chain(net.idle_biases().into_iter().map(|(name, count)| (name, vec![count]))).collect()
}
