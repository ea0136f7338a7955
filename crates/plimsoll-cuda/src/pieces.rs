//! The PTX and the tables that are built in, deflated, and machine code in programs that were built with it. A piece is inflated when it is asked for, and
//! belongs to the caller.

use std::io::{self, Read};

use flate2::bufread::ZlibDecoder;

use crate::Architecture;
use crate::architecture::Generation;

/// A piece of PTX or of machine code, or a table.
struct Piece {
    /// Its length.
    bytes: usize,
    deflated: &'static [u8],
}

// The constants PLAIN, VOLTA, TURING, AMPERE and HOPPER of the PTX, COUNTS and RESOURCES of the tables, and CUBINS.
include!(concat!(env!("OUT_DIR"), "/pieces.rs"));

impl Piece {
    /// The text, in a string that has room for one byte more: a C string of it is made without a copy.
    fn text(&self) -> io::Result<String> {
        let mut text = String::new();
        text.try_reserve_exact(self.bytes + 1)?;
        ZlibDecoder::new(self.deflated).read_to_string(&mut text)?;
        match text.len() == self.bytes {
            true => Ok(text),
            false => Err(io::Error::from(io::ErrorKind::InvalidData)),
        }
    }

    /// The bytes.
    fn code(&self) -> io::Result<Vec<u8>> {
        let mut code = Vec::new();
        code.try_reserve_exact(self.bytes)?;
        ZlibDecoder::new(self.deflated).read_to_end(&mut code)?;
        match code.len() == self.bytes {
            true => Ok(code),
            false => Err(io::Error::from(io::ErrorKind::InvalidData)),
        }
    }
}

/// Returns the kernels of an architecture in the form that drivers take: the piece for all cards first, then the one
/// with tensor cores, then the one of the architecture alone. A name is in one of them only. A piece is text of up to 2
/// MB, which is inflated when the iterator reaches it.
///
/// # Errors
/// Returns an error if there is no memory for it.
pub fn ptx(architecture: Architecture) -> impl Iterator<Item = io::Result<String>> {
    let tensor = match architecture.generation() {
        Generation::Volta => VOLTA,
        Generation::Turing => TURING,
        Generation::Ampere | Generation::Hopper => AMPERE,
    };
    let own = (architecture.generation() == Generation::Hopper).then_some(HOPPER);
    [PLAIN, tensor].into_iter().chain(own).map(|piece| piece.text())
}

/// The machine code of all pieces of the PTX of an architecture, in the same order.
#[derive(Clone, Copy)]
pub(crate) struct MachineCode(&'static [Piece]);

impl MachineCode {
    /// Returns the machine code for an architecture; none if this program was built without it, or there is none for such cards.
    pub(crate) fn find(architecture: Architecture) -> Option<MachineCode> {
        // Both have the same instructions.
        let card = architecture.number();
        let card = if card == 89 { 86 } else { card };
        CUBINS.iter().find(|(number, _)| *number == card).map(|(_, pieces)| MachineCode(pieces))
    }

    /// Returns a piece, which is inflated now.
    ///
    /// # Errors
    /// Returns an error if there is no memory for it, or no such piece.
    pub(crate) fn piece(self, number: usize) -> io::Result<Vec<u8>> {
        self.0.get(number).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?.code()
    }
}

/// Returns `true` if this program was built with machine code.
pub(crate) fn has_machine_code() -> bool {
    !CUBINS.is_empty()
}

/// Returns the table of counts, `kernels/counts.csv`.
///
/// # Errors
/// Returns an error if there is no memory for it.
pub(crate) fn counts() -> io::Result<String> {
    COUNTS.text()
}

/// Returns the table of resources, `kernels/resources.csv`.
///
/// # Errors
/// Returns an error if there is no memory for it.
pub(crate) fn resources() -> io::Result<String> {
    RESOURCES.text()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_in_is_the_ptx_of_the_folder_at_most_a_fifth_of_its_size() {
        for (piece, file) in [
            (PLAIN, "kernels.ptx"),
            (VOLTA, "tensor70.ptx"),
            (TURING, "tensor75.ptx"),
            (AMPERE, "tensor80.ptx"),
            (HOPPER, "tensor90.ptx"),
        ] {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels").join(file);
            let text = piece.text().unwrap();
            assert!(text == std::fs::read_to_string(path).unwrap(), "{file}");
            assert!(text.capacity() > text.len(), "{file}: there is no room for the end of a C string");
            println!("{file}: {} bytes, {} deflated", text.len(), piece.deflated.len());
            assert!(5 * piece.deflated.len() < text.len(), "{file}: {}", piece.deflated.len());
        }
    }

    /// Without machine code there is nothing to compare, as in most builds: `PLIMSOLL_CUBINS` names a folder with it.
    #[test]
    fn machine_code_has_as_many_pieces_as_the_ptx_and_is_of_the_card() {
        for name in ["sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90"] {
            let architecture: Architecture = name.parse().unwrap();
            let Some(code) = MachineCode::find(architecture) else {
                assert!(!has_machine_code(), "{name}");
                continue;
            };
            assert_eq!(code.0.len(), ptx(architecture).count(), "{name}");
            for number in 0..code.0.len() {
                let piece = code.piece(number).unwrap();
                assert!(piece.starts_with(b"\x7fELF"), "{name}");
                println!(
                    "{name}, piece {number}: {} bytes, {} deflated",
                    piece.len(),
                    code.0[number].deflated.len()
                );
            }
            assert!(code.piece(code.0.len()).is_err());
        }
        for other in ["sm_72", "sm_87", "sm_100", "sm_120"] {
            assert!(MachineCode::find(other.parse().unwrap()).is_none(), "{other}");
        }
    }

    #[test]
    fn cards_get_the_kernels_that_they_can_run() {
        let pieces = |name: &str| ptx(name.parse().unwrap()).map(Result::unwrap).collect::<Vec<_>>();
        let [volta, turing, ampere] = ["sm_70", "sm_75", "sm_80"].map(pieces);
        assert_eq!([volta.len(), turing.len(), ampere.len()], [2, 2, 2]);
        assert!(turing[0] == volta[0] && ampere[0] == volta[0]);
        assert_eq!(pieces("sm_72"), volta);
        assert_eq!(pieces("sm_120"), ampere);
        // What Hopper has alone, no other card can run.
        let hopper = pieces("sm_90");
        assert_eq!(hopper[..2], ampere);
        assert!(hopper.len() == 3 && hopper[2].contains(".target sm_90a"));
        assert!([&volta, &turing, &ampere, &pieces("sm_100")].iter().all(|pieces| pieces.len() == 2));
        for (text, target) in
            [(&volta[0], "sm_70"), (&volta[1], "sm_70"), (&turing[1], "sm_75"), (&ampere[1], "sm_80")]
        {
            assert!(text.contains(&format!(".target {target}")), "{target}");
        }
    }
}
