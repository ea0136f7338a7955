//! Classes of images.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_data::pictures::Largest;
use plimsoll_graph::TensorId;
use plimsoll_memory::{Budget, Mapped};
use plimsoll_models::Model;
use plimsoll_nn::{names, predict};
use plimsoll_plan::Backend;

use crate::classification::image_network::ImageNetwork;
use crate::error::InferError;

/// A classifier ready to predict.
pub struct ImagePredictor {
    network: ImageNetwork,
    logits: TensorId,
    mirrored: Mapped<f32>,
    /// The mirrored copies of an image that are averaged: (top and bottom, left and right).
    mirrors: Vec<[bool; 2]>,
}

impl ImagePredictor {
    /// Plans the network's forward pass over one image, and allocates all that it takes for images up to a size. With `mirror`
    /// probabilities are means over an image and its three mirrored copies.
    ///
    /// # Errors
    /// Returns an error if the model does not give images classes, the budget has no room, or its files are not sound.
    pub fn new(
        model: Model,
        largest: Largest,
        mirror: bool,
        threads: usize,
        backend: &Arc<dyn Backend>,
        budget: &Budget,
    ) -> Result<ImagePredictor, InferError> {
        let training = &model.config.training;
        let program =
            predict(training.net.as_architecture(), training.patch, 1, backend.storage(training.precision))?;
        let network = ImageNetwork::new(model, program, largest, threads, backend, budget)?;
        let sides = [false, true];
        let mirrors = if mirror {
            sides.iter().flat_map(|rows| sides.iter().map(move |columns| [*rows, *columns])).collect()
        } else {
            vec![[false, false]]
        };
        Ok(ImagePredictor {
            logits: network.find(names::LOGITS)?,
            mirrored: Mapped::zeroed(budget, "images", network.input.len())?,
            mirrors,
            network,
        })
    }

    /// Adds the probabilities of each image's classes to `sums`, `[image][class]`: means over the model's folds and over mirrored
    /// copies. Images that cannot be read are left as they are, and their errors returned with their places. `done` is told how many
    /// passes over an image are done, of all.
    ///
    /// # Errors
    /// Returns an error if weights cannot be read, the network's output is not finite, or `stop` is set.
    ///
    /// # Panics
    /// Panics if there is not room for exactly as many sums as images have classes.
    pub fn add_probabilities(
        &mut self,
        images: &[(&str, &Path)],
        sums: &mut [f64],
        stop: &AtomicBool,
        done: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<(usize, plimsoll_image::ImageError)>, InferError> {
        let ImagePredictor { network, logits: output, mirrored, mirrors } = self;
        let classes = network.task.labels.len();
        assert_eq!(sums.len(), images.len() * classes, "room for other images");
        let folds = network.folds();
        let share = 1.0 / (folds * mirrors.len()) as f64;
        let mut failed = Vec::new();
        let mut logits = vec![0.0; network.task.answer().outputs()];
        for fold in 0..folds {
            network.load(fold)?;
            for (place, ((name, path), sums)) in images.iter().zip(sums.chunks_exact_mut(classes)).enumerate()
            {
                if stop.load(Ordering::Relaxed) {
                    return Err(InferError::Interrupted { case: (*name).into() });
                }
                if let Err(problem) = network.read_image(path) {
                    if fold == 0 {
                        failed.push((place, problem));
                    }
                    continue;
                }
                for sides in &*mirrors {
                    let extent = network.pipeline.extent();
                    mirror(&network.input, mirrored, [extent.height, extent.width], *sides);
                    network.run(mirrored)?;
                    network.read(*output, &mut logits)?;
                    network.expect_finite(&logits, name, fold)?;
                    network.task.add_probabilities(&logits, share, sums);
                }
                done(fold * images.len() + place + 1, folds * images.len());
            }
        }
        Ok(failed)
    }
}

/// Copies an image `[channel][row][column]`, with rows or columns in reversed order.
fn mirror(from: &[f32], to: &mut [f32], [height, width]: [usize; 2], [rows, columns]: [bool; 2]) {
    let planes = from.chunks_exact(height * width).zip(to.chunks_exact_mut(height * width));
    for (from, to) in planes {
        for (row, to) in to.chunks_exact_mut(width).enumerate() {
            let row = if rows { height - 1 - row } else { row };
            let from = &from[row * width..][..width];
            match columns {
                true => to.iter_mut().zip(from.iter().rev()).for_each(|(to, from)| *to = *from),
                false => to.copy_from_slice(from),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrored_images_are_reversed_along_their_axes() {
        let image = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let of = |sides| {
            let mut to = [0.0; 6];
            mirror(&image, &mut to, [2, 3], sides);
            to
        };
        assert_eq!(of([false, false]), image);
        assert_eq!(of([false, true]), [3.0, 2.0, 1.0, 6.0, 5.0, 4.0]);
        assert_eq!(of([true, false]), [4.0, 5.0, 6.0, 1.0, 2.0, 3.0]);
        assert_eq!(of([true, true]), [6.0, 5.0, 4.0, 3.0, 2.0, 1.0]);
    }
}
