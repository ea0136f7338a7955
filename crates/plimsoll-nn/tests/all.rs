//! All tests of this crate, but for those that measure memory, which have a process each: one program is built and linked in a fraction of the time of many.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod archive;
mod attention_unet;
mod batch_sums;
mod fusion;
mod geometry;
mod hd_bet;
mod linknet;
mod mednext;
mod monai_unet;
mod objective;
mod parameters;
mod pickles;
mod primus;
mod pytorch;
mod recomputation;
mod residual;
mod seresnext;
mod shards;
mod slices;
mod soft_losses;
mod soft_targets;
mod soft_training;
mod state_dict;
mod stunet;
mod swinunetr;
mod training;
mod unetr;
mod updates;
