//! The transforms of a bundle, from a fixed list, in the one order that is done here.

use plimsoll_data::MonaiIntensity;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::description::Activation;
use crate::Interpolated;

/// The transforms before the network.
pub(super) struct Before {
    pub(super) spacing: Option<[f64; 3]>,
    pub(super) intensity: MonaiIntensity,
}

/// The transforms after the network.
pub(super) struct After {
    pub(super) activation: Activation,
    pub(super) interpolated: Interpolated,
}

/// Arguments that are looked at for all transforms, or that change nothing here.
const SHARED: [&str; 5] = ["_target_", "keys", "allow_missing_keys", "lazy", "dtype"];

/// A transform by the last part of its name, and its arguments.
struct Transform {
    name: String,
    arguments: Map<String, Value>,
}

impl Transform {
    /// Those of a `Compose`, all of the same image.
    fn all(composed: &Value) -> Result<Vec<Transform>, String> {
        let target = composed.get("_target_").and_then(Value::as_str).map(last_part);
        let listed = match target {
            Some("Compose") => composed.get("transforms").and_then(Value::as_array),
            Some(other) => return Err(format!("`{other}` is not a Compose of transforms")),
            None => composed.as_array(),
        };
        let listed = listed.ok_or("it is not a Compose of transforms")?;
        let mut transforms = Vec::with_capacity(listed.len());
        let mut image = None;
        for value in listed {
            let arguments = value.as_object().ok_or_else(|| format!("{value} is not a transform"))?;
            let name = arguments.get("_target_").and_then(Value::as_str);
            let name = last_part(name.ok_or_else(|| format!("{value} has no _target_"))?).to_string();
            let key =
                key_of(arguments).ok_or_else(|| format!("{name}: keys must be one, the key of the image"))?;
            let first = *image.get_or_insert(key);
            if key != first {
                return Err(format!("{name}: keys are {key:?}, but earlier transforms have {first:?}"));
            }
            let arguments = arguments.iter().filter(|(name, _)| !SHARED.contains(&name.as_str()));
            let arguments = arguments.map(|(name, value)| (name.clone(), value.clone())).collect();
            transforms.push(Transform { name, arguments });
        }
        Ok(transforms)
    }

    /// Its arguments as a type that names all that it may have.
    fn read<'de, T: Deserialize<'de>>(self) -> Result<T, String> {
        let name = self.name;
        T::deserialize(Value::Object(self.arguments)).map_err(|problem| format!("{name}: {problem}"))
    }

    /// Checks that no other arguments than these are given.
    fn expect_only(&self, known: &[&str]) -> Result<(), String> {
        match self.arguments.keys().find(|name| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) => Err(format!("{}: the argument `{name}` is not supported", self.name)),
        }
    }
}

/// The one key of a transform.
fn key_of(arguments: &Map<String, Value>) -> Option<&str> {
    match arguments.get("keys")? {
        Value::Array(keys) => match keys.as_slice() {
            [key] => key.as_str(),
            _ => None,
        },
        key => key.as_str(),
    }
}

/// `monai.transforms.Spacingd` and `Spacingd` are the same.
pub(super) fn last_part(target: &str) -> &str {
    target.rsplit('.').next().unwrap_or(target)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Orientation {
    axcodes: String,
    labels: Option<[[String; 2]; 3]>,
}

/// MONAI's default names of the ends of axes.
const ENDS: [[&str; 2]; 3] = [["L", "R"], ["P", "A"], ["I", "S"]];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SpacingArguments {
    pixdim: [f64; 3],
    mode: Option<Value>,
    padding_mode: Option<Value>,
    align_corners: Option<Value>,
    #[serde(default)]
    diagonal: bool,
    #[serde(default)]
    scale_extent: bool,
    #[serde(default)]
    recompute_affine: bool,
}

impl SpacingArguments {
    fn check(&self) -> Result<(), String> {
        // One for all keys, or a list with one for each.
        let is = |value: &Option<Value>, expected: &[Value]| match value {
            None => true,
            Some(Value::Array(items)) => items.iter().all(|item| expected.contains(item)),
            Some(value) => expected.contains(value),
        };
        let faults = [
            ("mode must be bilinear", is(&self.mode, &["bilinear".into(), 1.into()])),
            ("padding_mode must be border", is(&self.padding_mode, &["border".into()])),
            ("align_corners must be false", is(&self.align_corners, &[Value::Bool(false), Value::Null])),
            ("diagonal must be false", !self.diagonal),
            ("scale_extent must be false", !self.scale_extent),
            ("recompute_affine must be false", !self.recompute_affine),
        ];
        match faults.iter().find(|(_, is_so)| !is_so) {
            None => Ok(()),
            Some((expected, _)) => Err(format!("Spacingd: {expected}")),
        }
    }
}

/// Reads the transforms before the network; else what of them is not done here.
pub(super) fn before(composed: &Value) -> Result<Before, String> {
    let (mut is_oriented, mut spacing, mut intensity) = (false, None, None);
    for transform in Transform::all(composed)? {
        let out_of_order =
            |name: &str, what: &str| Err(format!("{name} comes after {what}, but is supported only before"));
        match transform.name.as_str() {
            "LoadImaged" => {
                transform.expect_only(&["reader", "image_only", "ensure_channel_first", "simple_keys"])?
            }
            "EnsureChannelFirstd" => transform.expect_only(&["channel_dim", "strict_check"])?,
            "EnsureTyped" => {
                transform.expect_only(&["data_type", "device", "track_meta", "wrap_sequence"])?
            }
            "Orientationd" => {
                if spacing.is_some() || intensity.is_some() {
                    return out_of_order("Orientationd", "Spacingd or intensities");
                }
                let Orientation { axcodes, labels } = transform.read()?;
                if labels.is_some_and(|labels| labels != ENDS) {
                    return Err(format!("Orientationd: labels must be left out, or {ENDS:?}"));
                }
                if axcodes != "RAS" {
                    return Err(format!(
                        "Orientationd: axcodes are {axcodes:?}, but only \"RAS\" is supported"
                    ));
                }
                is_oriented = true;
            }
            "Spacingd" => {
                if spacing.is_some() || intensity.is_some() {
                    return out_of_order("Spacingd", "another one or intensities");
                }
                if !is_oriented {
                    return Err("Spacingd comes before Orientationd, but is supported only after it".into());
                }
                let arguments: SpacingArguments = transform.read()?;
                arguments.check()?;
                spacing = Some(arguments.pixdim);
            }
            "ScaleIntensityd" | "ScaleIntensityRanged" | "NormalizeIntensityd" => {
                if intensity.is_some() {
                    return Err(format!("{} comes after another transform of intensities", transform.name));
                }
                let mut arguments = transform.arguments;
                let name = transform.name.trim_end_matches('d').to_string();
                arguments.insert("name".into(), name.clone().into());
                let read = MonaiIntensity::deserialize(Value::Object(arguments));
                intensity = Some(read.map_err(|problem| format!("{name}d: {problem}"))?);
            }
            other => return Err(format!("the transform `{other}` is not supported before the network")),
        }
    }
    match is_oriented {
        true => Ok(Before { spacing, intensity: intensity.unwrap_or(MonaiIntensity::None {}) }),
        false => Err("there is no Orientationd, but images must be brought to the orientation RAS".into()),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Activations {
    #[serde(default)]
    softmax: bool,
    #[serde(default)]
    sigmoid: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Invert {
    #[serde(rename = "transform")]
    _transform: Option<Value>,
    #[serde(rename = "orig_keys")]
    _orig_keys: Option<Value>,
    #[serde(rename = "meta_keys")]
    _meta_keys: Option<Value>,
    #[serde(rename = "orig_meta_keys")]
    _orig_meta_keys: Option<Value>,
    #[serde(rename = "meta_key_postfix")]
    _meta_key_postfix: Option<Value>,
    #[serde(rename = "device")]
    _device: Option<Value>,
    #[serde(rename = "to_tensor")]
    _to_tensor: Option<bool>,
    nearest_interp: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AsDiscrete {
    #[serde(default)]
    argmax: bool,
    threshold: Option<f64>,
}

/// Reads the transforms after the network; else what of them is not done here.
pub(super) fn after(composed: &Value) -> Result<After, String> {
    let (mut activation, mut interpolated, mut decided) = (None, None, None);
    for transform in Transform::all(composed)? {
        let name = transform.name.clone();
        let is_late = decided.is_some() && name != "SaveImaged" && name != "EnsureTyped";
        if is_late {
            return Err(format!("{name} comes after AsDiscreted, but is supported only before it"));
        }
        let is_again = match name.as_str() {
            "Activationsd" => activation.is_some(),
            "Invertd" => interpolated.is_some(),
            _ => false,
        };
        if is_again {
            return Err(format!("{name} appears twice, but is supported only once"));
        }
        match name.as_str() {
            "EnsureTyped" => transform.expect_only(&["data_type", "device", "track_meta"])?,
            "Activationsd" => {
                let Activations { softmax, sigmoid } = transform.read()?;
                activation = Some(match (softmax, sigmoid) {
                    (true, false) => Activation::Softmax,
                    (false, true) => Activation::Sigmoid,
                    _ => return Err("Activationsd: one of softmax and sigmoid must be true".into()),
                });
            }
            "Invertd" => {
                let invert: Invert = transform.read()?;
                // MONAI's default inverts with the nearest voxel.
                if invert.nearest_interp != Some(false) {
                    return Err("Invertd: nearest_interp must be set to false".into());
                }
                interpolated = Some(match activation {
                    Some(_) => Interpolated::Probabilities,
                    None => Interpolated::Logits,
                });
            }
            "AsDiscreted" => decided = Some(transform.read::<AsDiscrete>()?),
            "SaveImaged" => transform.expect_only(&[
                "output_dir",
                "output_postfix",
                "output_ext",
                "output_dtype",
                "resample",
                "squeeze_end_dims",
                "separate_folder",
                "meta_keys",
                "print_log",
            ])?,
            other => return Err(format!("the transform `{other}` is not supported after the network")),
        }
    }
    let interpolated =
        interpolated.ok_or("there is no Invertd, but labels are written on the grid of the image")?;
    let decided = decided.ok_or("there is no AsDiscreted, but only labels are written")?;
    let activation = match (activation, decided.argmax, decided.threshold) {
        // The largest logit belongs to the largest probability.
        (None | Some(Activation::Softmax), true, None) => Activation::Softmax,
        (Some(Activation::Sigmoid), false, Some(0.5)) => Activation::Sigmoid,
        (_, _, _) => {
            return Err("AsDiscreted must be argmax after softmax, or threshold 0.5 after sigmoid".into());
        }
    };
    Ok(After { activation, interpolated })
}
