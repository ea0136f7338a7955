//! `plimsoll train` as one of several processes of a launcher, on systems where these cannot communicate: Windows.

use plimsoll_ranks::{Launch, RanksError};
use plimsoll_remedy::Remedy;

use crate::args::Train;
use crate::failure::{Failure, Outcome};

/// Refuses to train.
pub fn run(_: &Train, launch: &Launch, _: bool) -> Outcome {
    let error = RanksError::NoMpiHere { launcher: launch.launcher };
    Err(Failure::new(&error, String::from(Remedy::from(error.remedy().as_str()))))
}
