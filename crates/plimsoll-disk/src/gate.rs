//! The gate that every operation passes. It is always open, unless tests make operations fail.

pub(crate) use crate::operation::{Change, Kind};

#[cfg(feature = "faults")]
pub(crate) use crate::faults::gate::{done, pass, transfer};

#[cfg(not(feature = "faults"))]
pub(crate) use open::{done, pass, transfer};

#[cfg(not(feature = "faults"))]
mod open {
    use std::io;
    use std::path::Path;

    use crate::operation::{Allowance, Change, Kind};

    #[inline(always)]
    pub(crate) fn pass(_: Kind, _: &Path) -> io::Result<()> {
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn transfer(_: Kind, _: &Path, bytes: usize) -> io::Result<Allowance> {
        Ok(Allowance { bytes, torn: false })
    }

    #[inline(always)]
    pub(crate) fn done(_: Change<'_>) {}
}
