//! The convolutions that multiply bf16.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// Which of the convolutions between features that are stored as bf16 multiply bf16 as well, and sum in f32: all but some.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bf16Products {
    /// Those that multiply f32 all the same, by names that the backend gives to them: their shapes.
    pub in_f32: BTreeSet<String>,
}

impl Bf16Products {
    /// Where all of them do.
    pub const ALL: Bf16Products = Bf16Products { in_f32: BTreeSet::new() };
}
