//! The storage of a parameter in a weight file, and its reading.

use std::path::Path;

use plimsoll_graph::{Shape, TensorId, TensorInfo};
use plimsoll_nn::weights::{WeightError, WeightFile, exchange_axes};

use super::kernel::AdaptedKernel;
use super::positions::AdaptedPositions;
use super::upkern::read_resampled;

/// Channels of images that networks for photographs are trained on.
pub(super) const COLOURS: usize = 3;

/// The shape of weights with three times as many input channels.
pub(super) fn coloured(shape: &Shape) -> Shape {
    let extents = shape.0.iter().enumerate();
    Shape(extents.map(|(axis, extent)| if axis == 1 { COLOURS * extent } else { *extent }).collect())
}

/// Reads weights of an image of three channels, and sums them over these.
pub(super) fn read_summed(
    file: &mut WeightFile,
    name: &str,
    shape: &Shape,
    values: &mut [f32],
) -> Result<(), WeightError> {
    let taps = shape.spatial().iter().product::<usize>().max(1);
    values.fill(0.0);
    file.each_run(name, &coloured(shape), &mut |first, run| {
        for (place, weight) in (first..).zip(run) {
            let (output, tap) = (place / (COLOURS * taps), place % taps);
            if let Some(value) = values.get_mut(output * taps + tap) {
                *value += weight;
            }
        }
    })
}

/// Reads a part of a tensor, which begins with the element `first`.
fn read_part(
    file: &mut WeightFile,
    name: &str,
    whole: &Shape,
    first: usize,
    values: &mut [f32],
) -> Result<(), WeightError> {
    file.each_run(name, whole, &mut |start, run| {
        for (place, weight) in (start..).zip(run) {
            if let Some(value) = place.checked_sub(first).and_then(|place| values.get_mut(place)) {
                *value = *weight;
            }
        }
    })
}

/// A step with such values would make all others like them, and the learning rate would be blamed.
fn check_finite(path: &Path, name: &str, values: &[f32]) -> Result<(), WeightError> {
    match values.iter().filter(|value| !value.is_finite()).count() {
        0 => Ok(()),
        count => {
            Err(WeightError::NotFinite { path: path.into(), name: name.into(), count, of: values.len() })
        }
    }
}

/// The tensor of a file that is a parameter.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) id: TensorId,
    pub(super) name: String,
    pub(super) held: ParameterStorage,
}

impl Found {
    /// Reads its values, which have to be finite.
    pub(super) fn read(
        &self,
        file: &mut WeightFile,
        path: &Path,
        info: &TensorInfo,
        values: &mut [f32],
    ) -> Result<(), WeightError> {
        match &self.held {
            ParameterStorage::Itself => file.read_named(&self.name, &info.shape, values)?,
            ParameterStorage::OfColours => read_summed(file, &self.name, &info.shape, values)?,
            ParameterStorage::OtherKernel { stored } => {
                read_resampled(file, &self.name, stored, &info.shape, values)?;
            }
            ParameterStorage::Exchanged { stored } => {
                file.read_named(&self.name, stored, values)?;
                exchange_axes(values, stored.dim(0));
            }
            ParameterStorage::Part { whole, first } => read_part(file, &self.name, whole, *first, values)?,
            ParameterStorage::Adapted(kernel) => kernel.read(file, path, &self.name, values)?,
            ParameterStorage::OtherGrid(positions) => positions.read(file, &self.name, values)?,
        }
        check_finite(path, &self.name, values)
    }
}

/// The storage of a parameter in a file.
#[derive(Debug, PartialEq)]
pub(super) enum ParameterStorage {
    /// A tensor of its own.
    Itself,
    /// With weights for three channels of an image, which are summed.
    OfColours,
    /// With kernels of another extent, which are resampled.
    OtherKernel {
        /// The shape of the tensor.
        stored: Shape,
    },
    /// With the first two axes in the opposite order.
    Exchanged {
        /// The shape of the tensor.
        stored: Shape,
    },
    /// With another kernel, or for one image channel.
    Adapted(AdaptedKernel),
    /// With vectors for the positions of another grid.
    OtherGrid(AdaptedPositions),
    /// A part of a tensor: parameters that share a name in files are rows of one tensor, in the order of the program.
    Part {
        /// The shape of the tensor.
        whole: Shape,
        /// Its first element that is of the parameter.
        first: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_not_finite_are_counted_under_the_names_of_file_and_tensor() {
        let path = Path::new("weights.pth");
        check_finite(path, "a", &[0.0, -f32::MAX, f32::MIN_POSITIVE]).unwrap();
        let error = check_finite(path, "a", &[f32::NAN, 1.0, f32::NEG_INFINITY]).unwrap_err();
        assert_eq!(error.to_string(), "weights.pth: 2 of the 3 values of `a` are not finite");
    }
}
