//! The ways to say in `plimsoll.toml` how parameters are updated.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use plimsoll_nn::{Decay, ParameterGroup, Plateau};
use plimsoll_run::Settings;

fn settings(text: &str) -> Settings {
    toml::from_str(text).unwrap()
}

#[test]
fn groups_frozen_parameters_averages_and_the_least_rate() {
    let found = settings(
        "ema = 0.999\nfrozen = ['encoder.stages.0']\ngroups = [{ prefix = 'encoder', rate = 0.1 }]\n\
         min_learning_rate = 1e-6",
    );
    assert_eq!(found.ema, Some(0.999));
    assert_eq!(found.frozen, Some(vec!["encoder.stages.0".to_string()]));
    assert_eq!(found.groups, Some(vec![ParameterGroup { prefix: "encoder".into(), rate: 0.1 }]));
    assert_eq!(found.min_learning_rate, Some(1e-6));
    let error = toml::from_str::<Settings>("groups = [{ prefix = 'encoder', rat = 0.1 }]").unwrap_err();
    assert!(error.message().contains("rat"), "{error}");
    // What says nothing leaves the rest to the other.
    assert_eq!(Settings::default().or(found.clone()), found);
}

#[test]
fn gradients_may_be_guarded_without_being_scaled() {
    assert_eq!(settings("max_grad_norm = inf").max_grad_norm, Some(f32::INFINITY));
    assert_eq!(settings("max_grad_norm = 12").max_grad_norm, Some(12.0));
    assert_eq!(settings("").max_grad_norm, None);
    // Settings are kept as JSON, which has no infinity.
    let infinite = settings("max_grad_norm = inf");
    let json = serde_json::to_string(&infinite).unwrap();
    assert_eq!(serde_json::from_str::<Settings>(&json).unwrap(), infinite);
}

#[test]
fn a_plateau_has_pytorchs_defaults() {
    let plateau = |text: &str| settings(text).decay;
    let expected = Plateau { factor: 0.1, patience: 10, threshold: 1e-4 };
    assert_eq!(plateau("[decay]\nname = 'plateau'"), Some(Decay::Plateau(expected)));
    let expected = Plateau { factor: 0.5, patience: 3, ..expected };
    assert_eq!(
        plateau("decay = { name = 'plateau', factor = 0.5, patience = 3 }"),
        Some(Decay::Plateau(expected))
    );
}
