//! The buffers that windows pass through.

use plimsoll_graph::{Program, Role, TensorId};
use plimsoll_memory::{Budget, Bytes, MapError, Mapped, Reservation};
use plimsoll_plan::EngineError;

use crate::summing::forward::Forward;
use crate::summing::ring::Room;
use crate::summing::workers::stacks;

/// Windows on their way in and out.
pub(crate) struct Buffers {
    /// A window.
    pub(crate) image: Mapped<f32>,
    /// The input of the network if it is not the window alone, or a tensor that is written before any window.
    pub(crate) other: Mapped<f32>,
    /// The buffers of each thread that sums windows.
    pub(crate) rooms: Vec<Room<EngineError>>,
    _stacks: Reservation,
}

impl Buffers {
    /// Reserves the buffers of a network.
    ///
    /// # Errors
    /// Returns an error if the budget has no room for them.
    pub(crate) fn new(
        of: &Forward,
        window: [usize; 3],
        threads: usize,
        budget: &Budget,
    ) -> Result<Buffers, MapError> {
        let buffer = |count: usize| Mapped::zeroed(budget, "windows", count);
        Ok(Buffers {
            image: buffer(of.program.shape(of.image).count() / of.at_once)?,
            other: buffer(Buffers::numbers(&of.program, of.image))?,
            rooms: (0..threads).map(|_| Room::new(window, budget)).collect::<Result<_, _>>()?,
            _stacks: budget.reserve("windows", stacks(threads))?,
        })
    }

    /// Frees all of them.
    ///
    /// # Errors
    /// Returns an error if the budget refuses even nothing.
    pub(crate) fn free(&mut self, budget: &Budget) -> Result<(), MapError> {
        let nothing = || Mapped::zeroed(budget, "windows", 0);
        let _stacks = budget.reserve("windows", Bytes::ZERO)?;
        *self = Buffers { image: nothing()?, other: nothing()?, rooms: Vec::new(), _stacks };
        Ok(())
    }

    /// Numbers of what a program is run on, or of the largest tensor that is written before: a parameter, or the identity in a head's place.
    pub(crate) fn numbers(program: &Program, image: TensorId) -> usize {
        let count = |id: TensorId| program.shape(id).count();
        let written = program.with_role(Role::Parameter).chain(program.with_role(Role::State));
        written.map(count).fold(count(image), usize::max)
    }
}
