//! What a user may set of data sets of images, and how images become the input of a network.

use plimsoll_data::Sampling;
use plimsoll_image::process::resize::Filter;
use plimsoll_image::{Augmentation, PipelineSettings, Step, TableSettings};
use serde::{Deserialize, Serialize};

/// Rows and columns where nothing else is set: what torchvision's networks expect.
const SIZE: [usize; 2] = [224, 224];

/// What a user may set of images.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ImageSettings {
    /// Height and width that images are resized to, in pixels [default: 224 × 224].
    pub size: Option<[usize; 2]>,
    /// 1, grey, or 3, RGB [default: 3].
    pub channels: Option<usize>,
    /// The filter of resizing [default: bilinear].
    pub filter: Option<Filter>,
    /// The grey up to which the border of a photograph of the retina is dark, and cropped [default: nothing is cropped].
    pub circle_crop: Option<u8>,
    /// Equalises lightness locally before resizing: the most that a level may have, as a multiple of a uniform histogram [default: not
    /// equalised].
    pub clahe: Option<f64>,
    /// Ben Graham's filter after resizing: the deviation of its blur, in pixels [default: not filtered].
    pub ben_graham: Option<f64>,
    /// How the images of a step are chosen [default: shuffled].
    pub sampling: Option<Sampling>,
    /// The classes that are told apart [default: all].
    pub classes: Option<Vec<String>>,
    /// How images are changed at random [default: rotated up to 10°, mirrored, brightness and contrast within 10 %].
    pub augmentation: Option<Augmentation>,
    /// Columns, where images are listed in a table [default: `image` and `label`].
    pub table: Option<TableSettings>,
}

impl ImageSettings {
    /// These settings where they say something, else those of `other`.
    pub fn or(self, other: ImageSettings) -> ImageSettings {
        ImageSettings {
            size: self.size.or(other.size),
            channels: self.channels.or(other.channels),
            filter: self.filter.or(other.filter),
            circle_crop: self.circle_crop.or(other.circle_crop),
            clahe: self.clahe.or(other.clahe),
            ben_graham: self.ben_graham.or(other.ben_graham),
            sampling: self.sampling.or(other.sampling),
            classes: self.classes.or(other.classes),
            augmentation: self.augmentation.or(other.augmentation),
            table: self.table.or(other.table),
        }
    }

    /// How an image becomes the input of a network.
    pub fn pipeline(&self) -> PipelineSettings {
        let [height, width] = self.size.unwrap_or(SIZE);
        let crop = self.circle_crop.map(|tolerance| Step::CircleCrop { tolerance });
        let clahe = self.clahe.map(|clip| Step::Clahe { clip, tiles: [8, 8] });
        let resize = Step::Resize { height, width, filter: self.filter.unwrap_or_default() };
        let graham = self.ben_graham.map(|sigma| Step::BenGraham { sigma });
        PipelineSettings {
            channels: self.channels.unwrap_or(3),
            steps: [crop, clahe, Some(resize), graham].into_iter().flatten().collect(),
            ..PipelineSettings::default()
        }
    }

    /// How images are changed at random.
    pub fn augmentation(&self) -> Augmentation {
        self.augmentation.clone().unwrap_or(Augmentation {
            degrees: 10.0,
            flip_horizontal: 0.5,
            brightness: 0.1,
            contrast: 0.1,
            ..Augmentation::default()
        })
    }
}
