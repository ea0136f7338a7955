//! Scores of label maps in memory, for C: pointers are checked as far as they can be, and become slices.

use std::ffi::c_char;
use std::ptr::NonNull;

use plimsoll_memory::{Budget, Bytes, System, limits};
use plimsoll_metrics::{Group, LabelMaps, Settings, Surface, evaluate_maps};

use crate::arguments::{MOST_THREADS, expect_bytes};
use crate::error::{Failure, PlimsollStatus};
use crate::interface::{copy_text, guarded, plimsoll_usual_options};
use crate::types::{
    PLIMSOLL_SURFACE_ELEMENTS, PLIMSOLL_SURFACE_NONE, PLIMSOLL_SURFACE_VOXELS, PlimsollComparison,
    PlimsollLabelMaps, PlimsollScores,
};

/// The most labels that are scored in one call: as many as a byte has.
const MOST_LABELS: u64 = 256;

/// The usual comparison: the machine's memory, as many threads as it has processors up to 256, surfaces between voxels, and a tolerance of
/// 1 mm.
#[unsafe(no_mangle)]
pub extern "C" fn plimsoll_usual_comparison() -> PlimsollComparison {
    let threads = plimsoll_usual_options().threads;
    PlimsollComparison { ram_bytes: 0, threads, surface: PLIMSOLL_SURFACE_ELEMENTS, tolerance: 1.0 }
}

/// Scores labels of a prediction against a reference: `scores` is filled with one element for each of `label_count` labels, in their order.
/// `comparison` may be null for the usual one. The scores equal `plimsoll evaluate`'s for the same maps in files. After a failure
/// `scores` has no meaning, and `error`, which may be null, has a text of at most `error_bytes` bytes that ends in a zero: one line, and often
/// a second one that begins with `hint: `.
///
/// # Safety
/// Pointers are null or point to the values that their types and counts state: maps can be read for `map_bytes` each, `labels` for
/// `label_count` bytes, `scores` can be written for `label_count` elements and `error` for `error_bytes`; nothing else changes them until
/// the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_evaluate(
    maps: *const PlimsollLabelMaps,
    comparison: *const PlimsollComparison,
    labels: *const u8,
    label_count: u64,
    scores: *mut PlimsollScores,
    error: *mut c_char,
    error_bytes: u64,
) -> PlimsollStatus {
    let evaluated = guarded(|| {
        // SAFETY: the caller promises that it is null or points to one.
        let maps = unsafe { maps.as_ref() }.ok_or_else(|| Failure::argument("maps is a null pointer"))?;
        // SAFETY: the caller promises that it is null or points to a comparison that nothing changes meanwhile.
        let comparison =
            unsafe { comparison.as_ref() }.copied().unwrap_or_else(|| plimsoll_usual_comparison());
        let to = NonNull::new(scores).ok_or_else(|| Failure::argument("scores is a null pointer"))?;
        if labels.is_null() || label_count == 0 || label_count > MOST_LABELS {
            return Err(Failure::argument(format!(
                "label_count is {label_count}, but must be from 1 to {MOST_LABELS}"
            )));
        }
        // SAFETY: it is not null, and the caller promises as many labels.
        let labels = unsafe { std::slice::from_raw_parts(labels, label_count as usize) };
        // SAFETY: checks lengths and that no map is null; the rest is the caller's promise.
        let maps = unsafe { label_maps(maps)? };
        let found = evaluated(&maps, comparison, labels)?;
        for (number, found) in found.into_iter().enumerate() {
            // SAFETY: there is one for each label, and the caller promises room for these, which need not be written yet.
            unsafe { to.add(number).write(found) };
        }
        Ok(())
    });
    match evaluated {
        Ok(()) => PlimsollStatus::Ok,
        Err((status, text)) => {
            // SAFETY: the caller promises that it is null or can be written for as many bytes.
            unsafe { copy_text(&text, error, error_bytes) };
            status
        }
    }
}

/// The maps as slices.
///
/// # Safety
/// Maps that are not null can be read for `map_bytes`, and nothing changes them for as long as the result lives.
unsafe fn label_maps(maps: &PlimsollLabelMaps) -> Result<LabelMaps<'_>, Failure> {
    let PlimsollLabelMaps { prediction, reference, map_bytes, shape, spacing } = *maps;
    let mut extents = [0_usize; 3];
    for (to, from) in extents.iter_mut().zip(shape) {
        *to = usize::try_from(from).unwrap_or(usize::MAX);
    }
    if extents.contains(&0) {
        return Err(Failure::argument(format!("label maps of shape {shape:?} have no voxels")));
    }
    if let Some(found) = spacing.iter().find(|length| !(length.is_finite() && **length > 0.0)) {
        return Err(Failure::argument(format!("a spacing is {found} mm, but must be above 0")));
    }
    let needed = extents.iter().try_fold(1_usize, |all, extent| all.checked_mul(*extent));
    let slice = |what: &str, map: *const u8| -> Result<_, Failure> {
        let bytes = expect_bytes(what, needed, map_bytes, map.is_null())?;
        // SAFETY: it is not null and has as many bytes as the caller states, which is what the shape needs and no more than `isize::MAX`.
        Ok(unsafe { std::slice::from_raw_parts(map, bytes) })
    };
    let (prediction, reference) = (slice("the prediction", prediction)?, slice("the reference", reference)?);
    Ok(LabelMaps { prediction, reference, shape: extents, spacing })
}

/// The scores of each label.
fn evaluated(
    maps: &LabelMaps<'_>,
    comparison: PlimsollComparison,
    labels: &[u8],
) -> Result<Vec<PlimsollScores>, Failure> {
    let PlimsollComparison { ram_bytes, threads, surface, tolerance } = comparison;
    if threads == 0 || threads > MOST_THREADS {
        return Err(Failure::argument(format!("threads is {threads}, but must be from 1 to {MOST_THREADS}")));
    }
    if !(tolerance.is_finite() && tolerance >= 0.0) {
        return Err(Failure::argument(format!("the tolerance is {tolerance} mm, but must be 0 or more")));
    }
    let mut settings = Settings { tolerance, ..Settings::new(labels.to_vec()) };
    match surface {
        PLIMSOLL_SURFACE_NONE => {}
        PLIMSOLL_SURFACE_ELEMENTS => settings.surface = Surface::Elements,
        PLIMSOLL_SURFACE_VOXELS => settings.surface = Surface::Voxels,
        _ => return Err(Failure::argument(format!("surface is {surface}, but must be 0, 1 or 2"))),
    }
    if surface != PLIMSOLL_SURFACE_NONE {
        settings.groups.insert(Group::Surface);
    }
    let asked = (ram_bytes > 0).then_some(Bytes(ram_bytes));
    let limits = limits(&System::default(), asked);
    if let Some(asked) = asked.filter(|asked| *asked > limits.limit) {
        return Err(Failure::AboveLimit { asked, limit: limits.limit });
    }
    let scores = evaluate_maps(maps, &settings, &Budget::new(limits.limit), threads as usize)?;
    let of_label = |label: &u8| {
        let scores = scores.get(label).and_then(|scores| PlimsollScores::new(*label, scores));
        scores.ok_or(Failure::NoScores { label: *label })
    };
    labels.iter().map(of_label).collect()
}
