//! The extension module once more, built as the tests are: cargo shares the libraries below it with a build of the tests.

pub use plimsoll_python::*;
