//! The components that a loss may be made of, with their weights and options.

use serde::{Deserialize, Serialize};

use super::VoxelSum;

/// One weighted term of a loss.
///
/// All that are here follow from sums over voxels and share the passes over the logits that take them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case")]
pub enum Component {
    /// Soft Dice.
    SoftDice(SoftDice),
    /// The logarithm of the hyperbolic cosine of the soft Dice loss (Jadon 2020).
    LogCoshDice(SoftDice),
    /// Generalised Dice (Sudre et al. 2017).
    GeneralizedDice(GeneralizedDice),
    /// Tversky (Salehi et al. 2017).
    Tversky(Tversky),
    /// Focal Tversky (Abraham and Khan 2019).
    FocalTversky(FocalTversky),
    /// Cross-entropy of the softmax.
    CrossEntropy(CrossEntropy),
    /// Binary cross-entropy of each class.
    WeightedBce(WeightedBce),
    /// Focal loss (Lin et al. 2017).
    Focal(Focal),
}

/// 1 − (2 Σpt + n) / (Σp + Σt + d), the mean over samples and classes; as `monai.losses.DiceLoss`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SoftDice {
    /// Factor of the component.
    pub weight: f32,
    /// `true` if a class's sums run over all samples of a batch before the quotient is taken.
    pub batch: bool,
    /// `true` if class 0 counts.
    pub include_background: bool,
    /// `true` if probabilities are squared in the denominator.
    pub squared: bool,
    /// n, added to the numerator.
    pub smooth_numerator: f32,
    /// d, added to the denominator.
    pub smooth_denominator: f32,
    /// A factor for each class, the background among them; none is 1 for all. The mean is still over the number of
    /// classes.
    pub class_weights: Vec<f32>,
}

impl Default for SoftDice {
    fn default() -> SoftDice {
        SoftDice {
            weight: 1.0,
            batch: false,
            include_background: true,
            squared: false,
            smooth_numerator: 1e-5,
            smooth_denominator: 1e-5,
            class_weights: Vec::new(),
        }
    }
}

/// The rule by which a class's weight in the generalised Dice follows from its volume Σt. A class that is absent has
/// the largest weight of those that are not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumeWeight {
    /// 1 / (Σt)².
    #[default]
    Square,
    /// 1 / Σt.
    Simple,
    /// 1.
    Uniform,
}

/// 1 − (2 Σ wᶜ Σpt + n) / (Σ wᶜ (Σp + Σt) + d) over classes c, the mean over samples; as
/// `monai.losses.GeneralizedDiceLoss`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GeneralizedDice {
    /// Factor of the component.
    pub weight: f32,
    /// `true` if sums, and the volumes that weights follow from, run over all samples of a batch.
    pub batch: bool,
    /// `true` if class 0 counts.
    pub include_background: bool,
    /// The weights wᶜ.
    pub volume_weight: VolumeWeight,
    /// n, added to the numerator.
    pub smooth_numerator: f32,
    /// d, added to the denominator.
    pub smooth_denominator: f32,
}

impl Default for GeneralizedDice {
    fn default() -> GeneralizedDice {
        GeneralizedDice {
            weight: 1.0,
            batch: false,
            include_background: true,
            volume_weight: VolumeWeight::Square,
            smooth_numerator: 1e-5,
            smooth_denominator: 1e-5,
        }
    }
}

/// 1 − (Σpt + n) / (Σpt + α Σp(1−t) + β Σ(1−p)t + d), the mean over samples and classes; as `monai.losses.TverskyLoss`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tversky {
    /// Factor of the component.
    pub weight: f32,
    /// α, the weight of false positives.
    pub alpha: f32,
    /// β, the weight of false negatives.
    pub beta: f32,
    /// `true` if a class's sums run over all samples of a batch before the quotient is taken.
    pub batch: bool,
    /// `true` if class 0 counts.
    pub include_background: bool,
    /// n, added to the numerator.
    pub smooth_numerator: f32,
    /// d, added to the denominator.
    pub smooth_denominator: f32,
}

impl Default for Tversky {
    fn default() -> Tversky {
        Tversky {
            weight: 1.0,
            alpha: 0.5,
            beta: 0.5,
            batch: false,
            include_background: true,
            smooth_numerator: 1e-5,
            smooth_denominator: 1e-5,
        }
    }
}

/// (1 − T)^(1/γ) with the quotient T of [`Tversky`], the mean over samples and classes. Where 1 − T is below 10⁻⁶ and γ
/// above 1, the power, whose slope has no bound there, is continued by a straight line to zero.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FocalTversky {
    /// Factor of the component.
    pub weight: f32,
    /// α, the weight of false positives.
    pub alpha: f32,
    /// β, the weight of false negatives.
    pub beta: f32,
    /// γ.
    pub gamma: f32,
    /// `true` if a class's sums run over all samples of a batch before the quotient is taken.
    pub batch: bool,
    /// `true` if class 0 counts.
    pub include_background: bool,
    /// n, added to the numerator.
    pub smooth_numerator: f32,
    /// d, added to the denominator.
    pub smooth_denominator: f32,
}

impl Default for FocalTversky {
    fn default() -> FocalTversky {
        FocalTversky {
            weight: 1.0,
            alpha: 0.3,
            beta: 0.7,
            gamma: 4.0 / 3.0,
            batch: false,
            include_background: true,
            smooth_numerator: 1e-5,
            smooth_denominator: 1e-5,
        }
    }
}

/// Σ (−(1 − ε) wʸ log pʸ − ε/C Σᶜ wᶜ log pᶜ) / Σ wʸ over voxels with label y and C classes c; as `torch.nn.CrossEntropyLoss`. Of two
/// classes it is `BCEWithLogitsLoss` of the difference of their logits, with the target t (1 − ε) + ε/2.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CrossEntropy {
    /// Factor of the component.
    pub weight: f32,
    /// wᶜ for each class; none is 1 for all.
    pub class_weights: Vec<f32>,
    /// ε, the share of the target that all classes have alike, from 0 to 1 (Szegedy et al. 2016).
    pub label_smoothing: f32,
}

impl Default for CrossEntropy {
    fn default() -> CrossEntropy {
        CrossEntropy { weight: 1.0, class_weights: Vec::new(), label_smoothing: 0.0 }
    }
}

/// The function that turns logits into probabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// The softmax over all classes, which region terms and predictions are made of.
    #[default]
    Softmax,
    /// The sigmoid of each class's own logit.
    Sigmoid,
}

/// −(w t log p + (1 − t) log(1 − p)), the mean over voxels and classes, t being 1 for the class that the label names.
///
/// With the sigmoid and the background, it is `torch.nn.BCEWithLogitsLoss` on one-hot labels. With the softmax of two
/// classes, without the background, it is `BCEWithLogitsLoss` of a network with one logit, the difference of the two.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WeightedBce {
    /// Factor of the component.
    pub weight: f32,
    /// w, the weight of voxels of the class.
    pub pos_weight: f32,
    /// The function that p is of the logits.
    pub activation: Activation,
    /// `true` if class 0 counts. Not by default: with two classes and the background, w would weigh both alike.
    pub include_background: bool,
    /// A factor for each class, the background among them; none is 1 for all.
    pub class_weights: Vec<f32>,
}

impl Default for WeightedBce {
    fn default() -> WeightedBce {
        WeightedBce {
            weight: 1.0,
            pos_weight: 1.0,
            activation: Activation::Softmax,
            include_background: false,
            class_weights: Vec::new(),
        }
    }
}

/// With the softmax, it is −aᶜ t (1 − p)^γ log p; with the sigmoid, with pₜ = p where t is 1 and 1 − p elsewhere, −aₜ
/// (1 − pₜ)^γ log pₜ; the mean over voxels and classes, as `monai.losses.FocalLoss(use_softmax=…)`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Focal {
    /// Factor of the component.
    pub weight: f32,
    /// γ.
    pub gamma: f32,
    /// α: of the softmax, aᶜ is 1 − α for class 0 and α for others; of the sigmoid, aₜ is α where t is 1, else 1 − α.
    /// None is 1 for all.
    pub alpha: Option<f32>,
    /// The function that p is of the logits. MONAI's `FocalLoss` and `DiceFocalLoss` take the sigmoid by default.
    pub activation: Activation,
    /// `true` if class 0 counts.
    pub include_background: bool,
    /// A factor for each class, the background among them; none is 1 for all.
    pub class_weights: Vec<f32>,
}

impl Default for Focal {
    fn default() -> Focal {
        Focal {
            weight: 1.0,
            gamma: 2.0,
            alpha: None,
            activation: Activation::Softmax,
            include_background: true,
            class_weights: Vec::new(),
        }
    }
}

impl Component {
    /// The name in configurations.
    pub fn name(&self) -> &'static str {
        match self {
            Component::SoftDice(_) => "soft_dice",
            Component::LogCoshDice(_) => "log_cosh_dice",
            Component::GeneralizedDice(_) => "generalized_dice",
            Component::Tversky(_) => "tversky",
            Component::FocalTversky(_) => "focal_tversky",
            Component::CrossEntropy(_) => "cross_entropy",
            Component::WeightedBce(_) => "weighted_bce",
            Component::Focal(_) => "focal",
        }
    }

    /// Its factor in the loss.
    pub fn weight(&self) -> f32 {
        match self {
            Component::SoftDice(dice) | Component::LogCoshDice(dice) => dice.weight,
            Component::GeneralizedDice(dice) => dice.weight,
            Component::Tversky(tversky) => tversky.weight,
            Component::FocalTversky(tversky) => tversky.weight,
            Component::CrossEntropy(entropy) => entropy.weight,
            Component::WeightedBce(entropy) => entropy.weight,
            Component::Focal(focal) => focal.weight,
        }
    }

    /// Factors of classes; none is 1 for all.
    pub fn class_weights(&self) -> &[f32] {
        match self {
            Component::SoftDice(dice) | Component::LogCoshDice(dice) => &dice.class_weights,
            Component::CrossEntropy(entropy) => &entropy.class_weights,
            Component::WeightedBce(entropy) => &entropy.class_weights,
            Component::Focal(focal) => &focal.class_weights,
            _ => &[],
        }
    }

    /// The factor of a class.
    pub(super) fn class_weight(&self, class: usize) -> f64 {
        self.class_weights().get(class).map_or(1.0, |weight| f64::from(*weight))
    }

    /// Returns `true` if it cannot be computed for parts of a batch: its quotient is of sums over all samples. Where
    /// there is a label that `ignores`, samples differ in how many voxels they bring to a mean.
    pub fn needs_whole_batch(&self, ignores: bool) -> bool {
        match self {
            Component::CrossEntropy(entropy) => ignores || !entropy.class_weights.is_empty(),
            Component::WeightedBce(_) | Component::Focal(_) => ignores,
            _ => !self.is_of_samples(),
        }
    }

    /// Returns `true` if it is a mean over samples of a quotient of each sample's sums, which the sums of the batch do not give.
    pub fn is_of_samples(&self) -> bool {
        match self {
            Component::SoftDice(dice) | Component::LogCoshDice(dice) => !dice.batch,
            Component::GeneralizedDice(dice) => !dice.batch,
            Component::Tversky(tversky) => !tversky.batch,
            Component::FocalTversky(tversky) => !tversky.batch,
            Component::CrossEntropy(_) | Component::WeightedBce(_) | Component::Focal(_) => false,
        }
    }

    /// The sum over voxels that is its own; what it is made of else are sums that all share.
    pub fn own_sum(&self) -> Option<VoxelSum> {
        match *self {
            Component::CrossEntropy(CrossEntropy { label_smoothing, .. }) if label_smoothing > 0.0 => {
                Some(VoxelSum::MinusLog)
            }
            Component::WeightedBce(WeightedBce { pos_weight, activation, .. }) => {
                Some(VoxelSum::Bce { pos_weight, activation })
            }
            Component::Focal(Focal { gamma, alpha, activation, .. }) => {
                Some(VoxelSum::Focal { gamma, alpha, activation })
            }
            _ => None,
        }
    }

    /// The first class that counts.
    pub fn first_class(&self, classes: usize) -> usize {
        usize::from(self.include_background() == Some(false) && classes > 1)
    }

    /// `Some(true)` if the background counts; `None` if a component has no such option.
    pub fn include_background(&self) -> Option<bool> {
        match self {
            Component::SoftDice(dice) | Component::LogCoshDice(dice) => Some(dice.include_background),
            Component::GeneralizedDice(dice) => Some(dice.include_background),
            Component::Tversky(tversky) => Some(tversky.include_background),
            Component::FocalTversky(tversky) => Some(tversky.include_background),
            Component::CrossEntropy(_) => None,
            Component::WeightedBce(entropy) => Some(entropy.include_background),
            Component::Focal(focal) => Some(focal.include_background),
        }
    }

    /// The same with every option at its default.
    pub fn default_include_background(&self) -> Option<bool> {
        let usual = match self {
            Component::SoftDice(_) => Component::SoftDice(SoftDice::default()),
            Component::LogCoshDice(_) => Component::LogCoshDice(SoftDice::default()),
            Component::GeneralizedDice(_) => Component::GeneralizedDice(GeneralizedDice::default()),
            Component::Tversky(_) => Component::Tversky(Tversky::default()),
            Component::FocalTversky(_) => Component::FocalTversky(FocalTversky::default()),
            Component::CrossEntropy(_) => Component::CrossEntropy(CrossEntropy::default()),
            Component::WeightedBce(_) => Component::WeightedBce(WeightedBce::default()),
            Component::Focal(_) => Component::Focal(Focal::default()),
        };
        usual.include_background()
    }

    /// The first fault of its options for `classes` classes: the option, its value, and the requirement.
    pub fn fault(&self, classes: usize) -> Option<(&'static str, String, String)> {
        let given = self.class_weights().len();
        if given != 0 && given != classes {
            let expected = format!("there are {classes} classes, the background among them");
            return Some(("class_weights", format!("{given} numbers"), expected));
        }
        let (name, value, expected) = self.faulty_number()?;
        Some((name, value.to_string(), format!("it must be {expected}")))
    }

    /// The first fault of its numbers: the option, its value, and the requirement.
    fn faulty_number(&self) -> Option<(&'static str, f32, &'static str)> {
        let mut options = vec![("weight", self.weight())];
        options.extend(self.class_weights().iter().map(|weight| ("class_weights", *weight)));
        match self {
            Component::SoftDice(SoftDice { smooth_numerator, smooth_denominator, .. })
            | Component::LogCoshDice(SoftDice { smooth_numerator, smooth_denominator, .. })
            | Component::GeneralizedDice(GeneralizedDice { smooth_numerator, smooth_denominator, .. }) => {
                options.push(("smooth_numerator", *smooth_numerator));
                options.push(("smooth_denominator", *smooth_denominator));
            }
            Component::Tversky(t) => {
                options.extend([("alpha", t.alpha), ("beta", t.beta)]);
                options.push(("smooth_numerator", t.smooth_numerator));
                options.push(("smooth_denominator", t.smooth_denominator));
            }
            Component::FocalTversky(t) => {
                options.extend([("alpha", t.alpha), ("beta", t.beta)]);
                options.push(("smooth_numerator", t.smooth_numerator));
                options.push(("smooth_denominator", t.smooth_denominator));
                if !(t.gamma.is_finite() && t.gamma > 0.0) {
                    return Some(("gamma", t.gamma, "a number above zero"));
                }
            }
            Component::CrossEntropy(CrossEntropy { label_smoothing, .. }) => {
                if !(0.0..=1.0).contains(label_smoothing) {
                    return Some(("label_smoothing", *label_smoothing, "a number from 0 to 1"));
                }
            }
            Component::WeightedBce(entropy) => options.push(("pos_weight", entropy.pos_weight)),
            Component::Focal(focal) => {
                options.push(("gamma", focal.gamma));
                if let Some(alpha) = focal.alpha.filter(|alpha| !(0.0..=1.0).contains(alpha)) {
                    return Some(("alpha", alpha, "a number from 0 to 1"));
                }
            }
        }
        let bad = options.into_iter().find(|(_, value)| !(value.is_finite() && *value >= 0.0));
        bad.map(|(option, value)| (option, value, "a number that is not negative"))
    }
}
