//! The folds that are watched, and how they stand.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use plimsoll_monitor::{FoldFollower, LoggedEvent, Point};
use plimsoll_run::{EpochCost, FoldState, Sample, Status};
use serde::Serialize;

use super::folds::folds_in;
use crate::error::Outcome;

/// A fold that is watched.
pub struct WatchedFold {
    /// Its name: its path without the folders that all paths share.
    pub name: String,
    /// The reader of its files.
    pub follower: FoldFollower,
    /// Its current status.
    pub status: Status,
}

impl WatchedFold {
    /// Returns `true` if it is trained now.
    pub fn is_running(&self) -> bool {
        matches!(self.status.state, FoldState::Running { .. })
    }
}

/// Folds that are watched.
pub struct Watched {
    paths: Vec<PathBuf>,
    /// Those that were begun.
    pub folds: Vec<WatchedFold>,
    /// Trials that are not begun yet, of sweeps.
    pub waiting: usize,
}

impl Watched {
    /// Those in some folders.
    pub fn open(paths: &[PathBuf]) -> Outcome<Watched> {
        let mut watched = Watched { paths: paths.into(), folds: Vec::new(), waiting: 0 };
        watched.refresh()?;
        Ok(watched)
    }

    /// Reads what is new, and looks for folds that were begun in the meantime.
    pub fn refresh(&mut self) -> Outcome {
        let mut known = std::mem::take(&mut self.folds);
        self.waiting = 0;
        for path in &self.paths {
            let found = folds_in(path)?;
            self.waiting += found.planned.map_or(0, |planned| planned - found.begun.len());
            for folder in found.begun {
                if self.folds.iter().any(|fold| *fold.follower.folder() == folder) {
                    continue;
                }
                let place = known.iter().position(|fold| *fold.follower.folder() == folder);
                let mut follower = match place {
                    Some(place) => known.swap_remove(place).follower,
                    None => FoldFollower::new(folder),
                };
                let status = follower.update()?;
                self.folds.push(WatchedFold { name: String::new(), follower, status });
            }
        }
        let folders: Vec<PathBuf> =
            self.folds.iter().map(|fold| fold.follower.folder().path().into()).collect();
        for (fold, name) in self.folds.iter_mut().zip(names(&folders)) {
            fold.name = name;
        }
        Ok(())
    }

    /// Returns the watched folders, in a line.
    pub fn title(&self) -> String {
        let paths: Vec<String> = self.paths.iter().map(|path| path.display().to_string()).collect();
        let running = self.folds.iter().filter(|fold| fold.is_running()).count();
        let waiting =
            if self.waiting > 0 { format!(", {} not started", self.waiting) } else { String::new() };
        let time = humantime::format_rfc3339_seconds(SystemTime::now());
        let folds = if self.folds.len() == 1 { "fold" } else { "folds" };
        format!("{} · {} {folds}, {running} running{waiting} · {time}", paths.join(", "), self.folds.len())
    }

    /// Returns the index of the fold that is shown first: a running one, or else the last.
    pub fn first(&self) -> usize {
        let running = self.folds.iter().position(WatchedFold::is_running);
        running.unwrap_or(self.folds.len().saturating_sub(1))
    }

    /// The last events of all folds, the newest first.
    pub fn events(&self, most: usize) -> Vec<(&str, &LoggedEvent)> {
        let mut all: Vec<(&str, &LoggedEvent)> = Vec::new();
        for fold in &self.folds {
            all.extend(fold.follower.events().rev().take(most).map(|told| (fold.name.as_str(), told)));
        }
        // Times of RFC 3339 in one zone are ordered as their texts.
        all.sort_by(|a, b| b.1.time.cmp(&a.1.time));
        all.truncate(most);
        all
    }

    /// For machines.
    pub fn reports(&self) -> Vec<FoldReport<'_>> {
        self.folds.iter().map(FoldReport::new).collect()
    }
}

/// A fold for machines.
#[derive(Serialize)]
pub struct FoldReport<'a> {
    folder: PathBuf,
    /// Its status, as `plimsoll status` reports it.
    status: &'a Status,
    /// Steps of the run.
    steps: u64,
    score_names: [&'static str; 2],
    epochs: Vec<EpochReport<'a>>,
    costs: Vec<&'a EpochCost>,
    sample: Option<&'a Sample>,
    events: Vec<&'a LoggedEvent>,
}

impl FoldReport<'_> {
    fn new(WatchedFold { follower, status, .. }: &WatchedFold) -> FoldReport<'_> {
        let epochs = follower.points().iter().map(|(epoch, point)| EpochReport { epoch: *epoch, point });
        FoldReport {
            folder: follower.folder().path().into(),
            status,
            steps: follower.steps(),
            score_names: follower.score_names(),
            epochs: epochs.collect(),
            costs: follower.costs().iter().map(|(_, cost)| cost).collect(),
            sample: follower.sample(),
            events: follower.events().collect(),
        }
    }
}

#[derive(Serialize)]
struct EpochReport<'a> {
    epoch: u64,
    #[serde(flatten)]
    point: &'a Point,
}

/// Returns the names of folders: their paths without the folders that all share, but at least the last part.
fn names(folders: &[PathBuf]) -> Vec<String> {
    let parents: Vec<&Path> = folders.iter().filter_map(|folder| folder.parent()).collect();
    let common = parents.first().and_then(|first| {
        first.ancestors().find(|common| parents.iter().all(|parent| parent.starts_with(common)))
    });
    let name = |folder: &PathBuf| {
        let rest = common.and_then(|common| folder.strip_prefix(common).ok());
        rest.unwrap_or(folder).display().to_string()
    };
    folders.iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_called_by_what_tells_them_apart() {
        let of = |paths: &[&str]| names(&paths.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(of(&["runs/a/fold_0"]), ["fold_0"]);
        assert_eq!(of(&["runs/a/fold_0", "runs/a/fold_1"]), ["fold_0", "fold_1"]);
        assert_eq!(
            of(&["s/dice/seed_0/fold_0", "s/ce/seed_1/fold_0"]),
            ["dice/seed_0/fold_0", "ce/seed_1/fold_0"]
        );
        assert_eq!(of(&["a/fold_0", "/b/fold_0"]), ["a/fold_0", "/b/fold_0"]);
        assert!(of(&[]).is_empty());
    }
}
