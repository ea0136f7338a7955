//! All tests of the command line but for those below a line, which take the machine for themselves: one program is built and linked in a
//! fraction of the time of many, and a test that waits leaves its processor to others.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod backends;
mod bad_input;
mod bids;
mod built;
mod compare;
mod data_path;
mod dicom_segmentation;
mod ends;
mod evaluate;
mod export;
mod failing_disk;
mod faults;
mod hints;
mod hostile_settings;
mod images;
mod kills;
mod large_volumes;
mod layouts;
mod masked;
mod micro_batches;
mod model_file;
mod monai;
mod nnunet;
mod outliers;
mod outputs;
mod plan;
mod postprocess;
mod predict;
mod products;
mod rates;
mod regions;
mod report;
mod resume;
mod same_settings;
mod scaling;
mod scores;
mod segment;
mod segment_more;
mod slices;
mod structures;
mod support;
mod sweep;
mod volume_formats;
mod watch;
