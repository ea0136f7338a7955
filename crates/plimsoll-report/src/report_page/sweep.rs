//! A page about a sweep: what each choice of settings came to, over all its folds and seeds.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use plimsoll_memory::{Budget, Bytes, Reservation};
use plimsoll_metrics::classification::{Bootstrap, Interval};
use plimsoll_metrics::{CaseCounts, MeanScore, OverFolds, mean_interval};
use plimsoll_run::{Arm, FoldFolder, SweepFolder, TrialFailure, Trials};
use serde_json::Value;

use super::curves::{colour, points, score};
use super::read::Fold;
use super::scores::Cases;
use super::table::{Cell, Table};
use super::{Page, To, Wanted};
use crate::duration::duration;
use crate::epoch_chart::{Chart, Series};
use crate::error::{Outcome, ReportError};
use crate::markup::escaped;
use crate::progress_picture::EpochPoint;

/// The bytes of the name and the Dice of a case: a name has some tens of letters.
const CASE: usize = 256;

/// Pixels of a chart of an arm.
const SMALL: [f64; 2] = [340.0, 190.0];

/// The folds and seeds of an arm, reduced to what the page shows of them.
struct Trained<'a> {
    arm: &'a Arm,
    trials: Vec<Trial>,
    /// The Dice of each validation case, in each of its trials: over several seeds a case has several.
    cases: BTreeMap<String, Vec<f64>>,
    /// The validation cases of all its trials, with those that have no Dice.
    all_cases: usize,
}

/// One fold with one seed.
struct Trial {
    name: String,
    /// Its folder.
    place: PathBuf,
    state: String,
    /// Why it failed when it was last tried.
    failure: Option<TrialFailure>,
    is_finished: bool,
    is_of_images: bool,
    epochs: Vec<EpochPoint>,
    /// The mean Dice of its validation cases; none before these are scored, and of images.
    dice: Option<f64>,
    /// The best score of an epoch.
    best: Option<f64>,
    seconds: f64,
    per_step: Option<f64>,
    peak: Option<Bytes>,
    planned: Option<Bytes>,
    /// The reservation of its epochs and of the scores of its cases, or `None` before it begins.
    _memory: Option<Reservation>,
}

impl Trained<'_> {
    /// The mean over cases, each the mean of its trials, with an interval; where no arm has scored cases, that over trials.
    fn mean(&self, of_cases: bool, budget: &Budget) -> Outcome<Interval> {
        let cases: Vec<f64> =
            self.cases.values().map(|dice| dice.iter().sum::<f64>() / dice.len() as f64).collect();
        let values = if of_cases { cases } else { self.scores(of_cases) };
        Ok(mean_interval(&values, &Bootstrap::default(), budget)?)
    }

    /// Returns the number of cases or trials in the mean.
    fn behind(&self, of_cases: bool) -> CaseCounts {
        match of_cases {
            true => CaseCounts { defined: self.cases.len(), missing: 0, of: self.all_cases },
            false => CaseCounts { defined: self.scores(false).len(), missing: 0, of: self.trials.len() },
        }
    }

    /// Returns `true` if every trial has a score.
    fn is_complete(&self, of_cases: bool) -> bool {
        self.scores(of_cases).len() == self.trials.len()
    }

    /// Returns the results of all trials: the Dice of their cases, or the best score of an epoch if no arm has scored cases.
    fn scores(&self, of_cases: bool) -> Vec<f64> {
        let of = |value: fn(&Trial) -> Option<f64>| self.trials.iter().filter_map(value).collect();
        if of_cases { of(|trial| trial.dice) } else { of(|trial| trial.best) }
    }
}

/// Writes the page of a sweep.
pub fn sweep_page(to: To<'_, '_>, folder: &SweepFolder, wanted: &Wanted<'_>, budget: &Budget) -> Outcome {
    let trials = folder.read()?;
    let mut arms = Vec::new();
    for arm in &trials.arms {
        arms.push(read(folder, arm, &trials, budget)?);
    }
    let mut page = Page { to };
    page.begin(&folder.path().display().to_string())?;
    page.put(&heading(folder.path(), &trials, &arms))?;
    // The two kinds of scores are not to be compared with each other.
    let of_cases = arms.iter().any(|arm| !arm.cases.is_empty());
    let mut ranked: Vec<(Interval, &Trained<'_>)> =
        arms.iter().map(|arm| Ok((arm.mean(of_cases, budget)?, arm))).collect::<Outcome<_>>()?;
    // An arm whose trials are not all scored may owe its mean to the cases that are left out: it comes behind those that are complete. What has
    // no score yet comes last; of equal ones the order in which they were given.
    ranked.sort_by(|(a, of_a), (b, of_b)| {
        let value = |found: &Interval| found.value.unwrap_or(f64::NEG_INFINITY);
        let by_score = value(b).total_cmp(&value(a));
        of_b.is_complete(of_cases).cmp(&of_a.is_complete(of_cases)).then(by_score)
    });
    page.put(&leaderboard(&ranked, of_cases))?;
    if let Some((_, first)) = ranked.first().filter(|_| of_cases) {
        page.put(&pictures(folder, first.arm, &trials, wanted, budget)?)?;
    }
    page.put(&curves(&arms))?;
    page.put(&failures(&arms))?;
    page.put(&trial_table(&arms)?)?;
    let request = folder.request();
    if request.is_file() {
        let text = plimsoll_disk::read(&request, MOST_REQUEST)
            .map_err(|error| ReportError::at_path(&request, error))?;
        page.put(&format!("<h2>Request</h2>\n<pre>{}</pre>\n", escaped(&String::from_utf8_lossy(&text))))?;
    }
    page.end()
}

/// Pictures of the worst and the best cases of the choice that is first, with the first seed.
fn pictures(
    folder: &SweepFolder,
    arm: &Arm,
    trials: &Trials,
    wanted: &Wanted<'_>,
    budget: &Budget,
) -> Outcome<String> {
    let Some(seed) = trials.seeds.first() else { return Ok(String::new()) };
    let places = trials.folds.iter().map(|fold| folder.trial(&arm.name, *seed, *fold));
    let folds = places.filter(FoldFolder::is_begun).map(|place| Fold::read(place, budget));
    let folds = folds.collect::<Outcome<Vec<_>>>()?;
    let cases = Cases::new(&folds);
    let section = super::cases::section(&folds, &cases, wanted, budget);
    if section.is_empty() {
        return Ok(section);
    }
    let run = folder.run(&arm.name, *seed);
    Ok(format!(
        "{section}<p>Cases of <b>{}</b> with seed {seed}; <code>plimsoll report {}</code> writes its page.</p>\n",
        escaped(&arm.name),
        escaped(&run.path().display().to_string())
    ))
}

/// The most bytes of a request.
const MOST_REQUEST: u64 = 1 << 20;

fn read<'a>(folder: &SweepFolder, arm: &'a Arm, trials: &Trials, budget: &Budget) -> Outcome<Trained<'a>> {
    let mut trained = Trained { arm, trials: Vec::new(), cases: BTreeMap::new(), all_cases: 0 };
    let mut names = BTreeSet::new();
    for seed in &trials.seeds {
        for fold in &trials.folds {
            let name = format!("seed {seed}, fold {fold}");
            let place = folder.trial(&arm.name, *seed, *fold);
            let trial = plimsoll_run::Trial { arm: arm.name.clone(), seed: *seed, fold: *fold };
            let failure = folder.read_failure(&trial)?;
            if !place.is_begun() {
                trained.trials.push(Trial::waiting(name, &place, failure));
                continue;
            }
            // What is not shown of it is given back before the next one is read.
            let fold = Fold::read(place, budget)?;
            for case in fold.summary.iter().flat_map(|summary| &summary.metric_per_case) {
                names.insert(Cases::name(case));
                if let Some(dice) = Cases::dice(case) {
                    trained.cases.entry(Cases::name(case)).or_default().push(dice);
                }
            }
            trained.trials.push(Trial::new(name, fold, failure, budget)?);
        }
    }
    trained.all_cases = names.len();
    Ok(trained)
}

impl Trial {
    fn waiting(name: String, place: &FoldFolder, failure: Option<TrialFailure>) -> Trial {
        Trial {
            name,
            place: place.path().into(),
            state: if failure.is_some() { "failed before it began".into() } else { "not started".into() },
            failure,
            is_finished: false,
            is_of_images: false,
            epochs: Vec::new(),
            dice: None,
            best: None,
            seconds: 0.0,
            per_step: None,
            peak: None,
            planned: None,
            _memory: None,
        }
    }

    fn new(name: String, fold: Fold, failure: Option<TrialFailure>, budget: &Budget) -> Outcome<Trial> {
        let is_of_images = super::classifier::is_of_images(&fold);
        let (_, value) = score(is_of_images);
        let dice: Vec<f64> = fold
            .summary
            .iter()
            .flat_map(|summary| &summary.metric_per_case)
            .filter_map(Cases::dice)
            .collect();
        let of_cases = (!dice.is_empty()).then(|| dice.iter().sum::<f64>() / dice.len() as f64);
        let best = fold.epochs.iter().filter_map(value).reduce(f64::max);
        let record = fold.record.as_ref();
        let cases = fold.summary.as_ref().map_or(0, |summary| summary.metric_per_case.len());
        let bytes = size_of_val(&fold.epochs[..]).saturating_add(cases.saturating_mul(CASE));
        Ok(Trial {
            _memory: Some(budget.reserve("the page", Bytes::from_len(bytes))?),
            place: fold.folder.path().into(),
            name,
            state: match (&failure, fold.weights.is_some()) {
                (None, _) => fold.state.describe(),
                (Some(_), true) => "trained; its validation failed".into(),
                (Some(_), false) => format!("{}; failed at the last attempt", fold.state.describe()),
            },
            failure,
            is_finished: fold.weights.is_some(),
            is_of_images,
            dice: of_cases,
            best,
            seconds: fold.history.seconds()[0],
            per_step: record.and_then(|record| record.seconds_per_step),
            peak: record.and_then(|record| record.peak_rss_bytes),
            planned: fold.history.plan.map(|[_, planned]| planned),
            epochs: fold.epochs,
        })
    }
}

fn heading(path: &Path, trials: &Trials, arms: &[Trained<'_>]) -> String {
    let all = || arms.iter().flat_map(|arm| &arm.trials);
    let (count, finished) = (all().count(), all().filter(|trial| trial.is_finished).count());
    let seconds: f64 = all().map(|trial| trial.seconds).sum();
    let failed = all().filter(|trial| trial.failure.is_some()).count();
    let failed = if failed == 0 { String::new() } else { format!(", {failed} failed") };
    let numbers = [
        (format!("{finished} of {count}"), format!("trials trained{failed}")),
        (trials.arms.len().to_string(), "choices of settings".into()),
        (format!("{} × {}", trials.folds.len(), trials.seeds.len()), "folds × seeds of each".into()),
        (duration(seconds), "of training in all".into()),
    ];
    let mut html = format!("<h1>{}</h1>\n<div class=\"numbers\">\n", escaped(&path.display().to_string()));
    for (value, what) in numbers {
        // Writing to a string cannot fail.
        let _ = writeln!(html, "<div><b>{}</b>{}</div>", escaped(&value), escaped(&what));
    }
    html.push_str("</div>\n");
    html
}

/// A setting as a reader takes it in: a loss as the sum of its components, anything else as files have it.
fn in_words(value: &Value) -> String {
    let of_component = |component: &Value| {
        let parts = component.as_object()?;
        let name = parts.get("name")?.as_str()?;
        let others = parts.iter().filter(|(key, _)| *key != "name");
        let others: Vec<String> = others.map(|(key, value)| format!("{key} {}", in_words(value))).collect();
        Some(if others.is_empty() { name.to_string() } else { format!("{name} ({})", others.join(", ")) })
    };
    let components =
        value.as_object().filter(|parts| parts.len() == 1).and_then(|parts| parts.get("components"));
    let sum = components.and_then(Value::as_array).and_then(|components| {
        components.iter().map(of_component).collect::<Option<Vec<String>>>().map(|all| all.join(" + "))
    });
    sum.or_else(|| value.as_str().map(String::from)).unwrap_or_else(|| value.to_string())
}

/// Returns a table of the results of all arms, the best first.
fn leaderboard(ranked: &[(Interval, &Trained<'_>)], of_cases: bool) -> String {
    let mut keys: Vec<&String> = ranked.iter().flat_map(|(_, arm)| arm.arm.settings.keys()).collect();
    keys.sort();
    keys.dedup();
    let head = ["arm"].into_iter().chain(keys.iter().map(|key| key.as_str())).chain([
        "score",
        "sd over trials",
        "trials",
        "cases",
        "seconds per step",
        "resident at most",
    ]);
    let mut table = Table::new(head);
    for (mean, arm) in ranked {
        let mut row = vec![Cell::text(&arm.arm.name)];
        for key in &keys {
            row.push(Cell::text(&arm.arm.settings.get(*key).map_or("–".to_string(), in_words)));
        }
        let done = arm.trials.iter().filter(|trial| trial.is_finished).count();
        let per_step: Vec<f64> = arm.trials.iter().filter_map(|trial| trial.per_step).collect();
        let spread = OverFolds::new(&arm.scores(of_cases)).filter(|over| over.folds > 1).map(|over| over.sd);
        let ends = mean.low.zip(mean.high).map(|(low, high)| [low, high]);
        row.extend([
            Cell::mean(MeanScore { value: mean.value, cases: arm.behind(of_cases) }, ends, |score| {
                format!("{score:.4}")
            }),
            Cell::number(spread, |sd| format!("{sd:.4}")),
            Cell::text(&format!("{done} of {}", arm.trials.len())),
            Cell::count(arm.all_cases as u64),
            Cell::number(OverFolds::new(&per_step).map(|over| over.mean), |seconds| format!("{seconds:.3}")),
            Cell::bytes(arm.trials.iter().filter_map(|trial| trial.peak).max()),
        ]);
        table.row(row);
    }
    let what = match of_cases {
        true => "the mean Dice of the validation cases, over all folds, each case the mean over seeds",
        false => "the best score of an epoch, over all trials: no validation case is scored whole",
    };
    format!(
        "<h2>Results of each choice</h2>\n<p>The score is {what}; in brackets its 95 % interval by the percentile bootstrap. Overlapping \
         intervals do not mean that two choices are equal: <code>plimsoll compare</code> compares them case by case. (n of N): n of N \
         have a score; choices without scores come last.</p>\n{}",
        table.html()
    )
}

/// A small chart for each arm, all with the same axes.
fn curves(arms: &[Trained<'_>]) -> String {
    let is_of_images = arms.iter().flat_map(|arm| &arm.trials).any(|trial| trial.is_of_images);
    let (name, value) = score(is_of_images);
    let all = || arms.iter().flat_map(|arm| &arm.trials).flat_map(|trial| &trial.epochs);
    let scores = || all().filter_map(value).filter(|score| score.is_finite());
    let (Some(low), Some(high)) = (scores().reduce(f64::min), scores().reduce(f64::max)) else {
        return "<h2>Curves</h2>\n<p>No epoch is done yet.</p>\n".into();
    };
    let last = all().map(|point| point.epoch).max().unwrap_or(0);
    let mut html = format!("<h2>Curves</h2>\n<p>{name} of each trial.</p>\n<div class=\"plots\">\n");
    for arm in arms {
        let series: Vec<Series> = arm
            .trials
            .iter()
            .enumerate()
            .map(|(place, trial)| Series {
                name: trial.name.clone(),
                colour: colour(place),
                dashed: false,
                points: points(&trial.epochs, value),
            })
            .collect();
        let chart = Chart {
            title: &arm.arm.name,
            series: &series,
            size: SMALL,
            has: &[low, high],
            epochs: Some([0, last]),
            mark: None,
        };
        // Writing to a string cannot fail.
        let _ = writeln!(html, "{}", chart.svg());
    }
    html.push_str("</div>\n");
    html
}

/// Returns a table of the trials whose last attempt failed, with remedies.
fn failures(arms: &[Trained<'_>]) -> String {
    let mut table = Table::new(["arm", "trial", "when", "error", "remedy"]);
    let mut count = 0;
    for arm in arms {
        for trial in &arm.trials {
            let Some(failure) = &trial.failure else { continue };
            count += 1;
            let cells = [&arm.arm.name, &trial.name, &failure.time, &failure.error, &failure.hint];
            table.row(cells.map(|text| Cell::text(text)));
        }
    }
    if count == 0 {
        return "<h2>What failed</h2>\n<p>No trial.</p>\n".into();
    }
    format!(
        "<h2>What failed</h2>\n<p class=\"flag\">{count} trials failed at their last attempt; the others continued. Resuming the sweep \
         tries them again.</p>\n{}",
        table.html()
    )
}

/// A link to a folder of this machine.
fn link(folder: &Path, name: &str) -> Outcome<String> {
    let folder = std::path::absolute(folder).map_err(|error| ReportError::at_path(folder, error))?;
    // All but letters, digits and what paths are made of would end the address or mean something else in it.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
    let address: String = folder
        .to_string_lossy()
        .bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect();
    Ok(format!("<a href=\"file://{address}/\">{}</a>", escaped(name)))
}

/// Every trial: how it stands, and what it came to.
fn trial_table(arms: &[Trained<'_>]) -> Outcome<String> {
    let mut table = Table::new([
        "arm",
        "trial",
        "state",
        "epochs",
        "Dice of its cases",
        "best of an epoch",
        "time",
        "planned",
        "resident at most",
    ]);
    for arm in arms {
        for trial in &arm.trials {
            table.row([
                Cell::text(&arm.arm.name),
                Cell::html(link(&trial.place, &trial.name)?),
                Cell::text(&trial.state),
                Cell::count(trial.epochs.len() as u64),
                Cell::number(trial.dice, |score| format!("{score:.4}")),
                Cell::number(trial.best, |score| format!("{score:.4}")),
                Cell::number(Some(trial.seconds), duration),
                Cell::bytes(trial.planned),
                Cell::bytes(trial.peak),
            ]);
        }
    }
    Ok(format!("<h2>Trials</h2>\n{}", table.html()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::in_words;

    #[test]
    fn a_loss_is_the_sum_of_its_components_and_other_settings_are_as_they_are_written() {
        let loss = json!({"components": [{"name": "soft_dice"}, {"name": "cldice", "weight": 0.5}]});
        assert_eq!(in_words(&loss), "soft_dice + cldice (weight 0.5)");
        let tversky = json!({"components": [{"alpha": 0.3, "beta": 0.7, "name": "tversky"}]});
        assert_eq!(in_words(&tversky), "tversky (alpha 0.3, beta 0.7)");
        for (value, words) in
            [(json!("dynunet"), "dynunet"), (json!(0.01), "0.01"), (json!([8, 16]), "[8,16]")]
        {
            assert_eq!(in_words(&value), words);
        }
        // Not what a reader expects of a loss: as it is.
        let other = json!({"batch_dice": true, "components": []});
        assert_eq!(in_words(&other), other.to_string());
    }
}
