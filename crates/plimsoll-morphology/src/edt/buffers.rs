//! The buffers of a transform that all units of work share.

use plimsoll_parallel::Parts;

use super::envelope::Axis;
use super::job::Job;
use crate::rows::Rows;
use crate::simd::Instructions;

/// The settings, input, output and shared scratch of one transform.
#[derive(Clone, Copy)]
pub(super) struct Buffers<'a> {
    pub(super) job: &'a Job,
    pub(super) mask: &'a dyn Rows,
    pub(super) instructions: Instructions,
    /// Along the depth and the height.
    pub(super) axes: [Axis<'a>; 2],
    pub(super) out: &'a Parts<'a, f32>,
    /// Empty if they are not requested.
    pub(super) features: &'a Parts<'a, u32>,
    /// For each row of the volume, [`Job::states`] bytes with its states: see [`super::states`].
    pub(super) states: &'a Parts<'a, u8>,
}
