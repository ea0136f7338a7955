//! Terms of single voxels and the gradient of losses that have them, sixteen voxels at a time.
//!
//! Probabilities near 1 are the difficulty: 1 − p is carried along as the sum of all others, so that no logarithm, power
//! or quotient of it is one of rounding errors.

use plimsoll_graph::ops::{Activation, VoxelSum};
use plimsoll_parallel::{each, pairs};

use super::voxels::Voxels;
use crate::kernel::{Kernel, Ptr};
use crate::simd::{LANES, Simd, exp::exp};

type LaneArray = [f32; LANES];

/// One class of sixteen voxels.
pub(crate) struct ClassLanes<'a> {
    pub(crate) class: usize,
    /// `true` if it is the voxel's label.
    pub(crate) here: [bool; LANES],
    pub(crate) p: &'a LaneArray,
    /// 1 − p.
    pub(crate) rest: &'a LaneArray,
    pub(crate) logits: LaneArray,
    /// The largest logit of the voxel, and the sum of exponentials relative to it.
    pub(crate) top: &'a LaneArray,
    pub(crate) total: &'a LaneArray,
}

/// Writes 1 − p of `[class][16]` probabilities; returns the most probable class of each voxel.
///
/// # Safety
/// Both are aligned and do not overlap; `p` is valid for reads and `rest` for writes of `classes` · 16 floats. `p` is
/// initialised.
#[inline(always)]
pub(crate) unsafe fn complements(classes: usize, p: *const f32, rest: *mut f32) -> [usize; LANES] {
    // SAFETY: both have sixteen floats for each class, as this function's contract says.
    let (p, rest) = unsafe {
        (
            std::slice::from_raw_parts(p, classes * LANES),
            std::slice::from_raw_parts_mut(rest, classes * LANES),
        )
    };
    let mut best = [0; LANES];
    let mut highest = [0.0; LANES];
    let mut sum = [0.0; LANES];
    for (class, p) in p.chunks_exact(LANES).enumerate() {
        for i in 0..LANES {
            // What was best until now joins the others.
            let better = p[i] > highest[i];
            sum[i] += if better { highest[i] } else { p[i] };
            highest[i] = if better { p[i] } else { highest[i] };
            best[i] = if better { class } else { best[i] };
        }
    }
    for (class, (rest, p)) in rest.chunks_exact_mut(LANES).zip(p.chunks_exact(LANES)).enumerate() {
        for i in 0..LANES {
            rest[i] = if best[i] == class { sum[i].max(f32::MIN_POSITIVE) } else { 1.0 - p[i] };
        }
    }
    best
}

/// x to a power; the usual ones without logarithms.
#[inline(always)]
fn power(x: f32, exponent: f32) -> f32 {
    if exponent == 2.0 {
        x * x
    } else if exponent == 1.0 {
        x
    } else {
        x.powf(exponent)
    }
}

impl ClassLanes<'_> {
    /// −log p.
    #[inline(always)]
    fn minus_log(&self, i: usize) -> f32 {
        if self.p[i] > 0.5 {
            -(-self.rest[i]).ln_1p()
        } else {
            self.total[i].ln() - (self.logits[i] - self.top[i])
        }
    }

    /// For a logit x, or −x where the class is not the label: the sigmoid of −x and log(1 + e⁻ˣ).
    #[inline(always)]
    fn sigmoid(&self) -> (LaneArray, LaneArray) {
        let mut x = [0.0; LANES];
        let mut minus = [0.0; LANES];
        for i in 0..LANES {
            x[i] = if self.here[i] { self.logits[i] } else { -self.logits[i] };
            minus[i] = -x[i].abs();
        }
        let e = exp(&minus);
        let (mut wrong, mut entropy) = ([0.0; LANES], [0.0; LANES]);
        for i in 0..LANES {
            wrong[i] = if x[i] > 0.0 { e[i] } else { 1.0 } / (1.0 + e[i]);
            entropy[i] = (-x[i]).max(0.0) + e[i].ln_1p();
        }
        (wrong, entropy)
    }

    /// The terms of a sum.
    #[inline(always)]
    pub(crate) fn value(&self, sum: &VoxelSum) -> LaneArray {
        let mut value = [0.0; LANES];
        match *sum {
            VoxelSum::Squares => {
                for (value, p) in pairs(value.iter_mut(), self.p) {
                    *value = p * p;
                }
            }
            VoxelSum::MinusLog => {
                for (i, value) in value.iter_mut().enumerate() {
                    *value = self.minus_log(i);
                }
            }
            VoxelSum::Focal { gamma, alpha, activation: Activation::Softmax } => {
                let alpha = VoxelSum::class_alpha(alpha, self.class);
                for i in (0..LANES).filter(|i| self.here[*i]) {
                    value[i] = alpha * power(self.rest[i], gamma) * self.minus_log(i);
                }
            }
            VoxelSum::Focal { gamma, alpha, activation: Activation::Sigmoid } => {
                let (wrong, entropy) = self.sigmoid();
                for i in 0..LANES {
                    let alpha = VoxelSum::target_alpha(alpha, self.here[i]);
                    value[i] = alpha * power(wrong[i], gamma) * entropy[i];
                }
            }
            VoxelSum::Bce { pos_weight, activation: Activation::Softmax } => {
                for i in 0..LANES {
                    value[i] = match self.here[i] {
                        true => pos_weight * self.minus_log(i),
                        // Where p is at most one half, `ln_1p` of −p is exact enough.
                        false if self.p[i] > 0.5 => -self.rest[i].ln(),
                        false => -(-self.p[i]).ln_1p(),
                    };
                }
            }
            VoxelSum::Bce { pos_weight, activation: Activation::Sigmoid } => {
                let (_, entropy) = self.sigmoid();
                for i in 0..LANES {
                    value[i] = entropy[i] * if self.here[i] { pos_weight } else { 1.0 };
                }
            }
        }
        value
    }

    /// Adds `factor` times the derivatives: p times that by p, and that by the logit.
    #[inline(always)]
    pub(crate) fn add_slopes(
        &self,
        sum: &VoxelSum,
        factor: f32,
        by_p: &mut LaneArray,
        direct: &mut LaneArray,
    ) {
        match *sum {
            VoxelSum::Squares => {
                for (by_p, p) in pairs(by_p.iter_mut(), self.p) {
                    *by_p += factor * (2.0 * p * p);
                }
            }
            VoxelSum::MinusLog => {
                for by_p in by_p {
                    *by_p -= factor;
                }
            }
            VoxelSum::Focal { gamma, alpha, activation: Activation::Softmax } => {
                let factor = factor * VoxelSum::class_alpha(alpha, self.class);
                for i in (0..LANES).filter(|i| self.here[*i]) {
                    let slope = gamma * (self.p[i] / self.rest[i]) * self.minus_log(i) + 1.0;
                    by_p[i] -= factor * power(self.rest[i], gamma) * slope;
                }
            }
            VoxelSum::Focal { gamma, alpha, activation: Activation::Sigmoid } => {
                let (wrong, entropy) = self.sigmoid();
                for i in 0..LANES {
                    let slope = factor
                        * VoxelSum::target_alpha(alpha, self.here[i])
                        * power(wrong[i], gamma)
                        * (gamma * (1.0 - wrong[i]) * entropy[i] + wrong[i]);
                    direct[i] += if self.here[i] { -slope } else { slope };
                }
            }
            VoxelSum::Bce { pos_weight, activation: Activation::Softmax } => {
                for i in 0..LANES {
                    by_p[i] += factor * if self.here[i] { -pos_weight } else { self.p[i] / self.rest[i] };
                }
            }
            VoxelSum::Bce { pos_weight, activation: Activation::Sigmoid } => {
                let (wrong, _) = self.sigmoid();
                for i in 0..LANES {
                    direct[i] += factor * wrong[i] * if self.here[i] { -pos_weight } else { 1.0 };
                }
            }
        }
    }
}

/// The gradient of the logits, where terms of voxels, weights of classes or both Σp and Σp² are part of the loss.
pub(crate) struct TermGrad {
    pub(crate) voxels: Voxels,
    /// The terms of voxels.
    pub(crate) sums: Vec<VoxelSum>,
    /// `[sample][class][3]`: derivatives by Σpt, Σp and Σp², with all weights.
    pub(crate) slopes: Ptr<f32>,
    /// `[class]`: the factor of (p − t) where the class is the label; then `[sum][class]`: factors of terms.
    pub(crate) factors: Ptr<f32>,
    /// Per thread: [`TermGrad::per_thread`] floats.
    pub(crate) scratch: Ptr<f32>,
    /// Like the logits, which it may alias.
    pub(crate) result: Ptr<f32>,
}

impl TermGrad {
    /// Floats of scratch per thread: p, 1 − p and two kinds of derivatives, `[class][16]` each.
    pub(crate) fn per_thread(classes: usize) -> usize {
        classes * 4 * LANES
    }
}

impl Kernel for TermGrad {
    fn tasks(&self) -> usize {
        self.voxels.tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, thread: usize) {
        let classes = self.voxels.classes;
        // SAFETY: scratch has a part for `thread`, `[4][class][16]`, of which no two parts overlap. Classes and labels
        // that index tables are below `classes`, `k` is below the number of sums, and the sample below `batch`, since
        // `task < tasks`. Tasks write disjoint voxels; where the result aliases the logits, all classes of a group are read
        // before the first is written.
        unsafe {
            let place = |k: usize| self.scratch.0.add((thread * 4 + k) * classes * LANES);
            let [p, rest, by_p, direct] = each([0, 1, 2, 3], place);
            let lanes = |from: *mut f32, class: usize| &mut *from.add(class * LANES).cast::<LaneArray>();
            let slopes = self.slopes.0.add(self.voxels.sample(task) * classes * 3);
            self.voxels.for_each_group(task, |group| {
                let (top, total) = self.voxels.softmax(task, group, p);
                let best = complements(classes, p, rest);
                let mut entropy = [0.0; LANES];
                for (entropy, label) in pairs(entropy.iter_mut(), group.labels) {
                    *entropy = if label < classes { *self.factors.0.add(label) } else { 0.0 };
                }
                // Sums of p times derivatives: of the most probable class, and of all others.
                let (mut of_best, mut of_others) = ([0.0; LANES], [0.0; LANES]);
                for class in 0..classes {
                    let [by_overlap, by_size, by_squares] = each([0, 1, 2], |k| *slopes.add(class * 3 + k));
                    let (q, direct) = (lanes(by_p, class), lanes(direct, class));
                    let here = each(group.labels, |label| label == class);
                    let p = &*lanes(p, class);
                    for i in 0..LANES {
                        let (overlap, one) = if here[i] { (by_overlap, 1.0) } else { (0.0, 0.0) };
                        q[i] = p[i] * (overlap + by_size + 2.0 * p[i] * by_squares);
                        direct[i] = entropy[i] * (p[i] - one);
                    }
                    let rest = &*lanes(rest, class);
                    let logits = self.voxels.logits(task, class, group);
                    let here = ClassLanes { class, here, p, rest, logits, top: &top, total: &total };
                    for (k, sum) in self.sums.iter().enumerate() {
                        let factor = *self.factors.0.add((1 + k) * classes + class);
                        if factor != 0.0 {
                            here.add_slopes(sum, factor, q, direct);
                        }
                    }
                    for i in 0..LANES {
                        let is_best = best[i] == class;
                        of_best[i] = if is_best { q[i] } else { of_best[i] };
                        of_others[i] += if is_best { 0.0 } else { q[i] };
                    }
                }
                for class in 0..classes {
                    let [p, rest, q, direct] = each([p, rest, by_p, direct], |from| &*lanes(from, class));
                    let mut gradient = [0.0; LANES];
                    for i in 0..LANES {
                        let others = match best[i] == class {
                            true => of_others[i],
                            false => (of_others[i] - q[i]) + of_best[i],
                        };
                        gradient[i] = group.counts[i] * (q[i] * rest[i] - p[i] * others + direct[i]);
                    }
                    let to = self.result.0.add(self.voxels.place(task, class, group));
                    std::ptr::copy_nonoverlapping(gradient.as_ptr(), to, group.count);
                }
            });
        }
    }
}
