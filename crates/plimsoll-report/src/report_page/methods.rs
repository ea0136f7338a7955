//! A paragraph for the methods section of a paper, from the specification alone.

use std::fmt::Write;

use plimsoll_data::{Channel, Normalisation, TargetSpacing};
use plimsoll_graph::DType;
use plimsoll_nn::{Decay, NetworkName, Optimizer};
use plimsoll_run::{
    ClassificationTask, FoldName, ImageTarget, InitialWeights, SegmentationTask, Specification, Task,
    as_written,
};
use serde_json::Value;

use super::read::Fold;
use crate::error::Outcome;
use crate::markup::{escaped, number};

/// The section of the page.
pub fn section(folds: &[Fold]) -> Outcome<String> {
    let Some(first) = folds.first() else { return Ok(String::new()) };
    let all: Vec<FoldName> = folds.iter().map(|fold| fold.folder.name()).collect();
    let text = text(&first.specification, &all)?;
    Ok(format!(
        "<h2 id=\"methods\">Text for a methods section</h2>\n<p>It follows from the specification of {} alone: check it before you \
         publish it.</p>\n<blockquote>{}</blockquote>\n",
        escaped(&first.name()),
        escaped(&text)
    ))
}

/// Describes the methods in whole sentences.
pub fn text(specification: &Specification, folds: &[FoldName]) -> Outcome<String> {
    let config = &specification.config;
    let training = &config.training;
    let mut text = match &config.task {
        Task::Segmentation(task) => volume_methods(specification, task),
        Task::Classification(task) => image_methods(specification, task),
    };
    // Writing to a string cannot fail.
    let _ = match &specification.initial {
        InitialWeights::Seed => write!(text, " Weights were initialised at random (seed {}).", config.seed),
        InitialWeights::File { content, .. } => {
            write!(
                text,
                " Weights were initialised from a pre-trained model (file with XXH3 digest {content}; seed {}).",
                config.seed
            )
        }
    };
    let _ = write!(text, " The loss was {}.", loss(&as_written(&training.loss)?));
    let _ = write!(
        text,
        " We optimised with {}, {}, for {} epochs of {} steps",
        optimizer(training.optimizer),
        schedule(specification),
        config.epochs,
        config.iterations_per_epoch
    );
    if let Some(norm) = training.max_grad_norm.filter(|norm| norm.is_finite()) {
        let _ = write!(text, "; gradients were clipped to a norm of {}", number(f64::from(norm)));
    }
    if let Some(decay) = training.ema {
        let _ = write!(text, "; we kept an exponential moving average of the weights (decay {decay})");
    }
    text.push('.');
    if let Some(stopping) = &config.early_stopping {
        let _ = write!(
            text,
            " Training was to end early after {} epochs without a better score.",
            stopping.patience
        );
    }
    match training.precision {
        DType::F32 => {}
        other => {
            let _ = write!(text, " Features were stored as {}.", format!("{other:?}").to_lowercase());
        }
    }
    let _ = match folds {
        [FoldName::All] => write!(text, " All cases were used for training."),
        [one] => write!(
            text,
            " Fold {one} of a cross-validation was trained: {} cases to train on, {} to validate with.",
            specification.cases.train.len(),
            specification.cases.val.len()
        ),
        several => write!(text, " {} folds of a cross-validation were trained.", several.len()),
    };
    let _ = write!(text, " Training was done with Plimsoll {}.", env!("CARGO_PKG_VERSION"));
    Ok(text)
}

/// Returns the description of a network with this name.
pub fn network(name: &str) -> &str {
    match name.parse::<NetworkName>() {
        Ok(network) => network.summary(),
        Err(_) => name,
    }
}

/// The normalisation of a channel, as a participle.
fn normalised(normalisation: Normalisation) -> &'static str {
    match normalisation {
        Normalisation::Ct => {
            "clipped to the 0.5th and 99.5th percentile of the foreground and standardised with its mean and standard deviation"
        }
        Normalisation::ZScore => "standardised with each image's own mean and standard deviation",
        Normalisation::ZScoreInMask => {
            "standardised with each image's own mean and standard deviation over voxels that are not zero, outside of which they \
             stayed zero"
        }
        Normalisation::None => "not normalised",
        Normalisation::RescaleTo01 => "rescaled to the range from 0 to 1",
        Normalisation::RgbTo01 => "divided by 255",
    }
}

fn volume_methods(specification: &Specification, task: &SegmentationTask) -> String {
    let config = &specification.config;
    let training = &config.training;
    let labels = &task.dataset.labels;
    let what = if labels.regions().is_empty() { "" } else { "the overlapping regions " };
    let classes = what.to_string() + &labels.scored_names()[1..].join(", ");
    let [d, h, w] = training.patch;
    let (kind, patch) = match task.dimensions() {
        2 => ("2D", format!("slices of {h} × {w} pixels")),
        _ => ("3D", format!("patches of {d} × {h} × {w} voxels")),
    };
    let mut text = format!(
        "We trained a {kind} network ({}) to segment {classes} in {} images. ",
        network(training.net.name()),
        task.dataset.channels.iter().map(|channel| channel.name.as_str()).collect::<Vec<_>>().join(" and ")
    );
    let lengths = |mm: &[f64]| mm.iter().map(|length| number(*length)).collect::<Vec<_>>().join(" × ");
    // Writing to a string cannot fail.
    let _ = match task.spacing {
        TargetSpacing::Native(_) => write!(text, "Images kept their own spacing"),
        TargetSpacing::Volume(spacing) => {
            write!(
                text,
                "Images were resampled to a spacing of {} mm (depth, height, width)",
                lengths(&spacing.0)
            )
        }
        TargetSpacing::InPlane(spacing) => {
            write!(text, "Slices were resampled in their plane to a spacing of {} mm", lengths(&spacing))
        }
    };
    let of_channel = |channel: &Channel| {
        format!("{} intensities were {}", channel.name, normalised(channel.normalisation))
    };
    let ways: Vec<String> = task.dataset.channels.iter().map(of_channel).collect();
    let _ = write!(text, "; {}. ", ways.join(", "));
    let _ = write!(
        text,
        "Batches had {} {patch}, of which a share of {} was centred on a foreground class. ",
        training.batch,
        number(task.oversample_foreground)
    );
    let a = &task.augmentation;
    let mirrored = a.p_mirror > 0.0 && a.mirror_axes.contains(&true);
    let kinds = [
        (a.p_rotation > 0.0, "rotation"),
        (a.p_scaling > 0.0, "scaling"),
        (a.p_shear > 0.0, "shearing"),
        (a.p_elastic > 0.0, "elastic deformation"),
        (mirrored, "mirroring"),
        (a.p_gaussian_noise > 0.0, "Gaussian noise"),
        (a.p_gaussian_blur > 0.0, "Gaussian blur"),
        (a.p_brightness > 0.0, "brightness"),
        (a.p_contrast > 0.0, "contrast"),
        (a.p_low_resolution > 0.0, "simulated low resolution"),
        (a.p_gamma > 0.0 || a.p_inverted_gamma > 0.0, "gamma correction"),
        (a.p_bias_field > 0.0, "bias fields"),
    ];
    let kinds: Vec<&str> = kinds.into_iter().filter(|(is_used, _)| *is_used).map(|(_, kind)| kind).collect();
    let _ = match kinds.is_empty() {
        true => write!(text, "Patches were not augmented."),
        false => write!(text, "They were augmented by {}.", kinds.join(", ")),
    };
    text
}

fn image_methods(specification: &Specification, task: &ClassificationTask) -> String {
    let training = &specification.config.training;
    let [_, height, width] = training.patch;
    let what = match task.target {
        ImageTarget::OneOf => "to tell apart",
        ImageTarget::AnyOf => "to find the labels",
        ImageTarget::Ordinal => "to grade, as classes in an order,",
    };
    format!(
        "We trained a network ({}) {what} {}. Images were brought to {height} × {width} pixels with {} channel(s); batches had {} of \
         them.",
        network(training.net.name()),
        task.classes().collect::<Vec<_>>().join(", "),
        task.pipeline.channels,
        training.batch
    )
}

/// The components of a loss with their weights.
fn loss(loss: &Value) -> String {
    let components = loss.get("components").and_then(Value::as_array).into_iter().flatten();
    let named: Vec<String> = components
        .map(|component| {
            let name = component.get("name").and_then(Value::as_str).unwrap_or("an unnamed component");
            let weight = component.get("weight").and_then(Value::as_f64).filter(|weight| *weight != 1.0);
            let weight = weight.map_or(String::new(), |weight| format!("{} · ", number(weight)));
            format!("{weight}{}", name.replace('_', " "))
        })
        .collect();
    match named.as_slice() {
        [only] => only.clone(),
        several => format!("the sum of {}", several.join(" + ")),
    }
}

fn optimizer(optimizer: Optimizer) -> String {
    // As it was set: the shortest decimal of 32 bits.
    match optimizer {
        Optimizer::AdamW { beta1, beta2, weight_decay, .. } => {
            format!("AdamW (β₁ {beta1}, β₂ {beta2}, weight decay {weight_decay})")
        }
        Optimizer::Adam { beta1, beta2, weight_decay, .. } => {
            format!("Adam (β₁ {beta1}, β₂ {beta2}, weight decay {weight_decay})")
        }
        Optimizer::Sgd { momentum, weight_decay } => {
            format!("SGD with Nesterov momentum {momentum} and weight decay {weight_decay}")
        }
    }
}

fn schedule(specification: &Specification) -> String {
    let schedule = &specification.config.schedule;
    let warmup = match schedule.warmup_steps {
        0 => String::new(),
        steps => format!("rising over {steps} steps, "),
    };
    let decay = match schedule.decay {
        Decay::Constant => "constant".to_string(),
        Decay::Poly { power } => format!("decayed by a polynomial of power {}", number(power)),
        Decay::Cosine => "decayed by a cosine".to_string(),
        Decay::Plateau(plateau) => {
            format!(
                "multiplied by {} after {} epochs without a better score",
                number(plateau.factor),
                plateau.patience
            )
        }
    };
    format!("a learning rate of {} ({warmup}{decay})", schedule.learning_rate)
}
