//! Maps of the image regions that support a classifier's prediction.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_data::pictures::Largest;
use plimsoll_graph::TensorId;
use plimsoll_image::{Extent, ImageError};
use plimsoll_memory::{Budget, Mapped};
use plimsoll_models::Model;
use plimsoll_nn::{explain, names};
use plimsoll_plan::Backend;

use crate::classification::image_network::ImageNetwork;
use crate::error::InferError;

/// A question to explain: why an image would be of a class.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The image's name, for errors.
    pub name: &'a str,
    /// Its file.
    pub path: &'a Path,
    /// The place of the class among those that the network tells apart.
    pub class: usize,
}

/// A classifier ready to be explained by Grad-CAM (Selvaraju et al. 2017, arXiv:1610.02391).
pub struct ImageExplainer {
    network: ImageNetwork,
    score: TensorId,
    features: TensorId,
    feature_weights: TensorId,
    /// Room for what is read of them.
    map: Mapped<f32>,
    weights: Mapped<f32>,
    extent: Extent,
}

impl ImageExplainer {
    /// Plans the network's forward pass over one image and the gradient of its head, and allocates all that they take for images up
    /// to a size.
    ///
    /// # Errors
    /// Returns an error if the model does not give images classes by the mean of a map, the budget has no room, or its files are not sound.
    pub fn new(
        model: Model,
        largest: Largest,
        threads: usize,
        backend: &Arc<dyn Backend>,
        budget: &Budget,
    ) -> Result<ImageExplainer, InferError> {
        let training = &model.config.training;
        let program =
            explain(training.net.as_architecture(), training.patch, backend.storage(training.precision))?;
        let network = ImageNetwork::new(model, program, largest, threads, backend, budget)?;
        let features = network.find(names::FEATURES)?;
        let [channels, height, width] = network.map_shape(features);
        Ok(ImageExplainer {
            score: network.find(names::SCORE)?,
            features,
            feature_weights: network.find(names::FEATURE_WEIGHTS)?,
            map: Mapped::zeroed(budget, "images", channels * height * width)?,
            weights: Mapped::zeroed(budget, "images", channels)?,
            extent: Extent { height, width },
            network,
        })
    }

    /// Rows and columns of a map.
    pub fn map_extent(&self) -> Extent {
        self.extent
    }

    /// Rows and columns of an image as the network takes it.
    pub fn image_extent(&self) -> Extent {
        self.network.pipeline.extent()
    }

    /// 1 or 3.
    pub fn image_channels(&self) -> usize {
        self.network.pipeline.channels()
    }

    /// An image as the network takes it, before it is normalised: `[row][column][channel]`.
    ///
    /// # Errors
    /// Returns an error if it cannot be read.
    pub fn image(&mut self, path: &Path) -> Result<&[u8], ImageError> {
        self.network.prepare(path)
    }

    /// For each question a map `[row][column]` of what speaks for the class, 0 or more, summed over the model's folds. `done` is told
    /// how many are done, of all.
    ///
    /// # Errors
    /// Returns an error if weights or an image cannot be read, what the network says is not finite, or `stop` is set.
    ///
    /// # Panics
    /// Panics if there is not room for exactly as many maps as questions.
    pub fn maps(
        &mut self,
        questions: &[Question<'_>],
        maps: &mut [f32],
        stop: &AtomicBool,
        done: &mut dyn FnMut(usize, usize),
    ) -> Result<(), InferError> {
        let pixels = self.extent.pixels();
        assert_eq!(maps.len(), questions.len() * pixels, "room for other maps");
        maps.fill(0.0);
        for fold in 0..self.network.folds() {
            self.network.load(fold)?;
            for (place, (question, to)) in questions.iter().zip(maps.chunks_exact_mut(pixels)).enumerate() {
                let Question { name, path, class } = *question;
                if stop.load(Ordering::Relaxed) {
                    return Err(InferError::Interrupted { case: name.into() });
                }
                let network = &mut self.network;
                network.read_image(path)?;
                let score = network.task.score_of(class);
                network.write(self.score, &score)?;
                network.run_input()?;
                network.read(self.features, &mut self.map)?;
                network.read(self.feature_weights, &mut self.weights)?;
                network.expect_finite(&self.map, name, fold)?;
                network.expect_finite(&self.weights, name, fold)?;
                add_positive(&self.map, &self.weights, to);
                done(fold * questions.len() + place + 1, self.network.folds() * questions.len());
            }
        }
        Ok(())
    }
}

/// Adds the positive part of Σ weight · channel to `to`, of a map `[channel][pixel]`.
fn add_positive(map: &[f32], weights: &[f32], to: &mut [f32]) {
    let pixels = to.len();
    for (pixel, to) in to.iter_mut().enumerate() {
        let channels = map.iter().skip(pixel).step_by(pixels).zip(weights);
        *to += channels.map(|(value, weight)| value * weight).sum::<f32>().max(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_speaks_against_a_class_is_not_in_its_map() {
        let mut map = [0.5; 2];
        add_positive(&[1.0, 2.0, 3.0, -1.0], &[2.0, 1.0], &mut map);
        assert_eq!(map, [5.5, 3.5]);
        add_positive(&[1.0, 2.0, 3.0, -1.0], &[-4.0, 1.0], &mut map);
        assert_eq!(map, [5.5, 3.5]);
    }
}
