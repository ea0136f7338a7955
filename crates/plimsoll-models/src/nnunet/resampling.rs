//! The resampling of images, logits and labels by nnU-Net's functions and their arguments.

use plimsoll_data::{Interpolation, LabelTies, Resizing};

use super::NnUnetError;
use super::entry::Entry;
use super::plans::{Configuration, one_of};

/// Splines of SciPy, as scikit-image calls them; nnU-Net's default.
const BY_SPLINES: &str = "resample_data_or_seg_to_shape";
/// Linear interpolation of PyTorch, of plans whose names end in `torchres`.
const BY_PYTORCH: &str = "resample_torch_fornnunet";

/// From which ratio of spacings on slices are resized for themselves.
const ANISOTROPY: f64 = 3.0;

/// A method of resampling.
pub(super) struct Resampling {
    pub(super) resizing: Resizing,
    /// The rule for voxels with several labels of equal weight.
    pub(super) ties: LabelTies,
}

/// Reads the function `name` of a configuration, and its arguments. It is `of_labels` or of numbers.
///
/// # Errors
/// Returns an error if the function is another one, or has an argument that nothing is known of.
pub(super) fn resampling(
    configuration: &Configuration<'_>,
    name: &str,
    of_labels: bool,
) -> Result<Resampling, NnUnetError> {
    let entry = configuration.need(name)?;
    let function = one_of(&entry, "function that resamples", &[BY_SPLINES, BY_PYTORCH])?;
    let by_pytorch = function == BY_PYTORCH;
    let mut resampling = match by_pytorch {
        true => Resampling {
            resizing: Resizing {
                order: Interpolation::Linear,
                order_across: Interpolation::Nearest,
                slices: None,
            },
            ties: LabelTies::Lowest,
        },
        false => Resampling {
            resizing: Resizing {
                order: Interpolation::Cubic,
                order_across: Interpolation::Nearest,
                slices: Some(false),
            },
            ties: LabelTies::Nearest,
        },
    };
    let is_seg = match configuration.get(&format!("{name}_kwargs")) {
        Some(arguments) => read_arguments(&arguments, &mut resampling.resizing, function, of_labels)?,
        None => false,
    };
    if is_seg != of_labels {
        return Err(entry.refuse(format!("its `is_seg` must be {of_labels}")));
    }
    Ok(resampling)
}

/// Reads the arguments of a resampling function into `resizing`, and returns its `is_seg`.
fn read_arguments(
    arguments: &Entry<'_>,
    resizing: &mut Resizing,
    function: &str,
    of_labels: bool,
) -> Result<bool, NnUnetError> {
    let by_pytorch = function == BY_PYTORCH;
    let mut is_seg = false;
    let Some(object) = arguments.value().as_object() else {
        return Err(arguments.refuse("it must have entries of names"));
    };
    for argument in object.keys() {
        let Some(value) = arguments.get(argument)? else {
            // Without a value it depends on the spacings.
            if argument == "force_separate_z" {
                resizing.slices = None;
            }
            continue;
        };
        match argument.as_str() {
            "is_seg" => is_seg = value.truth()?,
            "force_separate_z" => resizing.slices = Some(value.truth()?),
            "separate_z_anisotropy_threshold" if value.number()? == ANISOTROPY => {}
            "separate_z_anisotropy_threshold" => {
                return Err(
                    value.refuse(format!("slices are resampled separately from a ratio of {ANISOTROPY}"))
                );
            }
            "order" if !by_pytorch => resizing.order = spline(&value)?,
            "order_z" if !by_pytorch => resizing.order_across = spline(&value)?,
            // Threads change no number, and neither does how labels are kept in memory where there are none.
            "num_threads" if by_pytorch => _ = value.whole(1, usize::from(u16::MAX))?,
            "memefficient_seg_resampling" if by_pytorch => {
                if value.truth()? && of_labels {
                    return Err(value.refuse("labels are chosen by the largest weight, as without it"));
                }
            }
            "mode" if by_pytorch => _ = one_of(&value, "interpolation", &["linear"])?,
            "aniso_axis_mode" if by_pytorch => {
                resizing.order_across = match one_of(&value, "interpolation", &["nearest-exact", "linear"])? {
                    // nnU-Net decides labels within slices first, and then those between slices from these: not once, from all
                    // weights together, as is done here.
                    "linear" if of_labels => {
                        return Err(value.refuse(
                            "labels between slices come from the nearest slice: it must be nearest-exact",
                        ));
                    }
                    "linear" => Interpolation::Linear,
                    _ => Interpolation::Nearest,
                };
            }
            _ => return Err(value.refuse(format!("`{function}` does not have this argument"))),
        }
    }
    Ok(is_seg)
}

fn spline(entry: &Entry<'_>) -> Result<Interpolation, NnUnetError> {
    match entry.whole(0, 5)? {
        0 => Ok(Interpolation::Nearest),
        1 => Ok(Interpolation::Linear),
        3 => Ok(Interpolation::Cubic),
        _ => Err(entry.refuse("splines of order 0, 1 and 3 are supported")),
    }
}
