//! A training by several ranks that all go on after it, as in scripts.

use std::time::Duration;

use plimsoll_ranks::Communicator;

use super::ranks::{RankResult, train_rank};
use super::request::TrainRequest;
use crate::context::Context;
use crate::error::{Error, Outcome};

/// Trains and validates a fold as one of several ranks. All of them have finished then: another training may follow.
///
/// # Errors
/// Returns the errors of [`train_rank`] and of [`validate`](super::RankTraining::validate), and an error on the other ranks if the first reports one
/// that all have.
pub fn train_together(
    request: &TrainRequest,
    communicator: &mut dyn Communicator,
    patience: Duration,
    context: &Context,
) -> Outcome<RankResult> {
    let training = train_rank(request, communicator, patience, context)?;
    if training.has_failed() {
        return Err(Error::new(
            "the training has failed on all ranks",
            "look at the error of the first rank",
        ));
    }
    training.validate(communicator, context)
}
