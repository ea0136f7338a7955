//! One-vs-one: a classifier for each pair of classes, each a run of its own.

use plimsoll_run::{RunError, RunFolder};
use serde::Serialize;

use super::listed::Listed;
use super::train::{TrainRequest, Trained, train_opened};
use crate::failure::{Failure, Outcome};
use crate::signals::Stop;

/// A classifier of two classes.
#[derive(Serialize)]
pub struct TrainedPair {
    /// The two, by the numbers of their labels.
    pub pair: (u32, u32),
    /// What came of it.
    #[serde(flatten)]
    pub trained: Trained,
}

/// Trains a classifier for each pair of classes, one after the other, each a run of its own in a folder of its own: what one held is
/// given back before the next begins.
pub fn train_pairs(request: &TrainRequest, stop: &Stop, quiet: bool) -> Outcome<Vec<TrainedPair>> {
    let line = request.plan.draw_line()?;
    let listed = request.plan.open_dataset(&line, quiet)?;
    let requests = pair_requests(request, &listed)?;
    let mut checked = Vec::new();
    for (pair, request) in requests {
        let found = request.check(&listed)?;
        checked.push((pair, request, found));
    }
    let mut opened = request.plan.inspect(listed, line, quiet)?;
    let mut all = Vec::new();
    for (pair, request, checked) in checked {
        if !quiet {
            println!("\n== classes {} and {}, in {}", pair.0, pair.1, request.run.path().display());
        }
        let trained = train_opened(&request, checked, &mut opened, stop, quiet)?;
        let is_stopped = trained.is_stopped;
        all.push(TrainedPair { pair, trained });
        if is_stopped {
            break;
        }
    }
    Ok(all)
}

/// What is asked for of each pair of classes, those of which runs have begun as if they were resumed.
fn pair_requests(request: &TrainRequest, listed: &Listed) -> Outcome<Vec<((u32, u32), TrainRequest)>> {
    let Listed::Images { dataset, .. } = listed else {
        return Err(Failure::new(
            "--one-vs-one tells classes of images apart, and this data set has a label for each voxel",
            "leave it out",
        ));
    };
    let given = request.plan.settings.images.as_ref().and_then(|images| images.classes.clone());
    let names = given.unwrap_or_else(|| dataset.classes.clone());
    let numbers: Vec<(u32, &String)> =
        (0..).zip(&dataset.classes).filter(|(_, name)| names.contains(name)).collect();
    let mut all = Vec::new();
    for (first, (a, one)) in numbers.iter().enumerate() {
        for (b, other) in numbers.iter().skip(first + 1) {
            let mut own = request.clone();
            own.run = pair_run(request.run.path(), (*a, *b));
            // A pair that was not begun is, and one that was goes on.
            own.resume = request.resume && !own.run.folds()?.is_empty();
            let images = own.plan.settings.images.get_or_insert_default();
            images.classes = Some(vec![(*one).clone(), (*other).clone()]);
            all.push(((*a, *b), own));
        }
    }
    if request.resume && all.iter().all(|(_, request)| !request.resume) {
        let specification = request.run.path().join("pair_0_1");
        return Err(RunError::NothingToResume { specification }.into());
    }
    Ok(all)
}

/// The folder of the run of a pair.
pub fn pair_run(run: &std::path::Path, (a, b): (u32, u32)) -> RunFolder {
    RunFolder::new(run.join(format!("pair_{a}_{b}")))
}
