//! Inputs that are changed at random.

/// The longest input.
const MOST: usize = 32 << 10;

/// A stream of inputs that follows from its seed alone.
pub struct Changes(u64);

impl Changes {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Changes {
        Changes(seed)
    }

    /// One of some inputs, with a few changes: bits and bytes, and pieces that are repeated, removed or taken from another input.
    ///
    /// # Panics
    /// If there are no inputs.
    pub fn input(&mut self, inputs: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = inputs[self.below(inputs.len())].clone();
        let other = &inputs[self.below(inputs.len())];
        for _ in 0..=self.below(6) {
            self.change(&mut bytes, other);
        }
        bytes
    }

    /// SplitMix64.
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ mixed >> 31) % bound.max(1) as u64) as usize
    }

    /// Changes bytes in one of a few ways.
    fn change(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        // What lengths and counts are wrong with.
        const EDGES: [&[u8]; 8] = [
            b"\0",
            b"\xff",
            b"\x7f",
            b"\0\0",
            b"\xff\xff",
            b"\xff\xff\xff\xff",
            b"\xff\xff\xff\x7f",
            b"999999999",
        ];
        let at = self.below(bytes.len());
        let end = (at + 1 + self.below(64)).min(bytes.len());
        match self.below(7) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
            1 if !bytes.is_empty() => bytes[at] = self.below(256) as u8,
            2 => {
                let edge = EDGES[self.below(EDGES.len())];
                let end = (at + edge.len()).min(bytes.len());
                drop(bytes.splice(at..end, edge.iter().copied()));
            }
            3 => drop(bytes.drain(at..end)),
            4 => {
                let piece = bytes[at..end].to_vec();
                let to = self.below(bytes.len());
                drop(bytes.splice(to..to, piece));
            }
            5 => {
                let from = self.below(other.len());
                let piece = &other[from..(from + self.below(256)).min(other.len())];
                drop(bytes.splice(at..end, piece.iter().copied()));
            }
            _ => bytes.truncate(self.below(bytes.len() * 8)),
        }
        bytes.truncate(MOST);
    }
}
