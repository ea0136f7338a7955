//! Describing the machine.

use plimsoll::Context;
use plimsoll_memory::Bytes;
use serde::Deserialize;

use super::{parsed, written};
use crate::Failure;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DoctorArguments {
    ram: Option<Bytes>,
}

/// Describes the machine under a memory limit, or under what the machine leaves.
pub(super) fn doctor(arguments: &str, _: &Context) -> Result<String, Failure> {
    let DoctorArguments { ram } = parsed(arguments)?;
    written(&plimsoll::doctor(ram))
}
