//! All tests of this crate: one program is built and linked in a fraction of the time of many.

mod classification;
mod classifiers;
mod comparison;
mod evaluate;
mod references;
mod table;
