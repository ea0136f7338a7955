//! Every instruction set against plain loops, bit for bit.

use plimsoll_parallel::Level;

use super::*;

/// Positions of a tile that every instruction set has.
const POSITIONS: usize = 2;
/// Inputs of an outer product.
const INPUTS: usize = 4;

/// The bits of the results of all functions on some numbers.
struct All<'a> {
    numbers: &'a [f32; LANES * LANES],
    found: &'a mut Vec<f32>,
}

/// To run it asks for nothing but the instruction set.
impl Body for All<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let All { numbers, found } = self;
        let lanes: [i32; LANES] = std::array::from_fn(|i| (i / 8 * 8 + (i * 5 + 3) % 8) as i32);
        let in_quarters: [i32; LANES] = std::array::from_fn(|i| (i / 4 * 4 + (i * 3 + 1) % 4) as i32);
        // SAFETY: all rows have sixteen numbers, and there are sixteen.
        unsafe {
            let row = |i: usize| S::load(numbers.as_ptr().add(i * LANES));
            let (a, b, c, d) = (row(0), row(1), row(2), row(3));
            let mut stored = [0u16; LANES];
            S::store_bf16(stored.as_mut_ptr(), a);
            let results = [
                S::add(a, b),
                S::sub(a, b),
                S::mul(a, b),
                S::max(a, b),
                S::min(a, b),
                S::where_positive(a, b, c),
                S::where_less(a, b, c, d),
                S::pick(a, &lanes),
                S::pick_in_quarters(a, &in_quarters),
                S::halves(numbers.as_ptr().add(5)),
                S::load_bf16(stored.as_ptr()),
                S::load_first(numbers.as_ptr(), 5),
                S::leaky(a, b),
            ];
            let transposed = S::transpose(std::array::from_fn(row));
            for v in results.into_iter().chain(transposed) {
                found.extend(S::to_array(v));
            }
        }
    }
}

/// Sums of products, which are rounded once but in plain loops.
struct Sums<'a> {
    numbers: &'a [f32; LANES * LANES],
    found: &'a mut Vec<f32>,
}

/// To run it asks for nothing but the instruction set.
impl Body for Sums<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let (numbers, found) = (self.numbers.as_ptr(), self.found);
        // SAFETY: weights are sixteen rows of sixteen, positions two of them, and the inputs of an outer product within one.
        unsafe {
            let of = Products {
                weights: numbers,
                weight_step: LANES,
                weight_block: 0,
                source: numbers.add(7),
                source_row: 0,
            };
            let mut sums = [[[S::zero(); POSITIONS]]];
            S::add_products(&mut sums, &of);
            found.extend(sums[0][0].into_iter().flat_map(|v| S::to_array(v)));
            let mut outer = [[S::zero(); INPUTS]];
            S::add_outer(&mut outer, &[S::load(numbers)], numbers.add(3));
            found.extend(outer[0].into_iter().flat_map(|v| S::to_array(v)));
        }
    }
}

/// Runs a body at a level.
///
/// # Safety
/// The machine has the level, and what the body asks for holds.
unsafe fn at<B: Body>(level: Level, body: B) {
    // SAFETY: this function's contract includes the contract of the calls.
    unsafe {
        match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => Avx512::call(body),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => Avx2::call(body),
            #[cfg(target_arch = "aarch64")]
            Level::Neon | Level::NeonBf16 => Neon::call(body),
            _ => Portable::call(body),
        }
    }
}

/// Numbers of every kind: all bit patterns in odd rounds, and numbers near one in even ones.
fn numbers(round: u64) -> [f32; LANES * LANES] {
    let mut state = round.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    [(); LANES * LANES].map(|()| {
        // Knuth's MMIX.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let bits = (state >> 32) as u32;
        if round % 2 == 1 { f32::from_bits(bits) } else { f32::from_bits(bits & 0x83ff_ffff | 0x3c00_0000) }
    })
}

/// Bits, with one pattern for every NaN.
fn bits(of: &[f32]) -> Vec<u32> {
    of.iter().map(|x| if x.is_nan() { u32::MAX } else { x.to_bits() }).collect()
}

#[test]
fn all_instruction_sets_have_the_lanes_of_plain_loops() {
    for round in 0..2_000 {
        let numbers = numbers(round);
        let run = |level| {
            let mut found = Vec::new();
            // SAFETY: the machine has the level.
            unsafe { at(level, All { numbers: &numbers, found: &mut found }) };
            bits(&found)
        };
        let expected = run(Level::Portable);
        for level in Level::available() {
            assert_eq!(run(level), expected, "{level}, round {round}");
        }
    }
}

#[test]
fn sums_of_products_are_rounded_once_for_each_input_in_order() {
    for round in 0..500 {
        let numbers = numbers(2 * round);
        let sum = |lane: usize, inputs: &[f32], weights: &[f32]| {
            let each = inputs.iter().zip(weights.chunks(LANES));
            each.fold(0.0f32, |sum, (x, weights)| weights[lane].mul_add(*x, sum))
        };
        let positions = (0..POSITIONS).flat_map(|p| {
            let inputs = &numbers[7 + p * LANES..][..LANES];
            let weights = &numbers[..];
            (0..LANES).map(move |lane| sum(lane, inputs, weights))
        });
        let outer = (0..INPUTS).flat_map(|i| (0..LANES).map(move |lane| (i, lane)));
        let outer = outer.map(|(i, lane)| sum(lane, &numbers[3 + i..][..1], &numbers[..LANES]));
        let expected: Vec<f32> = positions.chain(outer).collect();
        for level in Level::available().filter(|level| *level != Level::Portable) {
            let mut found = Vec::new();
            // SAFETY: the machine has the level.
            unsafe { at(level, Sums { numbers: &numbers, found: &mut found }) };
            assert_eq!(bits(&found), bits(&expected), "{level}, round {round}");
        }
    }
}
