//! Helpers that several test files share.
#![allow(dead_code, clippy::panic)]

use std::path::Path;

/// Marsaglia's xorshift, with a fixed seed.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A shape with up to `longest` voxels along each axis, some of one voxel.
pub fn random_shape(random: &mut Random, longest: usize) -> [usize; 3] {
    [0; 3].map(|_| if random.below(8) == 0 { 1 } else { 1 + random.below(longest) })
}

/// A mask with labels below `labels`: noise of a random density, or a few boxes and single voxels.
pub fn random_mask(random: &mut Random, shape: [usize; 3], labels: usize) -> Vec<u8> {
    let voxels = shape.iter().product();
    let mut mask = vec![0u8; voxels];
    let background = random.below(2) == 0;
    if background {
        mask.fill(1);
    }
    match random.below(3) {
        0 => {
            let density = random.unit();
            for voxel in &mut mask {
                if random.unit() < density {
                    *voxel = random.below(labels) as u8;
                }
            }
        }
        1 => {
            for _ in 0..1 + random.below(4) {
                let label = random.below(labels) as u8;
                let from = shape.map(|n| random.below(n));
                let to: [usize; 3] = std::array::from_fn(|axis| from[axis] + 1 + random.below(shape[axis]));
                for (at, voxel) in mask.iter_mut().enumerate() {
                    let place = place(at, shape);
                    if (0..3).all(|axis| (from[axis]..to[axis]).contains(&place[axis])) {
                        *voxel = label;
                    }
                }
            }
        }
        _ => {
            for _ in 0..random.below(4) {
                mask[random.below(voxels)] = random.below(labels) as u8;
            }
        }
    }
    mask
}

/// Depth, height and width of the voxel with a number.
pub fn place(at: usize, shape: [usize; 3]) -> [usize; 3] {
    let [_, height, width] = shape;
    [at / width / height, at / width % height, at % width]
}

/// A file that `oracles/morphology.py` wrote.
pub fn oracle(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A file of numbers.
pub fn oracle_f32(name: &str) -> Vec<f32> {
    let bytes = oracle(name);
    let (chunks, rest) = bytes.as_chunks::<4>();
    assert!(rest.is_empty());
    chunks.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// A file of whole numbers.
pub fn oracle_u32(name: &str) -> Vec<u32> {
    oracle_f32(name).into_iter().map(f32::to_bits).collect()
}
