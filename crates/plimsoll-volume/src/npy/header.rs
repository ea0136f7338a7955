//! The header of an array: a dictionary in Python's own letters.

use std::io::{self, Read};

use crate::{ByteOrder, ElementType};

/// The signature of an array.
pub(super) const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// The longest header that is read; NumPy itself warns of longer ones.
pub(super) const MOST_HEADER: usize = 10_000;

/// The bytes before a header, of which the first version uses ten.
pub(super) const START: usize = 12;

/// Reads the first bytes of an array. Returns where its header begins, and its length.
///
/// # Errors
/// Returns an error if the bytes begin no array, or one whose version or length of header is not supported.
pub(super) fn extent(start: &[u8; START]) -> Result<(usize, usize), &'static str> {
    if !start.starts_with(MAGIC) {
        return Err("it does not start like one");
    }
    let [.., major, _, a, b, c, d] = *start;
    let (begin, length) = match major {
        1 => (10, usize::from(u16::from_le_bytes([a, b]))),
        2 | 3 => (START, u32::from_le_bytes([a, b, c, d]) as usize),
        _ => return Err("its version is unknown"),
    };
    match length {
        0..=MOST_HEADER => Ok((begin, length)),
        _ => Err("its header is too long"),
    }
}

/// The header of an array.
#[derive(Debug, PartialEq)]
pub(crate) struct Header {
    pub(crate) element_type: ElementType,
    pub(crate) byte_order: ByteOrder,
    pub(crate) is_fortran: bool,
    pub(crate) shape: Vec<usize>,
}

impl Header {
    /// Reads the start of an array. Returns the header and all bytes before the elements.
    ///
    /// # Errors
    /// Returns an error if the bytes cannot be read; the error is `InvalidData` if they begin no array of supported
    /// numbers.
    pub(crate) fn read_from(source: &mut impl Read) -> io::Result<(Header, Vec<u8>)> {
        let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        let mut bytes = vec![0; START];
        source.read_exact(&mut bytes)?;
        let start = bytes.first_chunk().ok_or(io::ErrorKind::UnexpectedEof)?;
        let (begin, length) = extent(start).map_err(|why| wrong(format!("the start of an array: {why}")))?;
        bytes.resize((begin + length).max(START), 0);
        source.read_exact(&mut bytes[START..])?;
        let header = Header::read(&String::from_utf8_lossy(&bytes[begin..])).map_err(wrong)?;
        Ok((header, bytes))
    }

    /// Reads the dictionary `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4, 5), }`.
    ///
    /// # Errors
    /// Returns an error if the header is incomplete, or describes no array of supported numbers.
    pub(crate) fn read(text: &str) -> Result<Header, String> {
        let behind = |key: &str| {
            let found = [format!("'{key}':"), format!("\"{key}\":")]
                .iter()
                .find_map(|key| Some(text.split_once(key.as_str())?.1.trim_start()));
            found.ok_or_else(|| format!("its header has no {key}"))
        };
        let kind = behind("descr")?;
        let quote = kind.chars().next().filter(|quote| matches!(quote, '\'' | '"'));
        let kind = quote.and_then(|quote| kind.get(1..)?.split(quote).next());
        let kind = kind.ok_or("its elements are records, not numbers")?;
        let order = behind("fortran_order")?;
        let is_fortran = match (order.starts_with("True"), order.starts_with("False")) {
            (true, _) => true,
            (_, true) => false,
            _ => return Err("fortran_order in its header is not True or False".into()),
        };
        let shape = behind("shape")?.strip_prefix('(').and_then(|rest| Some(rest.split_once(')')?.0));
        let shape = shape.ok_or("its header has no shape")?;
        let sizes = shape.split(',').map(str::trim).filter(|size| !size.is_empty());
        let shape = sizes.map(|size| size.parse().map_err(|_| format!("its shape has {size:?}")));
        let shape = shape.take(9).collect::<Result<Vec<usize>, String>>()?;
        let (element_type, byte_order) = element(kind)?;
        Ok(Header { element_type, byte_order, is_fortran, shape })
    }
}

fn element(kind: &str) -> Result<(ElementType, ByteOrder), String> {
    let refused = || {
        format!("its elements are {kind:?}: whole numbers of 8 to 64 bits, float32 and float64 are supported")
    };
    let mut letters = kind.chars();
    let order = match letters.next().ok_or_else(refused)? {
        '<' => ByteOrder::Little,
        '>' => ByteOrder::Big,
        '|' | '=' => ByteOrder::NATIVE,
        _ => return Err(refused()),
    };
    Ok((element_type(letters.as_str()).ok_or_else(refused)?, order))
}

/// The element type of NumPy's letters for a kind and its bytes, without the byte order; `None` if no image has such elements.
pub(crate) fn element_type(letters: &str) -> Option<ElementType> {
    Some(match letters {
        "u1" | "b1" => ElementType::U8,
        "i1" => ElementType::I8,
        "u2" => ElementType::U16,
        "i2" => ElementType::I16,
        "u4" => ElementType::U32,
        "i4" => ElementType::I32,
        "u8" => ElementType::U64,
        "i8" => ElementType::I64,
        "f4" => ElementType::F32,
        "f8" => ElementType::F64,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dictionaries_of_numpy_are_read_and_others_refused() {
        let of = |text: &str| Header::read(text);
        assert_eq!(
            of("{'descr': '>i2', 'fortran_order': True, 'shape': (3, 4, 5), }   \n"),
            Ok(Header {
                element_type: ElementType::I16,
                byte_order: ByteOrder::Big,
                is_fortran: true,
                shape: vec![3, 4, 5]
            })
        );
        for (text, says) in [
            ("", "descr"),
            ("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,)}", "records"),
            ("{'descr': '<f2', 'fortran_order': False, 'shape': (3,)}", "<f2"),
            ("{'descr': '<c8', 'fortran_order': False, 'shape': (3,)}", "<c8"),
            ("{'descr': '|O', 'fortran_order': False, 'shape': (3,)}", "|O"),
            ("{'descr': 'f4', 'fortran_order': False, 'shape': (3,)}", "f4"),
            ("{'descr': '<f4', 'fortran_order': 0, 'shape': (3,)}", "fortran_order"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (3", "shape"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (-3, 1)}", "-3"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999,)}", "9999"),
        ] {
            let why = of(text).unwrap_err();
            assert!(why.contains(says), "{text}: {why}");
        }
    }
}
