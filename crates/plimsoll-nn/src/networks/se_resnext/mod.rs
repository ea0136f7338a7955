//! SE-ResNeXt50 32×4d: a residual network with squeeze-and-excitation that gives an image of two dimensions one class.
//!
//! A stem that divides extents by four, then 3, 4, 6 and 3 bottlenecks, the first of each stage but the first of stride 2: a 1×1
//! convolution, a 3×3 one in 32 groups, another 1×1, each with batch normalisation and the first two with ReLU, times the gate of
//! squeeze-and-excitation, plus the shortcut, ReLU. The mean over all pixels is classified (Hu, Shen and Sun 2018,
//! arXiv:1709.01507; Xie et al. 2017, arXiv:1611.05431).

mod layers;
mod names;

use plimsoll_graph::{Kind, Program, Shape, TensorId, TensorInfo};
use serde::{Deserialize, Serialize};

use self::layers::{GROUPS, HIDDEN, Layers, REDUCTION};
use self::names::{HEAD, Names};
use super::batch_norm::is_running;
use super::bounds::{MOST_FEATURES, check_count, check_patch_size, check_probability};
use super::{Architecture, Classifies, Design, Extents, Network, NetworkSettings};
use crate::init::{normal, uniform};
use crate::weights::NamingScheme;
use crate::{ConfigError, ForwardMode};

/// Blocks of each stage.
const BLOCKS: [usize; 4] = [3, 4, 6, 3];
/// Features of each stage, of which the name "50 32×4d" speaks.
const FEATURES: [usize; 4] = [256, 512, 1024, 2048];
/// The least height and width: one pixel of the last stage.
const LEAST_EXTENT: usize = 32;

/// The windows of the stem's max pool: the only difference between the programs that publish the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StemPool {
    /// With a padding of 1, as timm's `seresnext50_32x4d`.
    #[default]
    Padded,
    /// Without padding, their number rounded up, as pretrainedmodels, timm's `legacy_seresnext50_32x4d` and MONAI.
    Ceil,
}

/// The classifier of the mean over all pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Head {
    /// Dropout and a linear layer.
    #[default]
    Linear,
    /// Dropout, then linear layers to 512 and 128 features with ReLU, batch normalisation and half the dropout behind each, then a
    /// linear layer.
    Mlp,
}

/// SE-ResNeXt50 32×4d.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SEResNeXt50 {
    /// Channels of the image.
    pub in_channels: usize,
    /// Classes.
    pub classes: usize,
    /// Features of each of the four stages, multiples of 128.
    pub features: Vec<usize>,
    /// The max pool of the stem.
    pub pool: StemPool,
    /// The classifier.
    pub head: Head,
    /// `true` if two classes share one logit, for the second against the first.
    pub single_logit: bool,
    /// The probability with which a feature of the mean is dropped while training.
    pub dropout: f32,
}

impl SEResNeXt50 {
    /// The fields of [`NetworkSettings`] that it uses.
    pub(super) const SETTINGS: &[&str] = &["features", "pool", "head", "single_logit", "dropout"];

    /// With timm's max pool and a linear head.
    pub fn new(in_channels: usize, classes: usize) -> SEResNeXt50 {
        SEResNeXt50 {
            in_channels,
            classes,
            features: FEATURES.to_vec(),
            pool: StemPool::default(),
            head: Head::default(),
            single_logit: false,
            dropout: 0.0,
        }
    }

    pub(super) fn design(design: &Design, settings: &NetworkSettings) -> SEResNeXt50 {
        let usual = SEResNeXt50::new(design.in_channels, design.classes);
        SEResNeXt50 {
            features: settings.features.clone().unwrap_or(usual.features),
            pool: settings.pool.unwrap_or(usual.pool),
            head: settings.head.unwrap_or(usual.head),
            single_logit: settings.single_logit.unwrap_or(usual.single_logit),
            dropout: settings.dropout.unwrap_or(usual.dropout),
            ..usual
        }
    }

    pub(super) fn reference(features: Option<&[usize]>) -> SEResNeXt50 {
        let features = features.unwrap_or(&FEATURES).to_vec();
        SEResNeXt50 { features, ..SEResNeXt50::new(3, 2) }
    }

    /// The inputs of a linear layer, of which its initial values follow: of one with a bias.
    fn inputs_of(&self, layer: &str) -> usize {
        let last = self.features.last().copied().unwrap_or(1);
        let stage = || {
            let number = layer.strip_prefix("layer")?.split('.').next()?.parse::<usize>().ok()?;
            self.features.get(number.checked_sub(1)?).copied()
        };
        match layer.rsplit('.').next() {
            Some("fc1") => stage().unwrap_or(last),
            Some("fc2") => stage().unwrap_or(last) / REDUCTION,
            _ if layer == format!("{HEAD}5") => HIDDEN[0],
            _ if layer == format!("{HEAD}9") => HIDDEN[1],
            _ => last,
        }
    }
}

impl Architecture for SEResNeXt50 {
    fn name(&self) -> &'static str {
        "seresnext50"
    }

    fn check(&self) -> Result<(), ConfigError> {
        let value = |setting, found: String, expected: &str| {
            Err(ConfigError::Value { setting, found, expected: expected.into() })
        };
        check_count("in_channels", self.in_channels, 1, MOST_FEATURES)?;
        check_count("classes", self.classes, 2, 255)?;
        let fits = |features: &usize| *features > 0 && features.is_multiple_of(4 * GROUPS);
        if self.features.len() != BLOCKS.len() || !self.features.iter().all(fits) {
            return value("features", format!("{:?}", self.features), "four multiples of 128 are needed");
        }
        self.features.iter().try_for_each(|count| check_count("features", *count, 1, MOST_FEATURES))?;
        if self.single_logit && self.classes != 2 {
            return value("single_logit", format!("true with {} classes", self.classes), "it is for two");
        }
        check_probability("dropout", self.dropout)
    }

    fn in_channels(&self) -> usize {
        self.in_channels
    }

    fn classes(&self) -> usize {
        self.classes
    }

    fn classifies(&self) -> Classifies {
        Classifies::Images
    }

    fn weights(&self) -> f64 {
        let stages = self.features.iter().zip(BLOCKS).enumerate().map(|(stage, (features, blocks))| {
            let (features, width) = (*features as f64, *features as f64 / 2.0);
            let block = 2.0 * features * width + 9.0 * width * width / GROUPS as f64;
            // A pixel of a stage stands for 4 · 2^stage of the image along height and width.
            (block * blocks as f64 + features * features) / 16.0 / 4f64.powi(stage as i32)
        });
        stages.sum::<f64>() + 49.0 * 64.0 * self.in_channels as f64 / 4.0
    }

    fn extents(&self) -> Extents {
        Extents { multiple: [1, LEAST_EXTENT, LEAST_EXTENT], least_coarsest: 1 }
    }

    fn check_patch(&self, patch: [usize; 3]) -> Result<(), ConfigError> {
        check_patch_size(patch)?;
        let [depth, height, width] = patch;
        if depth == 1 && height >= LEAST_EXTENT && width >= LEAST_EXTENT {
            return Ok(());
        }
        let expected = format!(
            "seresnext50 takes images of two dimensions (a depth of 1) of at least {LEAST_EXTENT} × {LEAST_EXTENT} pixels"
        );
        Err(ConfigError::Value { setting: "patch_size", found: format!("{patch:?}"), expected })
    }

    fn forward(
        &self,
        program: &mut Program,
        image: TensorId,
        mode: ForwardMode,
    ) -> Result<Vec<TensorId>, ConfigError> {
        self.check()?;
        self.check_patch(program.shape(image).spatial())?;
        let mut layers = Layers::new(program, self, mode);
        let mut map = layers.stem(image, self.pool)?;
        for (stage, (features, blocks)) in self.features.iter().zip(BLOCKS).enumerate() {
            for block in 0..blocks {
                let stride = if block == 0 && stage > 0 { 2 } else { 1 };
                map = layers.block(&format!("layer{}.{block}", stage + 1), map, *features, stride)?;
            }
        }
        Ok(vec![layers.head(map, self)?])
    }

    fn naming_schemes(&self) -> Vec<NamingScheme> {
        names::schemes(self.pool)
    }

    fn dimensions(&self) -> usize {
        2
    }

    fn stored_shape(&self, tensor: &str, shape: &Shape) -> Shape {
        names::stored_shape(tensor, shape)
    }

    fn heads(&self) -> Vec<String> {
        let of_several = [1, 3, 5, 7, 9].map(|place| format!("{HEAD}{place}"));
        of_several.into_iter().chain([Names::for_stem(self.pool).classifier.to_string()]).collect()
    }

    fn stem(&self) -> Option<String> {
        Some(format!("{}.weight", Names::for_stem(self.pool).stem))
    }

    /// Initialises as timm does: convolutions by their outputs (He et al. 2015, `mode="fan_out"`), the last scale of
    /// each block zero, so that blocks begin as their shortcuts (Goyal et al. 2017), and linear layers as PyTorch does.
    fn initialise(&self, parameter: &TensorInfo, seed: u64, values: &mut [f32]) {
        let (layer, last) = parameter.name.rsplit_once('.').unwrap_or((&parameter.name, ""));
        let is_linear = layer.starts_with(HEAD) || layer == Names::for_stem(self.pool).classifier;
        let is_excitation = layer.ends_with(".fc1") || layer.ends_with(".fc2");
        let inputs = || Some(self.inputs_of(layer));
        match (parameter.kind, last) {
            (Kind::Weights, _) if is_linear => uniform(parameter, inputs(), seed, values),
            (Kind::Weights, _) => {
                let taps: usize = parameter.shape.spatial().iter().product();
                let fan_out = (parameter.shape.dim(0) * taps) as f32;
                normal(parameter, (2.0 / fan_out).sqrt(), seed, values);
            }
            (_, "running_var") => values.fill(1.0),
            (_, "weight") => values.fill(if layer.ends_with(".bn3") { 0.0 } else { 1.0 }),
            (_, "bias") if is_excitation || (is_linear && !is_norm_of_head(layer)) => {
                uniform(parameter, inputs(), seed, values);
            }
            _ => values.fill(0.0),
        }
    }

    fn is_trained(&self, parameter: &str) -> bool {
        !is_running(parameter)
    }

    fn couples_samples(&self) -> Option<&'static str> {
        Some("batch normalisation")
    }

    fn narrower(&self) -> Vec<Network> {
        let half: Vec<usize> = self.features.iter().map(|features| features / 2).collect();
        let net = SEResNeXt50 { features: half, ..self.clone() };
        if net.check().is_ok() { vec![net.into()] } else { Vec::new() }
    }

    fn features(&self) -> Vec<usize> {
        self.features.clone()
    }

    fn describe(&self) -> String {
        let head = match self.head {
            Head::Linear => "a linear head",
            Head::Mlp => "a head of three linear layers",
        };
        format!("SE-ResNeXt50 32×4d, 4 stages of {:?} features, {head}", self.features)
    }
}

/// Returns `true` if a layer of a head of several is a normalisation.
fn is_norm_of_head(layer: &str) -> bool {
    [3, 7].iter().any(|place| layer == format!("{HEAD}{place}"))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use plimsoll_graph::{Array, DType, Role, interpret};

    use super::*;
    use crate::{explain, names as of_programs};

    /// Numbers for all inputs and parameters of a program, the same for the same name; variances above zero.
    fn numbers(program: &Program) -> HashMap<String, Array> {
        let given = program.tensors.iter().filter(|t| t.role == Role::Input || t.role.is_persistent());
        let number = |name: &str, i: usize| {
            let seed = name.bytes().fold(i as f64, |seed, byte| 0.37 * seed + f64::from(byte));
            let number = (seed * 12.9898 + i as f64 * 78.233).sin();
            if name.ends_with("running_var") { 1.5 + number } else { 0.3 * number }
        };
        let array = |t: &TensorInfo| Array::from_fn(t.shape.clone(), |i| number(&t.name, i));
        given.map(|t| (t.name.clone(), array(t))).collect()
    }

    /// The head alone, of features of one pixel, and its logits.
    fn head_alone(net: &SEResNeXt50, features: usize) -> (Program, TensorId) {
        let mut program = Program::new("head");
        let map = program.input("map", Shape::volume(1, features, [1; 3]), Kind::Volume);
        let mode = ForwardMode { training: false, precision: DType::F32 };
        let logits = Layers::new(&mut program, net, mode).head(map, net).unwrap();
        (program, logits)
    }

    #[test]
    fn an_explanation_weighs_features_by_what_they_change_of_the_score() {
        for (head, single_logit) in [(Head::Linear, false), (Head::Mlp, false), (Head::Mlp, true)] {
            let net = SEResNeXt50 {
                features: vec![128; 4],
                head,
                single_logit,
                dropout: 0.5,
                ..SEResNeXt50::new(1, 2)
            };
            let program = explain(&net, [1, 64, 64], DType::F32).unwrap();
            let mut values = numbers(&program);
            let score = values[of_programs::SCORE].clone();
            let found = interpret(&program, &values).unwrap();
            let of = |name: &str| &found[program.find(name).unwrap().index()];
            let (features, weights) = (of(of_programs::FEATURES), of(of_programs::FEATURE_WEIGHTS));
            assert_eq!(features.shape, Shape::volume(1, 128, [1, 2, 2]));

            let (alone, logits) = head_alone(&net, 128);
            let means: Vec<f64> =
                features.data.chunks_exact(4).map(|map| map.iter().sum::<f64>() / 4.0).collect();
            let mut score_of = |data: Vec<f64>| {
                let map = Array { shape: Shape::volume(1, 128, [1; 3]), data };
                values.insert("map".into(), map);
                let logits = &interpret(&alone, &values).unwrap()[logits.index()];
                logits.data.iter().zip(&score.data).map(|(logit, weight)| logit * weight).sum::<f64>()
            };
            for channel in [0, 17, 127] {
                let mut moved = |by: f64| {
                    let mut means = means.clone();
                    means[channel] += by;
                    score_of(means)
                };
                let slope = (moved(1e-6) - moved(-1e-6)) / 2e-6;
                let weight = weights.data[channel];
                assert!(
                    (slope - weight).abs() <= 1e-6 * (1.0 + weight.abs()),
                    "{head:?}: {slope} and {weight}"
                );
                assert!(weight != 0.0);
            }
        }
    }

    #[test]
    fn only_networks_that_classify_a_mean_are_explained() {
        let net = crate::DynUNet::new(1, 2, &[4, 8], &[[3; 3]; 2], &[[1; 3], [2; 3]]);
        let error = explain(&net, [8; 3], DType::F32).unwrap_err().to_string();
        assert!(error.contains("`net` is dynunet"), "{error}");
    }

    /// The trained parameters of a network, by name.
    fn trained(net: &SEResNeXt50) -> Vec<(String, usize)> {
        let mut program = Program::new("parameters");
        let image = program.input("image", Shape::volume(2, net.in_channels, [1, 64, 64]), Kind::Volume);
        net.forward(&mut program, image, ForwardMode { training: true, precision: DType::F32 }).unwrap();
        let all = program.with_role(Role::Parameter).map(|id| program.tensor(id));
        let all = all.filter(|info| net.is_trained(&info.name));
        all.map(|info| (info.name.clone(), info.shape.count())).collect()
    }

    #[test]
    fn it_has_as_many_parameters_as_the_published_network() {
        let count = |net: &SEResNeXt50, of: &dyn Fn(&str) -> bool| -> usize {
            trained(net).iter().filter(|(name, _)| of(name)).map(|(_, count)| count).sum()
        };
        let net = SEResNeXt50::new(3, 1000);
        assert!(net.check().is_err(), "labels are of 8 bits");
        let all = count(&SEResNeXt50::new(3, 5), &|_| true);
        // timm.create_model("seresnext50_32x4d") has 27,559,896, of which 2,049,000 are of the linear layer to 1000 classes.
        assert_eq!(all + 2049 * 995, 27_559_896);
        assert_eq!(count(&SEResNeXt50::new(3, 5), &|name| !name.starts_with("fc.")), 25_510_896);
        let mlp = SEResNeXt50 { head: Head::Mlp, single_logit: true, ..SEResNeXt50::new(3, 2) };
        assert_eq!(count(&mlp, &|name| name.starts_with(HEAD)), 1_116_161);
        let legacy = SEResNeXt50 { pool: StemPool::Ceil, ..SEResNeXt50::new(3, 5) };
        assert_eq!(count(&legacy, &|_| true), all);
    }

    #[test]
    fn initial_values_are_those_of_timm() {
        let net = SEResNeXt50 { head: Head::Mlp, ..SEResNeXt50::new(3, 2) };
        let values = |name: &str, shape: &[usize], kind: Kind| {
            let info = TensorInfo {
                name: name.into(),
                shape: Shape(shape.to_vec()),
                dtype: DType::F32,
                role: Role::Parameter,
                kind,
            };
            net.initial_values(&info, 3)
        };
        let deviation = |values: &[f32]| {
            (values.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / values.len() as f64).sqrt()
        };
        // Outputs times taps: 128 · 9; groups do not count.
        let grouped = deviation(&values("layer1.0.conv2.weight", &[128, 4, 1, 3, 3], Kind::Weights));
        assert!((grouped / (2.0f64 / 1152.0).sqrt() - 1.0).abs() < 0.05, "{grouped}");
        let bias = values("layer2.1.se.fc1.bias", &[32], Kind::Channels);
        let bound = 1.0 / 512f32.sqrt();
        assert!(bias.iter().all(|x| x.abs() <= bound) && bias.iter().any(|x| x.abs() > 0.5 * bound));
        let bias = values("classifier.5.bias", &[128], Kind::Channels);
        assert!(bias.iter().any(|x| x.abs() > 0.9 / 512f32.sqrt()) && bias.iter().all(|x| x.abs() < 0.0442));
        let weights = deviation(&values("classifier.1.weight", &[512, 2048, 1, 1, 1], Kind::Weights));
        assert!((weights / (1.0 / (3.0f64 * 2048.0).sqrt()) - 1.0).abs() < 0.01, "{weights}");
        let one = |name: &str| values(name, &[4], Kind::Channels)[0];
        assert_eq!(["bn1.weight", "layer1.0.bn3.weight", "layer1.0.bn2.weight"].map(one), [1.0, 0.0, 1.0]);
        assert_eq!(["bn1.running_var", "bn1.running_mean", "classifier.3.bias"].map(one), [1.0, 0.0, 0.0]);
        assert_eq!(["classifier.3.weight", "layer1.0.bn3.bias"].map(one), [1.0, 0.0]);
    }

    #[test]
    fn what_is_no_image_of_two_dimensions_is_refused_with_what_is_needed() {
        let net = SEResNeXt50::new(1, 2);
        assert_eq!(net.check_patch([1, 75, 299]), Ok(()));
        for patch in [[2, 64, 64], [1, 31, 64]] {
            let error = net.check_patch(patch).unwrap_err().to_string();
            assert!(error.contains("`patch_size`") && error.contains("32 × 32 pixels"), "{error}");
        }
    }
}
