//! The kernels that a driver takes: all of an architecture, or those without products by warp groups.

use std::fmt::Display;
use std::io;

use crate::{Architecture, ptx};

/// Pieces of PTX that come before the pieces for one architecture: for all cards, and with tensor cores.
const COMMON: usize = 2;

/// The kernels that a driver has taken.
pub(super) struct Loaded {
    /// The architecture with what these kernels use of it.
    pub(super) architecture: Architecture,
    /// The driver's reason against the kernels of the architecture alone, where it has refused them.
    pub(super) refused: Option<String>,
}

/// The error of a piece that a card cannot do without.
#[derive(Debug)]
pub(super) enum LoadError<E> {
    /// There is no memory for its text.
    Text(io::Error),
    /// The driver has refused it.
    Driver(E),
}

/// Loads all pieces for an architecture by `load`, one after the other, so that no more than one is held as text. If the driver refuses the piece
/// of the architecture alone by an error that says so, the others suffice.
///
/// # Errors
/// Returns the error of another piece, or one that is no refusal.
pub(super) fn load_pieces<E: Display>(
    architecture: Architecture,
    mut load: impl FnMut(String) -> Result<(), E>,
    is_refusal: impl Fn(&E) -> bool,
) -> Result<Loaded, LoadError<E>> {
    for (number, piece) in ptx(architecture).enumerate() {
        match load(piece.map_err(LoadError::Text)?) {
            Ok(()) => {}
            Err(error) if number >= COMMON && is_refusal(&error) => {
                let architecture = architecture.without_warp_groups();
                return Ok(Loaded { architecture, refused: Some(error.to_string()) });
            }
            Err(error) => return Err(LoadError::Driver(error)),
        }
    }
    Ok(Loaded { architecture, refused: None })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// Loads the pieces for an architecture with a driver that has an error for those with a text.
    fn loaded(name: &str, text: &str, error: &str) -> (usize, Result<Loaded, LoadError<String>>) {
        let mut taken = 0;
        let load = |piece: String| match piece.contains(text) {
            true => Err(error.to_string()),
            false => {
                taken += 1;
                Ok(())
            }
        };
        let loaded = load_pieces(name.parse().unwrap(), load, |error| error.starts_with("unsupported"));
        (taken, loaded)
    }

    #[test]
    fn a_driver_that_refuses_warp_groups_leaves_the_kernels_of_ampere_and_the_reason() {
        let (taken, loaded) = loaded("sm_90", ".target sm_90a", "unsupported PTX");
        let loaded = loaded.unwrap();
        assert_eq!((taken, loaded.refused.as_deref()), (2, Some("unsupported PTX")));
        assert_eq!(loaded.architecture.to_string(), "sm_90");
        assert!(loaded.architecture.lacks_warp_groups());
        // What is planned for it then takes no kernel of the third piece.
        assert_eq!(ptx(loaded.architecture).count(), 2);
    }

    #[test]
    fn other_errors_and_other_pieces_are_not_passed_over() {
        let (_, out_of_memory) = loaded("sm_90", ".target sm_90a", "out of memory");
        assert!(matches!(out_of_memory, Err(LoadError::Driver(error)) if error == "out of memory"));
        for (name, text) in
            [("sm_90", ".target sm_80"), ("sm_80", ".target sm_80"), ("sm_120", ".target sm_70")]
        {
            let (_, refused) = loaded(name, text, "unsupported PTX");
            assert!(matches!(refused, Err(LoadError::Driver(_))), "{name}");
        }
    }

    #[test]
    fn cards_that_take_all_pieces_use_all_that_they_have_and_later_ones_never_had_warp_groups() {
        for (name, pieces) in [("sm_70", 2), ("sm_90", 3), ("sm_100", 2), ("sm_120", 2)] {
            let (taken, loaded) = loaded(name, "no piece has this text", "");
            let loaded = loaded.unwrap();
            assert_eq!((taken, loaded.refused), (pieces, None), "{name}");
            assert_eq!(loaded.architecture, name.parse().unwrap());
        }
        let later: Architecture = "sm_120".parse().unwrap();
        assert_eq!(later.without_warp_groups(), later);
    }
}
