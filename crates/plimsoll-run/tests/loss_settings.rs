//! The ways to say a loss in `plimsoll.toml`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use plimsoll_graph::ops::{Activation, Component, CrossEntropy, Focal, Loss, SoftDice, Tversky, WeightedBce};
use plimsoll_nn::{Objective, Term};
use plimsoll_run::{ALL_COMPONENTS, Settings};

fn loss(text: &str) -> Objective {
    toml::from_str::<Settings>(text).unwrap().loss.unwrap()
}

fn error(text: &str) -> String {
    toml::from_str::<Settings>(text).unwrap_err().message().to_string()
}

#[test]
fn weights_of_dice_and_cross_entropy_with_the_options_of_dice() {
    let found = loss("[loss]\ndice = 0.5\nbatch = true\ninclude_background = false\nignore = 3");
    let dice = SoftDice { weight: 0.5, batch: true, include_background: false, ..SoftDice::default() };
    assert_eq!(found, Loss { ignore: Some(3), ..Loss::dice_ce(dice, 1.0) }.into());
    assert_eq!(loss("[loss]"), Objective::default());
}

#[test]
fn a_list_of_components_as_tables_or_in_one_line() {
    let found = loss(
        "[[loss.components]]\nname = 'soft_dice'\nweight = 0.5\n\
         [[loss.components]]\nname = 'weighted_bce'\nweight = 0.35\npos_weight = 2.8",
    );
    let dice = Component::SoftDice(SoftDice { weight: 0.5, ..SoftDice::default() });
    let bce = Component::WeightedBce(WeightedBce { weight: 0.35, pos_weight: 2.8, ..WeightedBce::default() });
    assert_eq!(found.components, [dice, bce].map(Term::Sums));
    let found = loss(
        "loss = { components = [{ name = 'tversky', alpha = 0.3, beta = 0.7 }, \
         { name = 'focal', gamma = 1.5, activation = 'sigmoid' }, \
         { name = 'cross_entropy', class_weights = [0.5, 2.0] }] }",
    );
    let tversky = Component::Tversky(Tversky { alpha: 0.3, beta: 0.7, ..Tversky::default() });
    let activation = Activation::Sigmoid;
    let focal = Component::Focal(Focal { gamma: 1.5, activation, ..Focal::default() });
    let entropy = CrossEntropy { class_weights: vec![0.5, 2.0], ..CrossEntropy::default() };
    assert_eq!(found.components, [tversky, focal, Component::CrossEntropy(entropy)].map(Term::Sums));
}

#[test]
fn what_a_run_was_started_with_is_read_back() {
    // As runs before there were lists have it.
    let old = r#"{"dice":1.0,"cross_entropy":1.0,"batch":false,"include_background":false,"squared":false,
        "smooth_numerator":1e-5,"smooth_denominator":1e-5,"ignore":null}"#;
    let old: Objective = serde_json::from_str(old).unwrap();
    let dice = SoftDice { include_background: false, ..SoftDice::default() };
    assert_eq!(old, Loss::dice_ce(dice, 1.0).into());
    for name in ALL_COMPONENTS {
        let found = loss(&format!("loss = {{ components = [{{ name = '{name}' }}], ignore = 2 }}"));
        assert_eq!(found.components[0].name(), *name);
        let json = serde_json::to_string(&found).unwrap();
        assert_eq!(serde_json::from_str::<Objective>(&json).unwrap(), found, "{json}");
    }
}

#[test]
fn what_is_unknown_is_an_error_that_lists_what_is_known() {
    let said = error("loss = { components = [{ name = 'dyce' }] }");
    for part in ["dyce", "soft_dice", "generalized_dice", "log_cosh_dice", "weighted_bce", "focal_tversky"] {
        assert!(said.contains(part), "{said}");
    }
    let said = error("loss = { components = [{ name = 'focal', gama = 2.0 }] }");
    assert!(said.contains("gama") && said.contains("gamma"), "{said}");
    let said = error("loss = { dyce = 1.0 }");
    assert!(said.contains("dyce") && said.contains("components"), "{said}");
    let said = error("loss = { dice = 1.0, components = [] }");
    assert!(said.contains("`dice` has no effect beside a list"), "{said}");
}

#[test]
fn what_cannot_be_is_said_with_the_option_and_the_component() {
    let fault = |components: &str| {
        let loss = loss(&format!("loss = {{ components = [{components}] }}"));
        loss.fault(3).map(|(option, found, expected)| format!("{option} is {found}, but {expected}"))
    };
    assert_eq!(fault("{ name = 'focal', class_weights = [1, 2, 3] }"), None);
    let said = fault("{ name = 'cross_entropy', class_weights = [1, 2] }").unwrap();
    assert!(
        said.starts_with("class_weights of cross_entropy is 2 numbers, but there are 3 classes"),
        "{said}"
    );
    let said = fault("{ name = 'weighted_bce', pos_weight = -1 }").unwrap();
    assert!(said.starts_with("pos_weight of weighted_bce is -1, but"), "{said}");
    assert!(fault("{ name = 'focal', alpha = 1.5 }").unwrap().contains("from 0 to 1"));
    assert!(fault("{ name = 'focal', gamma = nan }").is_some());
    assert!(fault("{ name = 'focal_tversky', gamma = 0 }").unwrap().contains("above zero"));
    let said = fault("{ name = 'cldice', iterations = 0 }").unwrap();
    assert_eq!(said, "iterations of cldice is 0, but it must be from 1 to 64");
    assert!(fault("{ name = 'cldice', smooth = -1 }").unwrap().starts_with("smooth of cldice is -1, but"));
    assert!(fault("{ name = 'morph_skeleton', iterations = 65 }").is_some());
    assert!(fault("{ name = 'toploss_simple', threshold = 1.5 }").unwrap().contains("from 0 to 1"));
    assert!(fault("{ name = 'skeleton_recall', smooth_numerator = nan }").is_some());
    assert!(fault("").unwrap().contains("needs one with a weight"));
}
