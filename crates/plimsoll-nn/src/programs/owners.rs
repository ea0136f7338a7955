//! The division of the trained tensors among the processes of one training.

use std::cmp::Reverse;

use plimsoll_graph::{Program, Role, TensorId};

use super::names;

/// The place of a process among those that share the shards of a training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankPlace {
    /// The number of the process, from 0.
    pub rank: usize,
    /// The number of processes.
    pub ranks: usize,
}

impl RankPlace {
    /// A process that trains alone.
    pub const ALONE: RankPlace = RankPlace { rank: 0, ranks: 1 };
}

/// A parameter that is trained, and the process that updates it: its owner alone has its moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainedTensor {
    /// The parameter.
    pub parameter: TensorId,
    /// Its accumulated gradient.
    pub gradient: TensorId,
    /// The number of elements.
    pub elements: usize,
    /// The rank of its owner.
    pub owner: usize,
}

/// The tensors whose gradients a program accumulates, in its order, divided among `ranks` processes. Larger tensors are given first, each to
/// the process with the fewest elements, so that all have nearly the same number.
pub fn trained_tensors(program: &Program, ranks: usize) -> Vec<TrainedTensor> {
    let with_gradient = |parameter: TensorId| {
        let gradient = program.find(&names::gradient(&program.tensor(parameter).name))?;
        let elements = program.shape(parameter).count();
        Some(TrainedTensor { parameter, gradient, elements, owner: 0 })
    };
    let mut trained: Vec<TrainedTensor> =
        program.with_role(Role::Parameter).filter_map(with_gradient).collect();
    let mut by_size: Vec<&mut TrainedTensor> = trained.iter_mut().collect();
    // Stable, so that tensors of one size are given in the order of the program.
    by_size.sort_by_key(|tensor| Reverse(tensor.elements));
    let mut elements = vec![0; ranks];
    for tensor in by_size {
        let fewest = (0..ranks).min_by_key(|rank| elements[*rank]);
        if let Some(owner) = fewest {
            tensor.owner = owner;
            elements[owner] += tensor.elements;
        }
    }
    trained
}

#[cfg(test)]
mod tests {
    use plimsoll_graph::{Kind, Shape};

    use super::*;

    #[test]
    fn owners_have_nearly_the_same_number_of_elements() {
        let mut program = Program::new("gradient");
        for (number, elements) in [7, 3, 5, 3, 1].into_iter().enumerate() {
            let parameter = program.parameter(format!("p{number}"), Shape(vec![elements]), Kind::Channels);
            let name = program.tensor(parameter).name.clone();
            program.state(names::gradient(&name), Shape(vec![elements]), Kind::Channels);
        }
        program.parameter("frozen", Shape(vec![100]), Kind::Channels);
        let owners =
            |ranks| trained_tensors(&program, ranks).iter().map(|tensor| tensor.owner).collect::<Vec<_>>();
        assert_eq!(owners(1), [0; 5]);
        // 7 to rank 0, 5 to rank 1, 3 to rank 1, 3 to rank 0, 1 to rank 1.
        assert_eq!(owners(2), [0, 1, 1, 0, 1]);
        assert_eq!(owners(5), [0, 2, 1, 3, 4]);
    }
}
