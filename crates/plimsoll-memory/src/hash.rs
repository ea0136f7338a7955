//! FNV-1a, the 64-bit hash that seeds the initial weights of a parameter by its name, and that recorded values of tests were made with.
//! Everything that is stored has the XXH3 of [`Digest`](crate::Digest).
//!
//! The hash of given bytes is the same on every machine and in every version, which the standard library's hashers do not
//! promise. It is not cryptographic. Constants: Fowler, Noll, Vo and Eastlake, "The FNV Non-Cryptographic Hash Algorithm"
//! (IETF draft-eastlake-fnv), section 5.

/// The 64-bit FNV offset basis.
const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;

/// The 64-bit FNV prime, 2⁴⁰ + 2⁸ + 0xb3.
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// The FNV-1a hash of bytes that arrive in pieces: for seeds, and for values that tests recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fnv1a(u64);

impl Default for Fnv1a {
    fn default() -> Fnv1a {
        Fnv1a(OFFSET_BASIS)
    }
}

impl Fnv1a {
    /// Adds `bytes` to the hashed bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME));
    }

    /// The hash of all bytes so far.
    pub fn finish(self) -> u64 {
        self.0
    }
}

/// The 64-bit FNV-1a hash of `bytes`.
pub fn fnv1a(bytes: &[u8]) -> u64 {
    let mut hash = Fnv1a::default();
    hash.update(bytes);
    hash.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test vectors of the IETF draft, appendix C.
    #[test]
    fn hashes_match_the_published_test_vectors() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn pieces_hash_like_the_whole() {
        let mut hash = Fnv1a::default();
        hash.update(b"foo");
        hash.update(b"bar");
        assert_eq!(hash.finish(), fnv1a(b"foobar"));
    }
}
