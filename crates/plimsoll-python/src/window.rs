//! Windows of an image, whose logits a function of the caller computes.

use plimsoll_infer::{WindowError, WindowSums};
use plimsoll_memory::MapError;

use crate::Failure;

/// The array that receives the result of windows.
pub enum WindowOutput<'a> {
    /// The bytes of labels `[depth][height][width]`, of [`WindowSums::label_bytes`] each.
    Labels(&'a mut [u8]),
    /// Mean logits `[output][depth][height][width]`.
    Logits(&'a mut [f32]),
}

/// Adds the logits `[window][output][depth][height][width]` of the next windows, and writes the voxels that they decide.
///
/// # Errors
/// If an array has the wrong length, a number is not finite, or there are fewer windows.
pub fn add_windows(
    sums: &mut WindowSums,
    logits: &[f32],
    output: &mut WindowOutput<'_>,
) -> Result<(), Failure> {
    let (image, numbers) = (sums.image(), sums.numbers_of_window());
    if !logits.len().is_multiple_of(numbers) {
        return Err(Failure::argument("logits", format!("are not whole windows of {numbers} numbers")));
    }
    let mut fits = true;
    for window in logits.chunks_exact(numbers) {
        sums.add(window, &mut |slice| {
            fits &= match output {
                WindowOutput::Labels(to) => slice.write_labels(image, to),
                WindowOutput::Logits(to) => slice.write_logits(image, to),
            };
        })?;
    }
    match fits {
        true => Ok(()),
        false => Err(Failure::argument("output", "does not have the shape of the image")),
    }
}

impl From<WindowError> for Failure {
    fn from(error: WindowError) -> Failure {
        let text = error.to_string();
        match error {
            WindowError::OverBudget(over) | WindowError::Memory(MapError::OverBudget(over)) => {
                Failure::OverLimit(over)
            }
            WindowError::Image(_) => Failure::Argument { argument: "image", message: text },
            WindowError::Window { window } => {
                Failure::argument("roi_size", format!("is {window:?}, which has no voxel"))
            }
            WindowError::Overlap { overlap } => {
                Failure::argument("overlap", format!("is {overlap}, but must be at least 0 and less than 1"))
            }
            WindowError::SigmaScale { scale } => {
                Failure::argument("sigma_scale", format!("is {scale}, but must be positive and finite"))
            }
            WindowError::NotFinite { .. } => {
                let remedy = "check the function's weights and the range of the image's values";
                Failure::Failed { message: text, remedy: Some(remedy.into()) }
            }
            WindowError::Outputs { .. }
            | WindowError::Length { .. }
            | WindowError::Finished { .. }
            | WindowError::Memory(_)
            | WindowError::Internal(_) => Failure::Failed { message: text, remedy: None },
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_infer::{RingStorage, WindowRequest};
    use plimsoll_memory::{Budget, Bytes};

    use super::*;

    const REQUEST: WindowRequest = WindowRequest {
        image: [2, 3, 8],
        window: [2, 3, 4],
        overlap: [0.0; 3],
        sigma_scale: None,
        outputs: 2,
        logits: false,
        storage: RingStorage::F32,
        threads: 1,
    };

    #[test]
    fn labels_of_two_windows_are_written_to_an_array() {
        let mut sums = WindowSums::new(&REQUEST, &Budget::new(Bytes::mib(1))).unwrap();
        let starts: Vec<_> = sums.starts(9).collect();
        assert_eq!(starts, [[0, 0, 0], [0, 0, 4]]);
        // The first class wins in the first window, and the second in the second.
        let logits: Vec<f32> = [1.0, 0.0, 0.0, 1.0].into_iter().flat_map(|logit| [logit; 24]).collect();
        let mut labels = [9; 48];
        add_windows(&mut sums, &logits, &mut WindowOutput::Labels(&mut labels)).unwrap();
        let expected: Vec<u8> = (0..48).map(|voxel| u8::from(voxel % 8 >= 4)).collect();
        assert_eq!(labels[..], expected);
    }

    #[test]
    fn arrays_of_other_lengths_and_a_low_limit_name_what_is_wrong() {
        let mut sums = WindowSums::new(&REQUEST, &Budget::new(Bytes::mib(1))).unwrap();
        let short = add_windows(&mut sums, &[0.0; 47], &mut WindowOutput::Labels(&mut []));
        assert!(short.unwrap_err().to_string().starts_with("logits are not whole windows of 48"));
        let narrow = add_windows(&mut sums, &[0.0; 96], &mut WindowOutput::Labels(&mut [0; 5]));
        assert!(narrow.unwrap_err().to_string().starts_with("output does not have the shape"));
        let low = WindowSums::new(&REQUEST, &Budget::new(Bytes(1000))).err().map(Failure::from);
        assert!(matches!(low, Some(Failure::OverLimit(_))));
    }
}
