//! Optimizers: one pass over a parameter, its gradient and its moments, or over a parameter and its average.

use plimsoll_graph::ops::{AdamW, NormUse, Sgd};

use super::lane_sums::in_turn;
use crate::kernel::{Kernel, Ptr};
use crate::simd::{LANES, Simd};

/// Elements of a task.
const CHUNK: usize = 1 << 14;

/// The rule by which a parameter is updated from its gradient, with its constants.
#[derive(Clone, Copy)]
pub(crate) enum UpdateRule {
    AdamW(AdamW),
    Sgd(Sgd),
}

impl UpdateRule {
    fn norm_use(&self) -> NormUse {
        match self {
            UpdateRule::AdamW(rule) => rule.norm,
            UpdateRule::Sgd(rule) => rule.norm,
        }
    }

    fn rate_factor(&self) -> f32 {
        match self {
            UpdateRule::AdamW(rule) => rule.rate_factor,
            UpdateRule::Sgd(rule) => rule.rate_factor,
        }
    }

    fn clear(&self) -> bool {
        match self {
            UpdateRule::AdamW(rule) => rule.clear,
            UpdateRule::Sgd(rule) => rule.clear,
        }
    }
}

pub(crate) struct Update {
    pub(crate) rule: UpdateRule,
    /// `[count]`
    pub(crate) parameter: Ptr<f32>,
    /// `[count]`, which is written if the rule clears it.
    pub(crate) gradient: Ptr<f32>,
    /// First moment or momentum, `[count]`.
    pub(crate) first: Ptr<f32>,
    /// Second moment of AdamW, `[count]`. Other rules do not read it, and it may alias anything.
    pub(crate) second: Ptr<f32>,
    /// `[4]`: learning rate, 1 − β₁ᵗ, 1 − β₂ᵗ, 1 / the scale of the loss.
    pub(crate) rates: Ptr<f32>,
    /// `[1]`: the norm of all gradients, where the rule reads it.
    pub(crate) norm: Option<Ptr<f32>>,
    pub(crate) count: usize,
}

impl Kernel for Update {
    fn tasks(&self) -> usize {
        self.count.div_ceil(CHUNK)
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let first = task * CHUNK;
        let count = CHUNK.min(self.count - first);
        // SAFETY: `task < tasks`, so `first + count` is at most the elements of each buffer, which do not overlap; the
        // second moment becomes a slice only for AdamW, which has one. Tasks write disjoint stretches. Rates and norm have
        // been written, which the one who runs the node sees to.
        unsafe {
            let (rate, correction1, correction2) =
                (*self.rates.0 * self.rule.rate_factor(), *self.rates.0.add(1), *self.rates.0.add(2));
            let slice = |p: Ptr<f32>| std::slice::from_raw_parts_mut(p.0.add(first), count);
            let gradient = slice(self.gradient);
            if is_refused(self.norm) {
                if self.rule.clear() {
                    gradient.fill(0.0);
                }
                return;
            }
            let unscale = *self.rates.0.add(3);
            let scale = match (self.rule.norm_use(), self.norm) {
                // As torch.nn.utils.clip_grad_norm_.
                (NormUse::Clip(max), Some(norm)) => unscale * (max / (*norm.0 * unscale + 1e-6)).min(1.0),
                _ => unscale,
            };
            let parameter = slice(self.parameter);
            let moment = slice(self.first);
            match self.rule {
                UpdateRule::AdamW(rule) => {
                    let second = slice(self.second);
                    let (coupled, decay) = match rule.coupled {
                        true => (rule.weight_decay, 1.0),
                        false => (0.0, 1.0 - rate * rule.weight_decay),
                    };
                    let step = rate / correction1;
                    let root = correction2.sqrt();
                    let all = parameter.iter_mut().zip(gradient.iter()).zip(moment).zip(second);
                    for (((p, g), m), v) in all {
                        let g = g * scale + coupled * *p;
                        *m = rule.beta1 * *m + (1.0 - rule.beta1) * g;
                        *v = rule.beta2 * *v + (1.0 - rule.beta2) * g * g;
                        *p = *p * decay - step * *m / (v.sqrt() / root + rule.epsilon);
                    }
                }
                UpdateRule::Sgd(rule) => {
                    for ((p, g), m) in parameter.iter_mut().zip(gradient.iter()).zip(moment) {
                        let g = g * scale + rule.weight_decay * *p;
                        *m = rule.momentum * *m + g;
                        *p -= rate * (g + rule.momentum * *m);
                    }
                }
            }
            if self.rule.clear() {
                gradient.fill(0.0);
            }
        }
    }
}

/// Returns `true` if a step is refused, by the norm of all gradients.
///
/// # Safety
/// The norm, if there is one, must be one number that has been written.
#[inline(always)]
unsafe fn is_refused(norm: Option<Ptr<f32>>) -> bool {
    // SAFETY: as this function's contract says.
    norm.is_some_and(|norm| unsafe { !(*norm.0).is_finite() })
}

/// One step of the average of a parameter.
pub(crate) struct Average {
    pub(crate) decay: f32,
    /// `[count]`
    pub(crate) average: Ptr<f32>,
    /// `[count]`
    pub(crate) parameter: Ptr<f32>,
    /// `[1]`: the norm of all gradients, where it is read.
    pub(crate) norm: Option<Ptr<f32>>,
    pub(crate) count: usize,
}

impl Kernel for Average {
    fn tasks(&self) -> usize {
        self.count.div_ceil(CHUNK)
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let first = task * CHUNK;
        let count = CHUNK.min(self.count - first);
        // SAFETY: `task < tasks`, so `first + count` is at most the elements of both buffers, which do not overlap; tasks write
        // disjoint stretches.
        unsafe {
            if is_refused(self.norm) {
                return;
            }
            let average = std::slice::from_raw_parts_mut(self.average.0.add(first), count);
            let parameter = std::slice::from_raw_parts(self.parameter.0.add(first), count);
            // Written so, an average that has reached its parameter stays there exactly.
            let share = 1.0 - self.decay;
            for (a, p) in average.iter_mut().zip(parameter) {
                *a += share * (*p - *a);
            }
        }
    }
}

/// The sum of squares of each stretch of some gradients.
pub(crate) struct Squares {
    /// Each with its number of elements and its first stretch, in order, beginning with 0.
    pub(crate) gradients: Vec<(Ptr<f32>, usize, usize)>,
    pub(crate) stretches: usize,
    /// The result, `[stretch]`.
    pub(crate) partial: Ptr<f64>,
}

impl Squares {
    /// Stretches of gradients with these numbers of elements.
    pub(crate) fn stretches(counts: impl Iterator<Item = usize>) -> usize {
        counts.map(|count| count.div_ceil(CHUNK)).sum()
    }
}

impl Kernel for Squares {
    fn tasks(&self) -> usize {
        self.stretches
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let of = self.gradients.partition_point(|(_, _, first)| *first <= task) - 1;
        let (gradient, count, first) = self.gradients[of];
        let from = (task - first) * CHUNK;
        let mut sums = [0.0f64; LANES];
        in_turn(
            from..count.min(from + CHUNK),
            &mut sums,
            #[inline(always)]
            |place, sum| {
                // SAFETY: the place is below the gradient's `count`.
                let g = f64::from(unsafe { *gradient.0.add(place) });
                *sum += g * g;
            },
        );
        // SAFETY: there is a sum for each stretch, and `task` is one.
        unsafe { *self.partial.0.add(task) = sums.iter().sum() };
    }
}
