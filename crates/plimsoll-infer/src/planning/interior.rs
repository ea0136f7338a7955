//! Windows of which the voxels inside of a margin count: how an image is divided if one window over all of it does not fit.

use plimsoll_memory::{Budget, Bytes, Mapped};
use plimsoll_models::{SegmentationModel, WindowLayout};
use plimsoll_nn::names;
use plimsoll_plan::Backend;

use super::engines::least_engine;
use crate::error::InferError;
use crate::options::PredictOptions;
use crate::summing::buffers::Buffers;
use crate::summing::forward::{find, forward_program};

/// The fewest voxels of a window inside of its margins along an axis. Shorter windows would compute margins and little else.
const FEWEST_INSIDE: usize = 16;

/// The extent of the windows of a model under a limit: its own, or if the layout lets them be smaller, those that divide its own with the
/// fewest voxels to compute, among the ones whose engine takes at most half of what the limit leaves. The other half is for sums and images,
/// which are cut to what is left. If none does, the windows with the fewest voxels.
///
/// # Errors
/// Returns an error if the network is impossible, or the backend has no kernels for it.
pub(crate) fn window_below(
    model: &SegmentationModel,
    options: &PredictOptions,
    backend: &dyn Backend,
    budget: &Budget,
) -> Result<[usize; 3], InferError> {
    let WindowLayout::Interior { margin, .. } = model.windows else { return Ok(model.patch) };
    let mut model = model.clone();
    let mut smallest = model.patch;
    let mut tried: Option<usize> = None;
    for window in divided(model.patch, margin) {
        let voxels = volume(window);
        // Windows that are no smaller than ones that do not fit do not either.
        if tried.is_some_and(|too_many| voxels >= too_many) {
            continue;
        }
        model.patch = window;
        let program = forward_program(&model, options, backend)?;
        let engine = least_engine(&program, backend)?;
        let buffers = Mapped::<f32>::bytes(Buffers::numbers(&program, find(&program, names::IMAGE)?))?;
        if Bytes(2 * (engine.arena + buffers).0) <= budget.free() && engine.left_there.is_some() {
            return Ok(window);
        }
        (smallest, tried) = (window, Some(voxels));
    }
    Ok(smallest)
}

/// Windows that divide an extent, ordered by the voxels of all of them together. The first one is the extent itself. Of windows with
/// equally many, those that are divided along an earlier axis come first.
fn divided(extent: [usize; 3], margin: usize) -> Vec<[usize; 3]> {
    let [depth, height, width] = extent.map(|extent| divided_axis(extent, margin));
    let mut found = Vec::with_capacity(depth.len() * height.len() * width.len());
    for z in &depth {
        for y in &height {
            for x in &width {
                let axes = [z, y, x];
                let counts = axes.map(|axis| axis.count);
                let computed = axes.iter().map(|axis| axis.count * axis.window).product::<usize>();
                found.push((computed, counts, axes.map(|axis| axis.window)));
            }
        }
    }
    found.sort_by(|(a, a_counts, _), (b, b_counts, _)| a.cmp(b).then(b_counts.cmp(a_counts)));
    found.into_iter().map(|(_, _, window)| window).collect()
}

/// Windows along an axis.
struct Divided {
    count: usize,
    /// The extent of each.
    window: usize,
}

/// Returns the shortest windows for each number of them. Numbers above eight are about a quarter apart, so that there are few.
fn divided_axis(extent: usize, margin: usize) -> Vec<Divided> {
    let mut found = vec![Divided { count: 1, window: extent }];
    let mut count = 2;
    loop {
        // Neighbours overlap by two margins, so that what counts of them follows without a gap.
        let window = (extent + (count - 1) * 2 * margin).div_ceil(count);
        if window < 2 * margin + FEWEST_INSIDE || window >= extent {
            return found;
        }
        found.push(Divided { count, window });
        count += (count / 4).max(1);
    }
}

fn volume(window: [usize; 3]) -> usize {
    window.iter().product()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summing::windows::Starts;

    #[test]
    fn windows_of_an_axis_are_as_many_as_they_are_counted() {
        for (extent, margin) in [(256, 46), (64, 6), (300, 0), (40, 12), (28, 6), (16, 8)] {
            for Divided { count, window } in divided_axis(extent, margin) {
                assert_eq!(Starts::interior(extent, window, margin).count(), count, "{extent} {margin}");
                let shorter = Starts::interior(extent, window - 1, margin).count();
                assert!(shorter > count, "{extent} {margin}: {count} windows of {window} could be shorter");
            }
        }
    }

    #[test]
    fn an_image_is_divided_along_as_few_axes_as_fit() {
        let windows = divided([256; 3], 46);
        assert_eq!(windows[..4], [[256; 3], [174, 256, 256], [256, 174, 256], [256, 256, 174]]);
        let halves = windows.iter().position(|window| *window == [174; 3]);
        let quarters = windows.iter().position(|window| *window == [174, 174, 256]);
        assert!(quarters < halves, "four windows compute less than eight");
        assert!(windows.iter().flatten().all(|extent| *extent >= 2 * 46 + FEWEST_INSIDE));
    }
}
