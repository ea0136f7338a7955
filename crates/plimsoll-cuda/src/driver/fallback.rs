//! The kernels that a driver takes: machine code of the card, or PTX; all of an architecture, or those without products by warp groups.

use std::fmt::Display;
use std::io;

use crate::pieces::{MachineCode, has_machine_code};
use crate::{Architecture, ptx};

/// Pieces of PTX that come before the pieces for one architecture: for all cards, and with tensor cores.
const COMMON: usize = 2;

/// A driver as far as it loads pieces.
pub(super) trait Loader {
    /// Its error.
    type Error: Display;

    /// Loads a piece: its machine code if there is some, else its PTX, which names its kernels in either case.
    fn load(&mut self, ptx: String, code: Option<Vec<u8>>) -> Result<(), Self::Error>;

    /// Unloads all pieces.
    fn start_again(&mut self);

    /// Returns `true` if it rejects a piece as such.
    fn is_refusal(error: &Self::Error) -> bool;
}

/// The kernels that a driver has taken.
pub(super) struct Loaded {
    /// The architecture with what these kernels use of it.
    pub(super) architecture: Architecture,
    /// The driver's reason against the kernels of the architecture alone, where it has refused them.
    pub(super) refused: Option<String>,
    /// The reason why the driver has compiled the kernels; none if they are machine code.
    pub(super) compiled: Option<String>,
}

/// The error of a piece that a card cannot do without.
#[derive(Debug)]
pub(super) enum LoadError<E> {
    /// There is no memory for its text.
    Text(io::Error),
    /// The driver has refused it.
    Driver(E),
}

/// Loads all pieces for an architecture, one after the other, so that no more than one is held as text: their machine code, or all of them as PTX if there is none or
/// the driver refuses a piece of it. If it refuses the PTX of the architecture alone, the others suffice.
///
/// # Errors
/// Returns the error of another piece of PTX, or one that is no refusal.
pub(super) fn load_pieces<L: Loader>(
    architecture: Architecture,
    loader: &mut L,
) -> Result<Loaded, LoadError<L::Error>> {
    let Some(code) = MachineCode::find(architecture) else {
        let reason = match has_machine_code() {
            true => format!("this program has no machine code for {architecture}"),
            false => "this program was built without machine code".into(),
        };
        return load_ptx(architecture, loader, reason);
    };
    load_either(architecture, loader, |number| code.piece(number))
}

/// Loads the machine code, or the PTX if the driver refuses it.
fn load_either<L: Loader>(
    architecture: Architecture,
    loader: &mut L,
    code: impl Fn(usize) -> io::Result<Vec<u8>>,
) -> Result<Loaded, LoadError<L::Error>> {
    for (number, piece) in ptx(architecture).enumerate() {
        let (piece, code) = (piece.map_err(LoadError::Text)?, code(number).map_err(LoadError::Text)?);
        match loader.load(piece, Some(code)) {
            Ok(()) => {}
            Err(error) if L::is_refusal(&error) => {
                loader.start_again();
                return load_ptx(
                    architecture,
                    loader,
                    format!("the driver refuses the machine code: {error}"),
                );
            }
            Err(error) => return Err(LoadError::Driver(error)),
        }
    }
    Ok(Loaded { architecture, refused: None, compiled: None })
}

/// Loads the PTX, for a reason.
fn load_ptx<L: Loader>(
    architecture: Architecture,
    loader: &mut L,
    reason: String,
) -> Result<Loaded, LoadError<L::Error>> {
    for (number, piece) in ptx(architecture).enumerate() {
        match loader.load(piece.map_err(LoadError::Text)?, None) {
            Ok(()) => {}
            Err(error) if number >= COMMON && L::is_refusal(&error) => {
                let (architecture, refused) = (architecture.without_warp_groups(), Some(error.to_string()));
                return Ok(Loaded { architecture, refused, compiled: Some(reason) });
            }
            Err(error) => return Err(LoadError::Driver(error)),
        }
    }
    Ok(Loaded { architecture, refused: None, compiled: Some(reason) })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// A driver that has an error for PTX with a text, and one for pieces of machine code from a number on.
    struct Scripted {
        text: &'static str,
        error: &'static str,
        /// The first piece of machine code that is refused, and how.
        code: (usize, &'static str),
        /// The pieces that are loaded: `true` if as machine code.
        taken: Vec<bool>,
    }

    impl Loader for Scripted {
        type Error = String;

        fn load(&mut self, ptx: String, code: Option<Vec<u8>>) -> Result<(), String> {
            let (first, refusal) = self.code;
            match code {
                Some(_) if self.taken.len() >= first => Err(refusal.into()),
                None if ptx.contains(self.text) => Err(self.error.into()),
                _ => {
                    self.taken.push(code.is_some());
                    Ok(())
                }
            }
        }

        fn start_again(&mut self) {
            self.taken.clear();
        }

        fn is_refusal(error: &String) -> bool {
            error.starts_with("unsupported")
        }
    }

    const NO_PIECE: &str = "no piece has this text";

    /// Loads the pieces for an architecture as PTX with a driver that has an error for those with a text.
    fn loaded(
        name: &str,
        text: &'static str,
        error: &'static str,
    ) -> (usize, Result<Loaded, LoadError<String>>) {
        let mut driver = Scripted { text, error, code: (0, ""), taken: Vec::new() };
        let loaded = load_ptx(name.parse().unwrap(), &mut driver, "a reason".into());
        assert!(driver.taken.iter().all(|is_code| !is_code));
        (driver.taken.len(), loaded)
    }

    /// Loads machine code, of which the driver refuses the pieces from `first` on.
    fn loaded_code(first: usize, refusal: &'static str) -> (Vec<bool>, Result<Loaded, LoadError<String>>) {
        let mut driver = Scripted { text: NO_PIECE, error: "", code: (first, refusal), taken: Vec::new() };
        let loaded = load_either("sm_90".parse().unwrap(), &mut driver, |_| Ok(Vec::new()));
        (driver.taken, loaded)
    }

    #[test]
    fn a_driver_takes_all_kernels_as_machine_code_or_all_as_ptx_with_the_reason() {
        let (taken, loaded) = loaded_code(3, "");
        assert_eq!((taken, loaded.unwrap().compiled), (vec![true; 3], None));
        for first in 0..3 {
            let (taken, loaded) = loaded_code(first, "unsupported image");
            let loaded = loaded.unwrap();
            assert_eq!(taken, [false; 3], "{first}");
            let reason = "the driver refuses the machine code: unsupported image";
            assert_eq!((loaded.compiled.as_deref(), loaded.refused), (Some(reason), None));
        }
        let (_, failed) = loaded_code(1, "out of memory");
        assert!(matches!(failed, Err(LoadError::Driver(error)) if error == "out of memory"));
    }

    #[test]
    fn without_machine_code_for_a_card_the_reason_names_it() {
        let mut driver = Scripted { text: NO_PIECE, error: "", code: (0, "unsupported"), taken: Vec::new() };
        let loaded = load_pieces("sm_120".parse().unwrap(), &mut driver).unwrap();
        let reason = match has_machine_code() {
            true => "this program has no machine code for sm_120",
            false => "this program was built without machine code",
        };
        assert_eq!((loaded.compiled.as_deref(), driver.taken), (Some(reason), vec![false; 2]));
    }

    #[test]
    fn a_driver_that_refuses_warp_groups_leaves_the_kernels_of_ampere_and_the_reason() {
        let (taken, loaded) = loaded("sm_90", ".target sm_90a", "unsupported PTX");
        let loaded = loaded.unwrap();
        assert_eq!((taken, loaded.refused.as_deref()), (2, Some("unsupported PTX")));
        assert_eq!(loaded.compiled.as_deref(), Some("a reason"));
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
            let (taken, loaded) = loaded(name, NO_PIECE, "");
            let loaded = loaded.unwrap();
            assert_eq!((taken, loaded.refused), (pieces, None), "{name}");
            assert_eq!(loaded.architecture, name.parse().unwrap());
        }
        let later: Architecture = "sm_120".parse().unwrap();
        assert_eq!(later.without_warp_groups(), later);
    }
}
