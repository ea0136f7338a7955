//! The augmentation of a sample: random parameters, drawn once, as a function of seed, step and sample alone.

use plimsoll_random::{Draws, Purpose};
use serde::{Deserialize, Serialize};

use crate::pictures::SettingError;
use crate::pictures::error::check;
use plimsoll_image::Extent;
use plimsoll_image::process::affine::AffineChange;
use plimsoll_image::process::jitter::ColourChange;
use plimsoll_image::process::tensor::{Erasure, Filling, Mixing};

/// The number of rectangles that are drawn before an image is left unchanged because none fitted.
const ATTEMPTS: usize = 10;

/// Ranges of random changes, in the order in which they are applied. By default there are none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Augmentation {
    /// Rotates by up to this many degrees, either way.
    pub degrees: f64,
    /// Shifts by up to this share of width and height, either way, by whole pixels.
    pub shift: [f64; 2],
    /// Scales by a factor between these.
    pub scale: [f64; 2],
    /// Shears parallel to x and y by up to this many degrees, either way.
    pub shear: [f64; 2],
    /// The probability that left and right are exchanged.
    pub flip_horizontal: f64,
    /// The probability that top and bottom are exchanged.
    pub flip_vertical: f64,
    /// The factor of brightness is between 1 less and 1 more this, but not below 0.
    pub brightness: f64,
    /// The same for contrast.
    pub contrast: f64,
    /// The same for saturation.
    pub saturation: f64,
    /// Turns the hue by up to this share of the circle, either way.
    pub hue: f64,
    /// Blurs.
    pub blur: Blurring,
    /// Erases a rectangle.
    pub erase: Erasing,
    /// Mixes with another sample of the batch: the parameter of a symmetric beta distribution of shares. 0 does not mix.
    pub mixup: f64,
}

/// The probability and the strength of blurring.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Blurring {
    /// The probability.
    pub probability: f64,
    /// The deviation, in pixels, is between these.
    pub sigma: [f64; 2],
}

impl Default for Blurring {
    /// Never; torchvision's range.
    fn default() -> Blurring {
        Blurring { probability: 0.0, sigma: [0.1, 2.0] }
    }
}

/// The probability of erasing a rectangle, and its size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Erasing {
    /// The probability.
    pub probability: f64,
    /// Its share of the image is between these.
    pub area: [f64; 2],
    /// Its height over its width is between these; the logarithm is drawn uniformly.
    pub ratio: [f64; 2],
    /// Fills it with noise; otherwise with the mean.
    pub noise: bool,
}

impl Default for Erasing {
    /// Never; torchvision's ranges.
    fn default() -> Erasing {
        Erasing { probability: 0.0, area: [0.02, 0.33], ratio: [0.3, 3.3], noise: false }
    }
}

impl Default for Augmentation {
    fn default() -> Augmentation {
        Augmentation {
            degrees: 0.0,
            shift: [0.0; 2],
            scale: [1.0; 2],
            shear: [0.0; 2],
            flip_horizontal: 0.0,
            flip_vertical: 0.0,
            brightness: 0.0,
            contrast: 0.0,
            saturation: 0.0,
            hue: 0.0,
            blur: Blurring::default(),
            erase: Erasing::default(),
            mixup: 0.0,
        }
    }
}

/// The augmentation of one sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// A change of position.
    pub affine: Option<AffineChange>,
    /// `true` if left and right are exchanged.
    pub mirrored_columns: bool,
    /// `true` if top and bottom are exchanged.
    pub mirrored_rows: bool,
    /// Changes of colours, in this order.
    pub colours: [Option<ColourChange>; 4],
    /// The deviation of a blur, in pixels.
    pub blur: Option<f64>,
    /// A rectangle that is erased.
    pub erasure: Option<Erasure>,
    /// The mixing with another sample of the batch.
    pub mixing: Option<Mixing>,
}

impl Recipe {
    /// Nothing changes: for validation and prediction.
    pub const NONE: Recipe = Recipe {
        affine: None,
        mirrored_columns: false,
        mirrored_rows: false,
        colours: [None; 4],
        blur: None,
        erasure: None,
        mixing: None,
    };
}

impl Augmentation {
    /// Refuses ranges that make no sense.
    ///
    /// # Errors
    /// If a setting is out of range.
    pub fn check(&self) -> Result<(), SettingError> {
        let Augmentation { shift, scale, shear, blur, erase, .. } = self;
        let share = |value: f64| (0.0..=1.0).contains(&value);
        let rising = |[low, high]: [f64; 2]| low > 0.0 && low <= high && high.is_finite();
        check("degrees", self.degrees, (0.0..=180.0).contains(&self.degrees), "0 to 180")?;
        check("shift", format!("{shift:?}"), shift.iter().all(|at| share(*at)), "from 0 to 1")?;
        check(
            "scale",
            format!("{scale:?}"),
            rising(*scale) && scale[1] <= 100.0,
            "positive, the smaller first",
        )?;
        let tilts = shear.iter().all(|tilt| (0.0..90.0).contains(tilt));
        check("shear", format!("{shear:?}"), tilts, "from 0 to below 90")?;
        for (setting, value) in [
            ("flip_horizontal", self.flip_horizontal),
            ("flip_vertical", self.flip_vertical),
            ("blur.probability", blur.probability),
            ("erase.probability", erase.probability),
        ] {
            check(setting, value, share(value), "0 to 1")?;
        }
        for (setting, value) in
            [("brightness", self.brightness), ("contrast", self.contrast), ("saturation", self.saturation)]
        {
            check(setting, value, (0.0..=100.0).contains(&value), "0 to 100")?;
        }
        check("hue", self.hue, (0.0..=0.5).contains(&self.hue), "0 to 0.5")?;
        check("blur.sigma", format!("{:?}", blur.sigma), rising(blur.sigma), "positive, the smaller first")?;
        let area = rising(erase.area) && erase.area[1] <= 1.0;
        check("erase.area", format!("{:?}", erase.area), area, "positive up to 1, the smaller first")?;
        check(
            "erase.ratio",
            format!("{:?}", erase.ratio),
            rising(erase.ratio),
            "positive, the smaller first",
        )?;
        check("mixup", self.mixup, (0.0..=100.0).contains(&self.mixup), "0 to 100")
    }

    /// The recipe of sample `sample` of step `step`, one of `batch`, for images of `extent`.
    pub fn recipe(&self, seed: u64, step: u64, sample: u64, batch: usize, extent: Extent) -> Recipe {
        let draws = &mut Draws::new(seed, Purpose::Image, 0, step, sample);
        let around =
            |draws: &mut Draws, most: f64| if most > 0.0 { draws.between([-most, most]) } else { 0.0 };
        let [width, height] = [extent.width as f64, extent.height as f64];
        let change = AffineChange {
            degrees: around(draws, self.degrees),
            shift: [around(draws, self.shift[0] * width), around(draws, self.shift[1] * height)]
                .map(|pixels| pixels.round_ties_even() as i64),
            scale: draws.between([self.scale[0], self.scale[1]]),
            shear: [around(draws, self.shear[0]), around(draws, self.shear[1])],
        };
        let mirrored_columns = draws.chance(self.flip_horizontal);
        let mirrored_rows = draws.chance(self.flip_vertical);
        let factor = |draws: &mut Draws, most: f64| {
            (most > 0.0).then(|| draws.between([(1.0 - most).max(0.0), 1.0 + most]))
        };
        let mut colours = [
            factor(draws, self.brightness).map(ColourChange::Brightness),
            factor(draws, self.contrast).map(ColourChange::Contrast),
            factor(draws, self.saturation).map(ColourChange::Saturation),
            (self.hue > 0.0).then(|| ColourChange::Hue(around(draws, self.hue))),
        ];
        draws.shuffle(&mut colours);
        let blur = draws
            .chance(self.blur.probability)
            .then(|| draws.between([self.blur.sigma[0], self.blur.sigma[1]]));
        let erased = draws.chance(self.erase.probability).then(|| self.rectangle(draws, extent)).flatten();
        let filling =
            if self.erase.noise { Filling::Noise { seed, step, sample } } else { Filling::Value(0.0) };
        Recipe {
            affine: (change != AffineChange::NONE).then_some(change),
            mirrored_columns,
            mirrored_rows,
            colours,
            blur,
            erasure: erased.map(|(start, extent)| Erasure { start, extent, filling }),
            mixing: self.mixing(seed, step, sample, batch),
        }
    }

    /// A rectangle that is smaller than the image, if one is found.
    fn rectangle(&self, draws: &mut Draws, image: Extent) -> Option<([usize; 2], Extent)> {
        (0..ATTEMPTS).find_map(|_| {
            let area = image.pixels() as f64 * draws.between([self.erase.area[0], self.erase.area[1]]);
            let ratio = draws.between([self.erase.ratio[0].ln(), self.erase.ratio[1].ln()]).exp();
            let height = (area * ratio).sqrt().round_ties_even() as usize;
            let width = (area / ratio).sqrt().round_ties_even() as usize;
            (height < image.height && width < image.width).then(|| {
                let start = [draws.below(image.height - height + 1), draws.below(image.width - width + 1)];
                (start, Extent { height, width })
            })
        })
    }

    fn mixing(&self, seed: u64, step: u64, sample: u64, batch: usize) -> Option<Mixing> {
        if self.mixup <= 0.0 || batch < 2 {
            return None;
        }
        let mut draws = Draws::new(seed, Purpose::Mixing, 0, step, sample);
        let partner = draws.below(batch);
        Some(Mixing { partner, share: draws.beta(self.mixup)? as f32 })
    }
}
