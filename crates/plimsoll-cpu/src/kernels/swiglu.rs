//! Gated linear units with the sigmoid linear unit, and their gradients.

use plimsoll_parallel::each_index;

use crate::kernel::{Kernel, Ptr};
use crate::simd::exp::exp;
use crate::simd::{Element, LANES, Simd};

/// Elements of a task, a multiple of sixteen.
const CHUNK: usize = 1 << 15;

/// Sixteen σ(g).
#[inline(always)]
fn logistic(gate: &[f32; LANES]) -> [f32; LANES] {
    let exp = exp(&each_index(|lane| -gate[lane]));
    each_index(|lane| 1.0 / (1.0 + exp[lane]))
}

/// z = g σ(g) v, over `count` stored elements, a multiple of sixteen.
pub(crate) struct SwiGlu<T> {
    pub(crate) gate: Ptr<T>,
    pub(crate) values: Ptr<T>,
    /// It may alias either operand.
    pub(crate) result: Ptr<T>,
    pub(crate) count: usize,
}

/// The places of sixteen elements each of a task.
#[inline(always)]
fn places(task: usize, count: usize) -> impl Iterator<Item = usize> {
    (task * CHUNK..count.min((task + 1) * CHUNK)).step_by(LANES)
}

impl<T: Element> Kernel for SwiGlu<T> {
    fn tasks(&self) -> usize {
        self.count.div_ceil(CHUNK)
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        for place in places(task, self.count) {
            // SAFETY: sixteen elements from the place on are below `count`; tasks write disjoint ones, each after it is read.
            unsafe {
                let gate = T::load::<S>(self.gate.0.add(place));
                let share = S::load(logistic(&S::to_array(gate)).as_ptr());
                let value = T::load::<S>(self.values.0.add(place));
                T::store::<S>(self.result.0.add(place), S::mul(S::mul(gate, share), value));
            }
        }
    }
}

/// dg = dz v σ(g) (1 + g (1 − σ(g))) and dv = dz g σ(g), over `count` stored elements, a multiple of sixteen.
pub(crate) struct SwiGluGrad<T> {
    pub(crate) upstream: Ptr<T>,
    pub(crate) gate: Ptr<T>,
    pub(crate) values: Ptr<T>,
    /// It may alias any operand.
    pub(crate) of_gate: Ptr<T>,
    /// The same.
    pub(crate) of_values: Ptr<T>,
    pub(crate) count: usize,
}

impl<T: Element> Kernel for SwiGluGrad<T> {
    fn tasks(&self) -> usize {
        self.count.div_ceil(CHUNK)
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        for place in places(task, self.count) {
            // SAFETY: sixteen elements from the place on are below `count`; tasks write disjoint ones, after all three are read.
            unsafe {
                let upstream = T::load::<S>(self.upstream.0.add(place));
                let gate = T::load::<S>(self.gate.0.add(place));
                let value = T::load::<S>(self.values.0.add(place));
                let share = S::load(logistic(&S::to_array(gate)).as_ptr());
                let one = S::splat(1.0);
                let slope = S::mul(share, S::fma(gate, S::sub(one, share), one));
                T::store::<S>(self.of_gate.0.add(place), S::mul(S::mul(upstream, value), slope));
                T::store::<S>(self.of_values.0.add(place), S::mul(upstream, S::mul(gate, share)));
            }
        }
    }
}
