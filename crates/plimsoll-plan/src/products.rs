//! The convolutions that multiply bf16.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// The convolutions between features stored as bf16 that also multiply bf16 and sum in f32: all except those listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bf16Products {
    /// Those that multiply f32 all the same, by names that the backend gives to them: their shapes.
    pub in_f32: BTreeSet<String>,
}

impl Bf16Products {
    /// All convolutions multiply bf16.
    pub const ALL: Bf16Products = Bf16Products { in_f32: BTreeSet::new() };
}
