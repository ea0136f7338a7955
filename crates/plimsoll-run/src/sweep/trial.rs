//! One fold of one arm with one seed.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{FoldName, RunError};

/// One fold of one arm with one seed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trial {
    /// The name of its arm.
    pub arm: String,
    /// Its seed.
    pub seed: u64,
    /// Its fold.
    pub fold: FoldName,
}

/// The form that [`TrialPattern`] reads, which is also the path of the folder.
impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Trial { arm, seed, fold } = self;
        write!(f, "{arm}/seed_{seed}/fold_{fold}")
    }
}

/// Why a trial failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrialFailure {
    /// When, by RFC 3339.
    pub time: String,
    /// The error in one line.
    pub error: String,
    /// The remedy as a text.
    pub hint: String,
}

/// A pattern of trials: all of an arm, those with one seed, or one trial: `ARM`, `ARM/0` or `ARM/seed_0`, `ARM/0/1` or
/// `ARM/seed_0/fold_1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrialPattern {
    arm: String,
    seed: Option<u64>,
    fold: Option<FoldName>,
}

impl TrialPattern {
    /// Returns `true` if the pattern includes a trial.
    pub fn has(&self, trial: &Trial) -> bool {
        self.arm == trial.arm
            && self.seed.is_none_or(|seed| seed == trial.seed)
            && self.fold.is_none_or(|fold| fold == trial.fold)
    }
}

impl FromStr for TrialPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<TrialPattern, String> {
        let wrong = || format!("`{text}` is not ARM, ARM/SEED or ARM/SEED/FOLD");
        let mut parts = text.trim_end_matches('/').split('/');
        let arm = parts.next().filter(|arm| !arm.is_empty()).ok_or_else(wrong)?;
        let seed = |part: &str| part.strip_prefix("seed_").unwrap_or(part).parse().map_err(|_| wrong());
        let fold = |part: &str| {
            let name = part.strip_prefix("fold_").unwrap_or(part).parse();
            name.map_err(|_: RunError| wrong())
        };
        let pattern = TrialPattern {
            arm: arm.into(),
            seed: parts.next().map(seed).transpose()?,
            fold: parts.next().map(fold).transpose()?,
        };
        if parts.next().is_some() { Err(wrong()) } else { Ok(pattern) }
    }
}

impl fmt::Display for TrialPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.arm)?;
        self.seed.map_or(Ok(()), |seed| write!(f, "/seed_{seed}"))?;
        self.fold.map_or(Ok(()), |fold| write!(f, "/fold_{fold}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_an_arm_a_run_or_a_trial_and_reads_what_a_trial_is_shown_as() {
        let trial = Trial { arm: "dice-ce".into(), seed: 3, fold: FoldName::Number(1) };
        let has = |text: &str| text.parse::<TrialPattern>().unwrap().has(&trial);
        for text in
            ["dice-ce", "dice-ce/3", "dice-ce/seed_3", "dice-ce/3/1", &trial.to_string(), "dice-ce/3/"]
        {
            assert!(has(text), "{text}");
        }
        for text in ["dice", "dice-ce/2", "dice-ce/3/0", "dice-ce/3/all"] {
            assert!(!has(text), "{text}");
        }
        for text in ["", "/3", "a/x", "a/1/x", "a/1/2/3", "a//2"] {
            assert!(text.parse::<TrialPattern>().is_err(), "{text}");
        }
        assert_eq!("a/seed_1/all".parse::<TrialPattern>().unwrap().to_string(), "a/seed_1/fold_all");
    }
}
