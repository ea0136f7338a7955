//! Lossless JPEG of Huffman codes (ITU-T T.81, Annexes H and F.2.2): each pixel is predicted from its neighbours, and
//! its difference from the prediction is coded.

use super::Expected;
use super::markers::{LOSSLESS, SCAN, Segments, frame};

/// Define Huffman tables, define restart interval.
const TABLES: u8 = 0xC4;
const INTERVAL: u8 = 0xDD;
/// The first of eight markers between intervals, which take turns.
const RESTART: u8 = 0xD0;
/// The longest code, and the largest class of differences.
const LONGEST: usize = 16;

const CUT: &str = "its pixels are cut off";
const DAMAGED: &str = "its pixels have an invalid code";

/// Decodes an image of one colour into a plane of its extent.
///
/// # Errors
/// Returns the fault of the image.
pub(super) fn decode(bytes: &[u8], expected: Expected, plane: &mut [u16]) -> Result<(), String> {
    let mut codes: [Option<Codes>; 4] = [const { None }; 4];
    let (mut header, mut interval) = (None, 0usize);
    for segment in Segments::new(bytes)? {
        let segment = segment?;
        match segment.marker {
            TABLES => read_tables(segment.bytes, &mut codes)?,
            INTERVAL => {
                let pixels = segment.bytes.first_chunk().ok_or(CUT)?;
                interval = u16::from_be_bytes(*pixels).into();
            }
            SCAN => {
                let precision = header.ok_or("its pixels have no header")?;
                let &[1, _, table, predictor, _, bits] = segment.bytes else {
                    return Err("its pixels are in a scan of several components".into());
                };
                let codes = codes.get(usize::from(table >> 4)).and_then(Option::as_ref);
                let codes = codes.ok_or("its pixels have no table of codes")?;
                let shift = u32::from(bits & 0xF);
                if !(1..=7).contains(&predictor) || shift >= u32::from(precision) {
                    return Err(format!(
                        "its pixels have predictor {predictor} and point transform {shift}, which is not supported"
                    ));
                }
                if interval % expected.columns != 0 {
                    return Err(format!(
                        "its pixels restart after {interval}, which is not a whole number of rows"
                    ));
                }
                let first = 1i32 << (u32::from(precision) - 1 - shift);
                let scan = Scan { bits: Bits::new(segment.rest), codes, predictor, first };
                return scan.decode(expected, interval / expected.columns, shift, plane);
            }
            _ => {
                if let Some(found) = frame(&segment, expected)? {
                    if found.marker != LOSSLESS || header.is_some() {
                        return Err(format!(
                            "its pixels are not lossless JPEG (marker FF{:02X})",
                            found.marker
                        ));
                    }
                    header = Some(found.precision);
                }
            }
        }
    }
    Err(CUT.into())
}

/// A table of Huffman codes: the codes of each length denote classes in order, from the first on.
struct Codes {
    /// The first code of each length, how many there are, and the place of its class.
    lengths: [(u32, u32, usize); LONGEST],
    classes: Vec<u8>,
}

fn read_tables(mut bytes: &[u8], to: &mut [Option<Codes>; 4]) -> Result<(), &'static str> {
    while let Some((head, rest)) = bytes.split_first() {
        let (counts, rest) = rest.split_first_chunk::<LONGEST>().ok_or(CUT)?;
        let all = counts.iter().map(|count| usize::from(*count)).sum();
        let (classes, rest) = rest.split_at_checked(all).ok_or(CUT)?;
        let mut lengths = [(0, 0, 0); LONGEST];
        let (mut code, mut place) = (0u32, 0);
        for ((entry, count), bits) in lengths.iter_mut().zip(counts).zip(1u32..) {
            *entry = (code, u32::from(*count), place);
            code += u32::from(*count);
            place += usize::from(*count);
            if code > 1 << bits {
                return Err("its pixels have too many codes");
            }
            code <<= 1;
        }
        if classes.iter().any(|class| usize::from(*class) > LONGEST) {
            return Err(DAMAGED);
        }
        let table = to.get_mut(usize::from(head & 0xF)).ok_or(DAMAGED)?;
        *table = Some(Codes { lengths, classes: classes.to_vec() });
        bytes = rest;
    }
    Ok(())
}

/// Bits of a scan, the highest of a byte first. A byte of ones is followed by a zero that does not count.
struct Bits<'a> {
    rest: &'a [u8],
    held: u32,
    count: u32,
}

impl<'a> Bits<'a> {
    fn new(rest: &'a [u8]) -> Bits<'a> {
        Bits { rest, held: 0, count: 0 }
    }

    /// The next bits, 16 at most.
    fn take(&mut self, bits: u32) -> Result<u32, &'static str> {
        while self.count < bits {
            let (byte, rest) = match *self.rest {
                [0xFF, 0, ref rest @ ..] => (0xFF, rest),
                [0xFF, ..] | [] => return Err(CUT),
                [byte, ref rest @ ..] => (byte, rest),
            };
            self.rest = rest;
            self.held = self.held << 8 | u32::from(byte);
            self.count += 8;
        }
        self.count -= bits;
        let taken = self.held >> self.count & ((1 << bits) - 1);
        self.held &= (1 << self.count) - 1;
        Ok(taken)
    }

    /// Passes over what pads an interval, and the marker behind it.
    fn restart(&mut self, number: usize) -> Result<(), &'static str> {
        (self.held, self.count) = (0, 0);
        let marker = RESTART + (number % 8) as u8;
        while let [0xFF, behind @ ..] = self.rest
            && behind.first() == Some(&0xFF)
        {
            self.rest = behind;
        }
        self.rest = self.rest.strip_prefix(&[0xFF, marker]).ok_or("its pixels lack a restart marker")?;
        Ok(())
    }
}

struct Scan<'a> {
    bits: Bits<'a>,
    codes: &'a Codes,
    predictor: u8,
    /// The prediction of the first pixel.
    first: i32,
}

impl Scan<'_> {
    /// The next difference.
    fn difference(&mut self) -> Result<i32, &'static str> {
        let mut code = 0;
        for (first, count, place) in self.codes.lengths {
            code = code << 1 | self.bits.take(1)?;
            if code >= first && code - first < count {
                let class = self.codes.classes.get(place + (code - first) as usize).ok_or(DAMAGED)?;
                return match u32::from(*class) {
                    0 => Ok(0),
                    // The only one of its class.
                    16 => Ok(1 << 15),
                    class => {
                        let low = self.bits.take(class)? as i32;
                        let is_positive = low >> (class - 1) == 1;
                        Ok(if is_positive { low } else { low - (1 << class) + 1 })
                    }
                };
            }
        }
        Err(DAMAGED)
    }

    fn decode(
        mut self,
        expected: Expected,
        rows_between: usize,
        shift: u32,
        plane: &mut [u16],
    ) -> Result<(), String> {
        let mut above: &mut [u16] = &mut [];
        for (row, pixels) in plane.chunks_exact_mut(expected.columns).enumerate() {
            let restarts = rows_between > 0 && row > 0 && row % rows_between == 0;
            if restarts {
                self.bits.restart(row / rows_between - 1)?;
            }
            let is_first = row == 0 || restarts;
            let (mut left, mut corner) = (0i32, 0i32);
            for (column, pixel) in pixels.iter_mut().enumerate() {
                let over = above.get(column).map_or(0, |over| i32::from(*over));
                let told = match (is_first, column) {
                    (true, 0) => self.first,
                    (true, _) => left,
                    (false, 0) => over,
                    (false, _) => self.predict(left, over, corner),
                };
                // Differences are of numbers of 16 bits.
                let value = (told + self.difference()?) as u16;
                (left, corner) = (value.into(), over);
                *pixel = value;
            }
            above = pixels;
        }
        plane.iter_mut().for_each(|pixel| *pixel <<= shift);
        Ok(())
    }

    /// T.81, table H.1.
    fn predict(&self, left: i32, above: i32, corner: i32) -> i32 {
        match self.predictor {
            1 => left,
            2 => above,
            3 => corner,
            4 => left + above - corner,
            5 => left + ((above - corner) >> 1),
            6 => above + ((left - corner) >> 1),
            _ => (left + above) >> 1,
        }
    }
}
