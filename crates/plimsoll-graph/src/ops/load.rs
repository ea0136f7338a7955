//! What a convolution does to a source while it reads it.
//!
//! A normalised and activated feature map is cheap to make and as large as the one it is made from, so it need never be
//! stored: the convolution reads the raw map and applies normalisation and activation on the way in. Programs are written
//! with [`NormAct`](super::NormAct) nodes; the planner folds them into loads.

use serde::{Deserialize, Serialize};

use super::norm_act::normalise;
use crate::{Array, GraphError};

/// How a source is read.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// As it is. Operand: the source.
    Plain,
    /// As [`NormAct`](super::NormAct) would make it. Operands: the source, its statistics and, where `affine`, scale and
    /// shift.
    NormAct {
        /// Of the leaky ReLU.
        slope: f32,
        /// Whether there are a scale and a shift.
        affine: bool,
    },
}

/// The operands of one source, whatever stands for an operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SourceOperands<T> {
    /// The source itself.
    pub value: T,
    /// Statistics of the source, where it is normalised on the way in.
    pub statistics: Option<T>,
    /// Scale and shift, where the normalisation has them.
    pub affine: Option<(T, T)>,
    /// Slope of the leaky ReLU; 1 where the source is read as it is.
    pub slope: f32,
}

impl Load {
    /// How many operands a source takes.
    pub fn operands(self) -> usize {
        match self {
            Load::Plain => 1,
            Load::NormAct { affine: false, .. } => 2,
            Load::NormAct { affine: true, .. } => 4,
        }
    }

    /// Takes the operands of a source off the front of a list.
    pub fn take<T: Copy>(self, operands: &[T]) -> Option<(SourceOperands<T>, &[T])> {
        let (own, rest) = operands.split_at_checked(self.operands())?;
        let slope = match self {
            Load::Plain => 1.0,
            Load::NormAct { slope, .. } => slope,
        };
        let affine = match own {
            [_, _, scale, shift] => Some((*scale, *shift)),
            _ => None,
        };
        let source = SourceOperands { value: own[0], statistics: own.get(1).copied(), affine, slope };
        Some((source, rest))
    }

    /// Takes the operands of several sources off the front of a list.
    pub fn take_all<'a, T: Copy>(
        loads: &[Load],
        mut operands: &'a [T],
    ) -> Option<(Vec<SourceOperands<T>>, &'a [T])> {
        let mut sources = Vec::with_capacity(loads.len());
        for load in loads {
            let (source, rest) = load.take(operands)?;
            sources.push(source);
            operands = rest;
        }
        Some((sources, operands))
    }

    /// [`Load::take_all`] for an op's rules: what is left must be `rest` operands.
    pub(crate) fn take_exactly<'a, T: Copy>(
        op: &'static str,
        loads: &[Load],
        operands: &'a [T],
        rest: usize,
    ) -> Result<(Vec<SourceOperands<T>>, &'a [T]), GraphError> {
        Load::take_all(loads, operands).filter(|(_, left)| left.len() == rest).ok_or_else(|| {
            GraphError::OperandCount {
                op,
                expected: format!("{} + {rest}", loads.iter().map(|load| load.operands()).sum::<usize>()),
                found: operands.len(),
            }
        })
    }
}

impl SourceOperands<&Array> {
    /// The source as the convolution sees it.
    pub(crate) fn loaded(&self) -> Array {
        match self.statistics {
            None => self.value.clone(),
            Some(statistics) => normalise(self.value, statistics, self.affine, f64::from(self.slope)),
        }
    }
}
