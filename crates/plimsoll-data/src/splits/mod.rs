//! Folds: which cases train and which validate.
//!
//! The folds are nnU-Net's: scikit-learn's `KFold(n_splits=5, shuffle=True, random_state=12345)` over the sorted names,
//! whose order comes from NumPy's Mersenne Twister. Results can therefore be compared fold by fold.

mod mersenne;
mod reserved;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use plimsoll_disk::{ByteCount, atomic};
use plimsoll_memory::{Budget, Bytes, OverBudget};
use serde::{Deserialize, Serialize};

use crate::files_memory::FilesMemory;

use mersenne::MersenneTwister;

/// The number of folds, unless there are fewer cases.
pub(crate) const FOLDS: usize = 5;

/// nnU-Net's `random_state`.
const SEED: u32 = 12345;

/// The largest file that is read: a million cases fit.
const LARGEST: u64 = 64 << 20;

/// The memory of the text of folds: a name with escapes is copied while it is parsed.
fn text_bytes(length: u64) -> Bytes {
    Bytes(length.saturating_mul(2))
}

/// Returns `true` if the memory of a data set includes these folds.
fn is_usual_count(folds: &[Fold]) -> bool {
    folds.len() <= FOLDS
}

/// One division of the cases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fold {
    /// The cases to train on.
    pub train: Vec<String>,
    /// The cases to validate with.
    pub val: Vec<String>,
}

impl Fold {
    /// All cases train and all validate: nnU-Net's fold `all`.
    pub fn all(ids: &[String]) -> Fold {
        Fold { train: ids.to_vec(), val: ids.to_vec() }
    }
}

/// The folds of a data set, as `splits_final.json` has them.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Splits {
    /// The folds.
    pub folds: Vec<Fold>,
    /// The reservation for folds that the memory of a data set does not include.
    #[serde(skip)]
    _memory: FilesMemory,
    /// The length of the file that they were read from.
    #[serde(skip)]
    read: u64,
}

/// Folds are equal if they divide the same cases alike, whichever file they were read from.
impl PartialEq for Splits {
    fn eq(&self, other: &Splits) -> bool {
        self.folds == other.folds
    }
}

impl Eq for Splits {}

/// The memory that folds need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FoldsNeeds {
    /// Beside the memory of the data set, for as long as they are used.
    pub held: Bytes,
    /// While they are read, from the given file, or from the run's file when it is resumed.
    pub reading: Bytes,
}

impl From<Vec<Fold>> for Splits {
    fn from(folds: Vec<Fold>) -> Splits {
        Splits { folds, _memory: FilesMemory::default(), read: 0 }
    }
}

impl Splits {
    /// A fold for each number that cases are validated in, in ascending order; all others are trained on.
    ///
    /// # Errors
    /// If all cases have one number.
    pub fn from_numbers(folds: &BTreeMap<String, u64>) -> Result<Splits, SplitsError> {
        let numbers: BTreeSet<u64> = folds.values().copied().collect();
        if numbers.len() < 2 {
            return Err(SplitsError::OneFold { cases: folds.len() });
        }
        let fold = |number: u64| {
            let of = |is_validated: bool| {
                let own = folds.iter().filter(|(_, own)| (**own == number) == is_validated);
                own.map(|(case, _)| case.clone()).collect()
            };
            Fold { train: of(false), val: of(true) }
        };
        Ok(numbers.into_iter().map(fold).collect::<Vec<Fold>>().into())
    }
}

/// Why the folds cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SplitsError {
    /// One case cannot be divided.
    #[error("{cases} case cannot be divided into folds for training and validation")]
    TooFewCases {
        /// The number of cases.
        cases: usize,
    },
    /// A list gives all cases the same fold.
    #[error("all {cases} cases of the list have the same `fold`, so that none is left to train on")]
    OneFold {
        /// The number of cases.
        cases: usize,
    },
    /// The operating system reported an error.
    #[error("cannot {action} {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The attempted action, as a verb.
        action: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
    /// The budget has no room for the folds.
    #[error("{path}: {source}")]
    Memory {
        /// The file.
        path: PathBuf,
        /// The holders of the budget.
        source: OverBudget,
    },
    /// The file is not JSON, or not a list of folds.
    #[error("{path} is not a list of folds {{\"train\": […], \"val\": […]}}: {problem}")]
    Json {
        /// The file.
        path: PathBuf,
        /// The parser's message with the position.
        #[source]
        problem: serde_json::Error,
    },
    /// The file has no folds.
    #[error("{path} has no folds")]
    NoFolds {
        /// The file.
        path: PathBuf,
    },
    /// A list is empty.
    #[error("{path}: `{list}` of fold {fold} is empty")]
    Empty {
        /// The file.
        path: PathBuf,
        /// From 0.
        fold: usize,
        /// `train` or `val`.
        list: &'static str,
    },
    /// A case is not in the data set.
    #[error("{path}: `{list}` of fold {fold} has the case {case}, which is not in the data set")]
    Unknown {
        /// The file.
        path: PathBuf,
        /// From 0.
        fold: usize,
        /// `train` or `val`.
        list: &'static str,
        /// The case.
        case: String,
    },
    /// A case is in a list twice.
    #[error("{path}: `{list}` of fold {fold} has the case {case} twice")]
    Duplicate {
        /// The file.
        path: PathBuf,
        /// From 0.
        fold: usize,
        /// `train` or `val`.
        list: &'static str,
        /// The case.
        case: String,
    },
    /// A case trains and validates.
    #[error("{path}: case {case} is in `train` and in `val` of fold {fold}")]
    Overlap {
        /// The file.
        path: PathBuf,
        /// From 0.
        fold: usize,
        /// The case.
        case: String,
    },
    /// There is no such fold.
    #[error("there is no fold {fold}: the folds are numbered from 0 to {}", folds.saturating_sub(1))]
    NoSuchFold {
        /// The requested fold.
        fold: usize,
        /// The number of cases.
        folds: usize,
    },
}

impl SplitsError {
    /// A remedy to suggest to the user.
    pub fn remedy(&self) -> Option<String> {
        Some(match self {
            SplitsError::TooFewCases { .. } => "use fold `all` to train and validate on all cases".into(),
            SplitsError::Io { .. } => return None,
            SplitsError::Memory { source, .. } => {
                format!("{}, or name a file with fewer folds", source.remedy())
            }
            SplitsError::Json { .. } | SplitsError::NoFolds { .. } => {
                "remove the file to have the folds created again".into()
            }
            SplitsError::OneFold { .. } => "use fold `all` to train and validate on all cases".into(),
            SplitsError::Empty { .. } => "use fold `all` to train and validate on all cases".into(),
            SplitsError::Unknown { .. } => {
                "correct the name, or remove the file to have the folds created again".into()
            }
            SplitsError::Duplicate { .. } => "remove one of the two".into(),
            SplitsError::Overlap { .. } => {
                "remove it from one of the two: validation on training cases is meaningless".into()
            }
            SplitsError::NoSuchFold { .. } => "choose one of them, or `all`".into(),
        })
    }
}

impl Splits {
    /// Five folds of these cases, or as many as there are cases; the same as nnU-Net's.
    ///
    /// # Errors
    /// If there are fewer than two cases.
    pub fn make(ids: &[String]) -> Result<Splits, SplitsError> {
        let cases = ids.len();
        if cases < 2 {
            return Err(SplitsError::TooFewCases { cases });
        }
        let mut sorted = ids.to_vec();
        sorted.sort();
        let mut order: Vec<usize> = (0..cases).collect();
        MersenneTwister::new(SEED).shuffle(&mut order);
        let folds = FOLDS.min(cases);
        let mut fold_of = vec![0; cases];
        let mut start = 0;
        for fold in 0..folds {
            // The first folds take the remaining cases.
            let size = cases / folds + usize::from(fold < cases % folds);
            order[start..start + size].iter().for_each(|case| fold_of[*case] = fold);
            start += size;
        }
        let pick = |wanted: &dyn Fn(usize) -> bool| {
            let chosen = sorted.iter().zip(&fold_of).filter(|(_, fold)| wanted(**fold));
            chosen.map(|(id, _)| id.clone()).collect()
        };
        let fold =
            |number: usize| Fold { train: pick(&|fold| fold != number), val: pick(&|fold| fold == number) };
        Ok((0..folds).map(fold).collect::<Vec<Fold>>().into())
    }

    /// Reads `splits_final.json` and checks it against the cases of the data set. Not every case needs to be in it.
    ///
    /// # Errors
    /// If the file cannot be read, names cases that are not there, or has a case twice where it may be only once; or the budget has no
    /// room for it.
    pub fn read(path: impl AsRef<Path>, ids: &[String], budget: &Budget) -> Result<Splits, SplitsError> {
        let path = path.as_ref();
        let splits = Splits::parse(path, budget)?;
        splits.check(path, ids)?;
        Ok(splits)
    }

    /// Reads the `splits_final.json` of a run, whose cases the data set may have lost since.
    ///
    /// # Errors
    /// If the file cannot be read, has a case twice where it may be only once, or the budget has no room for it.
    pub fn read_of_run(path: impl AsRef<Path>, budget: &Budget) -> Result<Splits, SplitsError> {
        let path = path.as_ref();
        let splits = Splits::parse(path, budget)?;
        splits.check_lists(path)?;
        Ok(splits)
    }

    /// All cases that are in a fold.
    pub fn cases(&self) -> BTreeSet<&str> {
        let lists = self.folds.iter().flat_map(|fold| fold.train.iter().chain(&fold.val));
        lists.map(String::as_str).collect()
    }

    /// Parses a file of folds, whose memory is reserved as it grows.
    fn parse(path: &Path, budget: &Budget) -> Result<Splits, SplitsError> {
        let failed = |source| SplitsError::Io { path: path.into(), action: "read", source };
        let refused = |source| SplitsError::Memory { path: path.into(), source };
        let length = plimsoll_disk::metadata(path).map_err(failed)?.len().min(LARGEST);
        let _text = budget.reserve("text of folds", text_bytes(length)).map_err(refused)?;
        let text = plimsoll_disk::read(path, length).map(plimsoll_disk::without_mark).map_err(failed)?;
        let (folds, memory) = reserved::parse(&text, budget).map_err(|problem| match problem {
            reserved::Problem::Json(problem) => SplitsError::Json { path: path.into(), problem },
            reserved::Problem::OverBudget(source) => refused(source),
        })?;
        let memory = if is_usual_count(&folds) { FilesMemory::default() } else { memory };
        Ok(Splits { folds, _memory: memory, read: length })
    }

    /// Reserves the memory of folds that were not read from a file and exceed those in the data set's memory.
    ///
    /// # Errors
    /// If the budget has no room for them.
    pub fn reserved(self, budget: &Budget) -> Result<Splits, OverBudget> {
        let held = reserved::bytes(&self.folds);
        let memory = match is_usual_count(&self.folds) {
            true => FilesMemory::default(),
            false => budget.reserve(reserved::HOLDER, held)?.into(),
        };
        Ok(Splits { _memory: memory, ..self })
    }

    /// The memory that they need.
    ///
    /// # Errors
    /// If they cannot be written as a run keeps them.
    pub fn needs(&self) -> io::Result<FoldsNeeds> {
        let parsed = reserved::bytes(&self.folds);
        let held = if is_usual_count(&self.folds) { Bytes::ZERO } else { parsed };
        let mut written = ByteCount::default();
        self.write_to(&mut written)?;
        Ok(FoldsNeeds { held, reading: text_bytes(written.0.max(self.read)) + parsed })
    }

    fn write_to(&self, file: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *file, self)?;
        file.write_all(b"\n")
    }

    /// Writes the folds atomically in the format of `splits_final.json`.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), SplitsError> {
        let path = path.as_ref();
        atomic::write(path, |file| self.write_to(file)).map_err(|source| SplitsError::Io {
            path: path.into(),
            action: "write",
            source,
        })
    }

    /// The fold with this number.
    ///
    /// # Errors
    /// If there is none.
    pub fn fold(&self, fold: usize) -> Result<&Fold, SplitsError> {
        self.folds.get(fold).ok_or(SplitsError::NoSuchFold { fold, folds: self.folds.len() })
    }

    /// Checks that no list is empty or has a case twice, and that none trains and validates; `path` is named by errors.
    ///
    /// # Errors
    /// If one is or has.
    pub fn check_lists(&self, path: &Path) -> Result<(), SplitsError> {
        let ids: Vec<String> = self.cases().into_iter().map(String::from).collect();
        self.check(path, &ids)
    }

    fn check(&self, path: &Path, ids: &[String]) -> Result<(), SplitsError> {
        if self.folds.is_empty() {
            return Err(SplitsError::NoFolds { path: path.into() });
        }
        let known: BTreeSet<&String> = ids.iter().collect();
        for (fold, Fold { train, val }) in self.folds.iter().enumerate() {
            let mut of_train = BTreeSet::new();
            for (list, cases) in [("train", train), ("val", val)] {
                if cases.is_empty() {
                    return Err(SplitsError::Empty { path: path.into(), fold, list });
                }
                let mut seen = BTreeSet::new();
                for case in cases {
                    let (path, case_name) = (path.to_path_buf(), case.clone());
                    if !known.contains(case) {
                        return Err(SplitsError::Unknown { path, fold, list, case: case_name });
                    }
                    if !seen.insert(case) {
                        return Err(SplitsError::Duplicate { path, fold, list, case: case_name });
                    }
                    if of_train.contains(case) {
                        return Err(SplitsError::Overlap { path, fold, case: case_name });
                    }
                }
                of_train.append(&mut seen);
            }
        }
        Ok(())
    }
}
