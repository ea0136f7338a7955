//! Convolutions as sums over taps.
//!
//! A convolution and a transposed one come down to the same thing: for positions q on a grid,
//!
//! result\[start + q · out_stride\] = Σ over taps: weight\[tap\] · source\[q · step + shift(tap)\].
//!
//! A convolution has one such sum: out_stride 1, step = stride, shift = k − padding. A transposed one has one for each
//! phase r of its result modulo the stride, with only the taps that meet that phase: out_stride = stride, step 1, shift =
//! (r + padding − k) / stride. (With kernel = stride, each phase has a single tap.)
//!
//! A dilated convolution with stride 1 and a padding that is a multiple of its dilation d has one such sum for each pair of remainders of
//! plane and row modulo d. Planes and rows with these remainders alone are read by it and are its results: a volume of their own, of which a
//! kernel's neighbours are neighbours. There step is 1 and shift = k − padding / d. Along the width, shift = d · k − padding.
#![forbid(unsafe_code)]

use plimsoll_graph::Window;

/// A sum over taps, for the results of one phase.
#[derive(Clone, Debug)]
pub(crate) struct Phase {
    /// The first result.
    pub(crate) start: [usize; 3],
    /// Positions along each axis.
    pub(crate) count: [usize; 3],
    /// The taps that are summed.
    pub(crate) taps: Vec<GridTap>,
}

/// One tap of a sum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GridTap {
    /// Its place in the kernel.
    pub(crate) index: usize,
    /// The place of the source relative to q · step.
    pub(crate) shift: [isize; 3],
}

/// All sums of a convolution.
#[derive(Clone, Debug)]
pub(crate) struct TapGrid {
    /// Source voxels from one position to the next.
    pub(crate) step: [usize; 3],
    /// Result voxels from one position to the next.
    pub(crate) out_stride: [usize; 3],
    /// The extent of the source.
    pub(crate) source: [usize; 3],
    /// The extent of the result.
    pub(crate) result: [usize; 3],
    /// One for a convolution, up to the product of the strides for a transposed one.
    pub(crate) phases: Vec<Phase>,
    /// The least shift of all taps.
    pub(crate) low: [isize; 3],
    /// The largest shift of all taps, less the least.
    pub(crate) span: [usize; 3],
    /// The most positions that a phase has.
    pub(crate) positions: [usize; 3],
    /// The dilation along depth and height: steps and shifts count each d-th plane and row of the source, from the phase's first
    /// result on.
    pub(crate) spacing: [usize; 2],
}

/// One axis of a phase.
struct AxisPhase {
    start: usize,
    count: usize,
    /// (place in the kernel, shift)
    taps: Vec<(usize, isize)>,
}

/// The dilation of a window along the axes where it has several voxels.
fn dilation(window: &Window) -> [usize; 3] {
    [0, 1, 2].map(|axis| if window.kernel[axis] > 1 { window.dilation[axis] } else { 1 })
}

/// Returns `true` if a convolution of this window has a [`TapGrid`]: a dilated one has stride 1, and paddings that are multiples of the
/// dilation.
pub(crate) fn has_grid(window: &Window) -> bool {
    let [depth, height, _] = dilation(window);
    let is_multiple = |axis: usize, spacing: usize| window.padding[axis].is_multiple_of(spacing);
    window.is_dense() || (window.stride == [1; 3] && is_multiple(0, depth) && is_multiple(1, height))
}

impl TapGrid {
    /// Returns `true` if phases share no plane or row of the source.
    pub(crate) fn is_interleaved(&self) -> bool {
        self.spacing != [1; 2]
    }

    /// The grid of a convolution of a source of extent `source`, of a window that [has one](has_grid).
    pub(crate) fn convolution(window: &Window, source: [usize; 3], result: [usize; 3]) -> TapGrid {
        if !window.is_dense() {
            return TapGrid::dilated(window, source, result, |k, padding| k - padding);
        }
        let axes = [0, 1, 2].map(|axis| {
            let shift = |k: usize| k as isize - window.padding[axis] as isize;
            let taps = (0..window.kernel[axis]).map(|k| (k, shift(k))).collect();
            vec![AxisPhase { start: 0, count: result[axis], taps }]
        });
        TapGrid::new(window, source, result, window.stride, [1; 3], &axes)
    }

    /// The grid of a transposed convolution from the extent `source` to the extent `result`, of a window that [has one](has_grid).
    pub(crate) fn transposed(window: &Window, source: [usize; 3], result: [usize; 3]) -> TapGrid {
        if !window.is_dense() {
            return TapGrid::dilated(window, source, result, |k, padding| padding - k);
        }
        let axes = [0, 1, 2].map(|axis| {
            let (stride, padding) = (window.stride[axis] as isize, window.padding[axis] as isize);
            (0..stride.min(result[axis] as isize))
                .map(|phase| {
                    let taps = (0..window.kernel[axis])
                        .map(|k| (k, phase + padding - k as isize))
                        .filter(|(_, offset)| offset.rem_euclid(stride) == 0)
                        .map(|(k, offset)| (k, offset.div_euclid(stride)))
                        .collect();
                    let start = phase as usize;
                    AxisPhase { start, count: (result[axis] - start).div_ceil(stride as usize), taps }
                })
                .collect()
        });
        TapGrid::new(window, source, result, [1; 3], window.stride, &axes)
    }

    /// The grid of a dilated convolution, or of its transpose. `shift` is made of a place in the kernel and of the padding, in the same unit.
    fn dilated(
        window: &Window,
        source: [usize; 3],
        result: [usize; 3],
        shift: impl Fn(isize, isize) -> isize,
    ) -> TapGrid {
        let [depth, height, width] = dilation(window);
        let spacing = [depth, height];
        let axes = [0, 1, 2].map(|axis| {
            let (kernel, padding) = (window.kernel[axis], window.padding[axis] as isize);
            let shift = |k: usize| match spacing.get(axis) {
                Some(spacing) => shift(k as isize, padding / *spacing as isize),
                None => shift((k * width) as isize, padding),
            };
            let taps: Vec<_> = (0..kernel).map(|k| (k, shift(k))).collect();
            let spacing = spacing.get(axis).copied().unwrap_or(1);
            let phase = |start: usize| AxisPhase {
                start,
                count: (result[axis] - start).div_ceil(spacing),
                taps: taps.clone(),
            };
            (0..spacing.min(result[axis])).map(phase).collect()
        });
        TapGrid { spacing, ..TapGrid::new(window, source, result, [1; 3], [depth, height, 1], &axes) }
    }

    fn new(
        window: &Window,
        source: [usize; 3],
        result: [usize; 3],
        step: [usize; 3],
        out_stride: [usize; 3],
        axes: &[Vec<AxisPhase>; 3],
    ) -> TapGrid {
        let [_, kh, kw] = window.kernel;
        let mut phases = Vec::new();
        for d in &axes[0] {
            for h in &axes[1] {
                for w in &axes[2] {
                    let mut taps = Vec::with_capacity(d.taps.len() * h.taps.len() * w.taps.len());
                    for (i, shift_d) in &d.taps {
                        for (j, shift_h) in &h.taps {
                            for (k, shift_w) in &w.taps {
                                let index = (i * kh + j) * kw + k;
                                taps.push(GridTap { index, shift: [*shift_d, *shift_h, *shift_w] });
                            }
                        }
                    }
                    let (start, count) = ([d.start, h.start, w.start], [d.count, h.count, w.count]);
                    phases.push(Phase { start, count, taps });
                }
            }
        }
        let shifts = |axis: usize| {
            phases.iter().flat_map(move |phase| phase.taps.iter().map(move |tap| tap.shift[axis]))
        };
        let low = [0, 1, 2].map(|axis| shifts(axis).min().unwrap_or(0));
        let span = [0, 1, 2].map(|axis| (shifts(axis).max().unwrap_or(0) - low[axis]) as usize);
        let positions = [0, 1, 2].map(|axis| phases.iter().map(|phase| phase.count[axis]).max().unwrap_or(0));
        TapGrid { step, out_stride, source, result, phases, low, span, positions, spacing: [1; 2] }
    }
}

/// The places of a grid, row by row. Nested `flat_map`s are not always inlined into a kernel.
pub(crate) struct Places {
    extent: [usize; 3],
    /// The next place. Along the first axis it is behind the grid when there is none.
    next: [usize; 3],
}

/// Returns the places of a grid.
#[inline(always)]
pub(crate) fn places(extent: [usize; 3]) -> Places {
    let first = if extent.contains(&0) { extent[0] } else { 0 };
    Places { extent, next: [first, 0, 0] }
}

impl Iterator for Places {
    type Item = [usize; 3];

    #[inline(always)]
    fn next(&mut self) -> Option<[usize; 3]> {
        let place = self.next;
        if place[0] == self.extent[0] {
            return None;
        }
        self.next = match place {
            [d, h, w] if w + 1 < self.extent[2] => [d, h, w + 1],
            [d, h, _] if h + 1 < self.extent[1] => [d, h + 1, 0],
            [d, ..] => [d + 1, 0, 0],
        };
        Some(place)
    }
}
