//! The factor of a loss that makes gradients fit into half precision.
//!
//! An f16 holds numbers from 6 · 10⁻⁸ to 65504, and most gradients of a segmentation are smaller. Multiplied by a power of two they keep
//! their bits, and the update divides by it. The factor follows from the steps (Micikevicius et al. 2018, "Mixed precision training", with
//! the numbers of `torch.amp.GradScaler`): it is halved when gradients overflow, and doubled after many steps without overflow.

use serde::{Deserialize, Serialize};

/// The factor, and the steps that it follows from. It is part of a run's progress, and a resumed run keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossScale {
    /// A power of two.
    pub scale: f32,
    /// Steps since it was changed.
    pub good_steps: u64,
    /// Steps of the run whose gradients have overflown and that were skipped, so far.
    pub skipped_steps: u64,
}

/// Steps without an overflow after which the factor is doubled.
const GROWTH_INTERVAL: u64 = 2000;

/// The least factor, about fairseq's 10⁻⁴: gradients that overflow even so are not the factor's fault.
const LEAST: f32 = 1.0 / 8192.0;

/// The largest, whose reciprocal is no subnormal number.
const MOST: f32 = f32::from_bits((126 + 127) << 23);

impl Default for LossScale {
    /// At the beginning of a run: 2¹⁶.
    fn default() -> LossScale {
        LossScale { scale: 65536.0, good_steps: 0, skipped_steps: 0 }
    }
}

impl LossScale {
    /// After a step that was taken.
    #[must_use]
    pub fn after_step(self) -> LossScale {
        let good_steps = self.good_steps + 1;
        if good_steps < GROWTH_INTERVAL {
            return LossScale { good_steps, ..self };
        }
        LossScale { scale: (2.0 * self.scale).min(MOST), good_steps: 0, ..self }
    }

    /// The factor after a step that was skipped because gradients overflowed; `None` if they would overflow with the smallest factor, too.
    #[must_use]
    pub fn after_overflow(self) -> Option<LossScale> {
        let scale = self.scale / 2.0;
        let skipped_steps = self.skipped_steps + 1;
        (scale >= LEAST).then_some(LossScale { scale, good_steps: 0, skipped_steps })
    }

    /// Returns `true` if that many steps can have led to it; a file may hold any number.
    pub fn is_sound_after(&self, steps: u64) -> bool {
        let is_power = self.scale.is_normal() && self.scale.to_bits() & 0x007f_ffff == 0;
        let counts = self.good_steps.checked_add(self.skipped_steps).is_some_and(|count| count <= steps);
        is_power && counts && (LEAST..=MOST).contains(&self.scale)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// Steps of `torch.amp.GradScaler`, from `oracles/loss_scale.py`.
    #[derive(Deserialize)]
    struct Oracle {
        steps: u64,
        overflows: Vec<u64>,
        changes: Vec<(u64, f32)>,
        taken: u64,
    }

    #[test]
    fn it_follows_from_overflows_as_that_of_pytorch() {
        let text = include_str!("../../../oracles/loss_scale.json");
        let oracle: Oracle = serde_json::from_str(text).unwrap();
        let mut scale = LossScale::default();
        let mut changes = Vec::new();
        for step in 0..oracle.steps {
            let next = match oracle.overflows.contains(&step) {
                true => scale.after_overflow().unwrap(),
                false => scale.after_step(),
            };
            if next.scale != scale.scale {
                changes.push((step, next.scale));
            }
            scale = next;
            assert!(scale.is_sound_after(step + 1), "{scale:?}");
        }
        assert_eq!(changes, oracle.changes);
        assert_eq!(oracle.steps - scale.skipped_steps, oracle.taken);
    }

    #[test]
    fn it_is_a_power_of_two_whatever_happens_and_neither_falls_nor_rises_without_end() {
        let mut scale = LossScale::default();
        let mut falls = 0;
        while let Some(next) = scale.after_overflow() {
            (scale, falls) = (next, falls + 1);
            assert!(scale.is_sound_after(falls) && !scale.is_sound_after(falls - 1), "{scale:?}");
        }
        assert_eq!((falls, scale.scale), (29, LEAST));
        for _ in 0..150 * GROWTH_INTERVAL {
            scale = scale.after_step();
        }
        assert!(
            scale.is_sound_after(1 << 20) && scale.scale == MOST && (1.0 / scale.scale).is_normal(),
            "{scale:?}"
        );
        for wrong in [f32::NAN, 0.0, -2.0, 3.0, f32::INFINITY, LEAST / 2.0] {
            assert!(!LossScale { scale: wrong, ..LossScale::default() }.is_sound_after(9), "{wrong}");
        }
    }
}
