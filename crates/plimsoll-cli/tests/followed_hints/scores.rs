//! Hints about scores and comparisons.

use super::{expect_accepted, flags, hint, quoted, with, words};
use crate::support::Tiny;

#[test]
fn what_is_proposed_for_scores_and_comparisons_is_accepted() {
    let tiny = Tiny::new();
    let (one, other) = (tiny.path("one"), tiny.path("other"));
    for fold in ["0", "1"] {
        tiny.trained(&one, &["--fold", fold, "--epochs", "1"]);
    }
    tiny.trained(&other, &["--fold", "0", "--epochs", "1", "--seed", "1"]);
    let (one, other) = (one.to_str().unwrap(), other.to_str().unwrap());
    // Predictions of some cases alone.
    let validation = format!("{one}/fold_0/validation");
    let scores = tiny.path("scores.json");
    let evaluate = ["evaluate", &validation, tiny.data.to_str().unwrap(), "-o", scores.to_str().unwrap()];
    let evaluate = words(&evaluate);
    let said = hint(&evaluate);
    assert_eq!(flags(&said), ["--partial"], "{said}");
    expect_accepted(&with(&evaluate, &words(&["--partial"])), &said);
    // A run alone.
    let said = hint(&words(&["compare", one]));
    assert!(said.starts_with("name another run of the same data set"), "{said}");
    // Cases that one of them lacks.
    let compare = words(&["compare", one, other]);
    let said = hint(&compare);
    assert_eq!(flags(&said), ["--common-cases"], "{said}");
    expect_accepted(&with(&compare, &words(&["--common-cases"])), &said);
    // One by the same name.
    let said = hint(&words(&["compare", one, one]));
    assert!(said.contains("name each candidate once"), "{said}");
    expect_accepted(&with(&words(&["compare", one, other]), &words(&["--common-cases"])), &said);
    // A score that was not computed: what is proposed computes it, fold by fold.
    let surface = with(&compare, &words(&["--common-cases", "--metric", "hd95"]));
    let said = hint(&surface);
    let command = quoted(&said).remove(0);
    for run in [one, other] {
        let mut args: Vec<String> = command.split_whitespace().skip(1).map(String::from).collect();
        for arg in &mut args {
            *arg = arg.replace("RUN", run).replace("LABELS", tiny.data.join("labelsTr").to_str().unwrap());
        }
        expect_accepted(&args, &said);
    }
    expect_accepted(&surface, &said);
    assert!(scores.is_file());
}
