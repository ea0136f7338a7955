//! The products of attention, with a query in each lane.

use crate::simd::{LANES, Simd};

/// Calls `$body` for `$at` from 0 to `$end`, with as many at a time as the registers of `$simd` hold sums: 8, 6, 4, 2, and then one.
macro_rules! by_registers {
    ($simd:ident, $end:expr, |$at:ident, $count:ident| $body:expr) => {{
        let end = $end;
        let mut $at = 0;
        by_registers!(@ $simd, end, $at, $count, $body, 8, 6, 4, 2, 1);
    }};
    (@ $simd:ident, $end:ident, $at:ident, $count:ident, $body:expr, $($n:literal),*) => {
        $(
            if const { $n <= $simd::TILE_POSITIONS } {
                while $end - $at >= $n {
                    const $count: usize = $n;
                    $body;
                    $at += $n;
                }
            }
        )*
    };
}

/// to\[row\] = start\[row\] + Σ_d rows\[row\]\[d\] · columns\[d\], sixteen lanes each.
///
/// # Safety
/// The machine has the instruction set of `S`. `rows` is `[count][width]`, `columns` `[width][16]`, `start` and `to` `[count][16]`,
/// initialised but for `to`, which overlaps none of the others.
#[inline(always)]
pub(super) unsafe fn row_products<S: Simd>(
    rows: *const f32,
    width: usize,
    count: usize,
    columns: *const f32,
    start: Option<*const f32>,
    to: *mut f32,
) {
    // SAFETY: rows are below `count` and channels below `width`.
    unsafe {
        by_registers!(S, count, |row, ROWS| {
            let mut sums = [S::zero(); ROWS];
            if let Some(start) = start {
                for (i, sum) in sums.iter_mut().enumerate() {
                    *sum = S::load(start.add((row + i) * LANES));
                }
            }
            for d in 0..width {
                let column = S::load(columns.add(d * LANES));
                for (i, sum) in sums.iter_mut().enumerate() {
                    *sum = S::fma(S::splat(*rows.add((row + i) * width + d)), column, *sum);
                }
            }
            for (i, sum) in sums.into_iter().enumerate() {
                S::store(to.add((row + i) * LANES), sum);
            }
        });
    }
}

/// to\[d\] = Σ_row rows\[row\]\[d\] · weights\[row\], sixteen lanes each.
///
/// # Safety
/// The machine has the instruction set of `S`. `rows` is `[count][width]`, `weights` `[count][16]`, `to` `[width][16]`,
/// initialised but for `to`, which overlaps none of the others.
#[inline(always)]
pub(super) unsafe fn column_products<S: Simd>(
    rows: *const f32,
    width: usize,
    count: usize,
    weights: *const f32,
    to: *mut f32,
) {
    // SAFETY: rows are below `count` and channels below `width`.
    unsafe {
        by_registers!(S, width, |d, CHANNELS| {
            let mut sums = [S::zero(); CHANNELS];
            for row in 0..count {
                let weight = S::load(weights.add(row * LANES));
                let from = rows.add(row * width + d);
                for (i, sum) in sums.iter_mut().enumerate() {
                    *sum = S::fma(S::splat(*from.add(i)), weight, *sum);
                }
            }
            for (i, sum) in sums.into_iter().enumerate() {
                S::store(to.add((d + i) * LANES), sum);
            }
        });
    }
}

/// to\[row\] += Σ_lane weights\[row\]\[lane\] · rows\[lane\], of `width` channels each, a multiple of sixteen.
///
/// # Safety
/// The machine has the instruction set of `S`. `weights` is `[count][16]`, `rows` `[16][width]`, `to` `[count][width]`, all
/// initialised; `to` overlaps none of the others.
#[inline(always)]
pub(super) unsafe fn add_outer<S: Simd>(
    weights: *const f32,
    count: usize,
    rows: *const f32,
    width: usize,
    to: *mut f32,
) {
    for block in (0..width).step_by(LANES) {
        // SAFETY: rows are below `count`, lanes below sixteen, and sixteen channels from `block` on below `width`.
        unsafe {
            let mut of_lanes = [S::zero(); LANES];
            for (lane, row) in of_lanes.iter_mut().enumerate() {
                *row = S::load(rows.add(lane * width + block));
            }
            by_registers!(S, count, |row, ROWS| {
                let mut sums = [S::zero(); ROWS];
                for (i, sum) in sums.iter_mut().enumerate() {
                    *sum = S::load(to.add((row + i) * width + block));
                }
                for (lane, of_lane) in of_lanes.iter().enumerate() {
                    for (i, sum) in sums.iter_mut().enumerate() {
                        let weight = S::splat(*weights.add((row + i) * LANES + lane));
                        *sum = S::fma(weight, *of_lane, *sum);
                    }
                }
                for (i, sum) in sums.into_iter().enumerate() {
                    S::store(to.add((row + i) * width + block), sum);
                }
            });
        }
    }
}
