//! Files of NIfTI: one (`.nii`, `.nii.gz`, `.nii.zst`) or a pair (`.hdr` and `.img`, each possibly with `.gz`).

pub(crate) mod names;
mod open;

pub(crate) use open::{begins, open};
