//! The checksums of decompressed data.

use crc32fast::Hasher;

/// A checksum of bytes that arrive in pieces.
pub(super) enum Checksum {
    Crc(Hasher),
    Adler(Adler),
}

impl Checksum {
    /// The CRC-32 of nothing yet.
    pub(super) fn crc() -> Checksum {
        Checksum::Crc(Hasher::new())
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Checksum::Crc(crc) => crc.update(bytes),
            Checksum::Adler(adler) => adler.update(bytes),
        }
    }

    /// The checksum of all bytes so far.
    pub(super) fn finish(self) -> u32 {
        match self {
            Checksum::Crc(crc) => crc.finalize(),
            Checksum::Adler(Adler { sum, of_sums }) => of_sums << 16 | sum,
        }
    }
}

/// Adler-32 (RFC 1950, section 8.2): the sum of the bytes and 1, and the sum of these sums, both modulo 65521.
pub(super) struct Adler {
    sum: u32,
    of_sums: u32,
}

impl Default for Adler {
    fn default() -> Adler {
        Adler { sum: 1, of_sums: 0 }
    }
}

impl Adler {
    /// The largest prime below 2^16.
    const MODULUS: u32 = 65_521;

    /// Bytes that are summed at once.
    const BLOCK: usize = 16;

    /// The most bytes, in whole blocks, after which both sums still fit 32 bits, whatever the bytes are.
    const MOST: usize = 5552;

    fn update(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(Adler::MOST) {
            let (blocks, rest) = part.as_chunks::<{ Adler::BLOCK }>();
            for block in blocks {
                // Each byte counts once in every sum from its own to the sum of the block's last byte.
                let (mut sum, mut of_sums) = (0, 0);
                for (at, byte) in (0u32..).zip(block) {
                    sum += u32::from(*byte);
                    of_sums += (Adler::BLOCK as u32 - at) * u32::from(*byte);
                }
                self.of_sums += Adler::BLOCK as u32 * self.sum + of_sums;
                self.sum += sum;
            }
            for byte in rest {
                self.sum += u32::from(*byte);
                self.of_sums += self.sum;
            }
            self.sum %= Adler::MODULUS;
            self.of_sums %= Adler::MODULUS;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adler(parts: &[&[u8]]) -> u32 {
        let mut checksum = Checksum::Adler(Adler::default());
        parts.iter().for_each(|part| checksum.update(part));
        checksum.finish()
    }

    /// Python's `zlib.adler32` of the same bytes.
    #[test]
    fn adler_32_is_that_of_zlib() {
        assert_eq!(adler(&[]), 1);
        assert_eq!(adler(&[b"Wikipedia"]), 0x11e6_0398);
        let high = vec![255; 100_000];
        assert_eq!(adler(&[&high]), 0x149a_302c);
        let mixed: Vec<u8> = (0..20_000u32).map(|at| (at * at % 251) as u8).collect();
        assert_eq!(adler(&[&mixed]), 0x6f1f_05b5);
        assert_eq!(adler(&[&mixed[..7], &mixed[7..6000], &mixed[6000..]]), 0x6f1f_05b5);
    }
}
