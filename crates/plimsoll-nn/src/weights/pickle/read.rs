//! Numbers, texts and lines of a pickle, as its opcodes are followed by them.

use std::io::{self, BufRead};

use super::{CUT_OFF, Machine, NO_STATE_DICT, Refusal, Value};

/// Texts are read in pieces of this length.
const PIECE: u64 = 16 << 10;

impl<R: BufRead> Machine<'_, '_, R> {
    pub(super) fn whole(&mut self, digits: u64) -> Result<(), Refusal> {
        let number = self.number(digits)?;
        self.push(Value::Int(number as i64))
    }

    /// A number with a fraction, big-endian.
    pub(super) fn fraction(&mut self) -> Result<(), Refusal> {
        let mut bytes = [0; 8];
        self.pickle.read_exact(&mut bytes)?;
        self.push(Value::Float(f64::from_be_bytes(bytes)))
    }

    /// A whole number of as many bytes as it says, little-endian with a sign.
    pub(super) fn long(&mut self, digits: u64) -> Result<(), Refusal> {
        let length = self.number(digits)?;
        if length > 8 {
            self.skip(length)?;
            return self.push(Value::Opaque);
        }
        let number = self.number(length)?;
        let unused = 64 - 8 * length as u32;
        let signed = if length == 0 { 0 } else { ((number << unused) as i64) >> unused };
        self.push(Value::Int(signed))
    }

    /// A whole number or a truth, in decimal.
    pub(super) fn decimal(&mut self) -> Result<(), Refusal> {
        let line = self.line()?;
        self.push(match line.trim() {
            "00" => Value::Bool(false),
            "01" => Value::Bool(true),
            digits => digits.trim_end_matches('L').parse().map_or(Value::Opaque, Value::Int),
        })
    }

    pub(super) fn text(&mut self, digits: u64) -> Result<(), Refusal> {
        let length = self.number(digits)?;
        if length > self.length {
            return Err(CUT_OFF);
        }
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < length {
            let piece = (length - bytes.len() as u64).min(PIECE) as usize;
            let from = bytes.len();
            // Twice: what it was, and what it grows to; the text that it becomes is it.
            self.room.add(2 * piece as u64)?;
            bytes.reserve_exact(piece);
            bytes.resize(from + piece, 0);
            if let Some(piece) = bytes.get_mut(from..) {
                self.pickle.read_exact(piece)?;
            }
        }
        // A text of Python 2 may be any bytes.
        self.push(String::from_utf8(bytes).map_or(Value::Opaque, |text| Value::Text(text.into())))
    }

    pub(super) fn bytes(&mut self, digits: u64) -> Result<(), Refusal> {
        let length = self.number(digits)?;
        self.skip(length)?;
        self.push(Value::Opaque)
    }

    pub(super) fn skip(&mut self, length: u64) -> Result<(), Refusal> {
        let skipped = io::copy(&mut io::Read::take(&mut *self.pickle, length), &mut io::sink())?;
        if skipped == length { Ok(()) } else { Err(CUT_OFF) }
    }

    pub(super) fn byte(&mut self) -> Result<u8, Refusal> {
        let mut byte = [0];
        self.pickle.read_exact(&mut byte)?;
        Ok(byte[0])
    }

    /// A little-endian number of up to eight bytes.
    pub(super) fn number(&mut self, digits: u64) -> Result<u64, Refusal> {
        let mut number = 0;
        for place in 0..digits {
            number |= u64::from(self.byte()?) << (8 * place);
        }
        Ok(number)
    }

    /// A line without its end; what is no text in it is replaced.
    pub(super) fn line(&mut self) -> Result<String, Refusal> {
        let mut bytes = Vec::new();
        loop {
            match self.byte()? {
                b'\n' => break,
                byte => {
                    // Grown by doubling, and three bytes for one that is replaced.
                    self.room.add(6)?;
                    bytes.push(byte);
                }
            }
        }
        Ok(String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// The number of an entry of the memo, in decimal.
    pub(super) fn index(&mut self) -> Result<u32, Refusal> {
        self.line()?.trim().parse().map_err(|_| NO_STATE_DICT)
    }
}
