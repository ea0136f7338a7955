//! Digests that tell whether bytes have changed.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use xxhash_rust::xxh3::Xxh3;

/// The 64-bit XXH3 hash of some bytes, written as 16 hexadecimal digits. It finds damage and change, not forgery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub u64);

impl Digest {
    /// Returns the digest of some bytes.
    pub fn compute(bytes: &[u8]) -> Digest {
        Digest(xxhash_rust::xxh3::xxh3_64(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl std::str::FromStr for Digest {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Digest, Self::Err> {
        u64::from_str_radix(text, 16).map(Digest)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Digest, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

/// A digest of bytes that arrive in pieces.
#[derive(Clone, Default)]
pub struct Digester(Xxh3);

impl Digester {
    /// Appends `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all bytes so far.
    pub fn finish(&self) -> Digest {
        Digest(self.0.digest())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the reference implementation: `xxhsum -H3` of nothing.
    #[test]
    fn the_digest_of_nothing_is_the_published_one() {
        assert_eq!(Digest::compute(b"").to_string(), "2d06800538d394c2");
    }

    #[test]
    fn pieces_have_the_digest_of_the_whole_and_it_survives_being_written() {
        let bytes: Vec<u8> = (0..1000u32).map(|i| (i * 7 % 251) as u8).collect();
        let mut pieces = Digester::default();
        bytes.chunks(37).for_each(|piece| pieces.update(piece));
        assert_eq!(pieces.finish(), Digest::compute(&bytes));
        assert_eq!(Digest::compute(&bytes).to_string().parse(), Ok(Digest::compute(&bytes)));
    }
}
