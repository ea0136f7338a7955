//! Names of scored classes, and conventions of scores in words.

use plimsoll_data::Labels;
use plimsoll_metrics::Missing;

/// The names of classes, by their numbers; empty where they are not known.
#[derive(Clone, Debug, Default)]
pub struct ClassNames(Vec<String>);

impl From<Vec<String>> for ClassNames {
    fn from(names: Vec<String>) -> ClassNames {
        ClassNames(names)
    }
}

impl ClassNames {
    /// Returns the names of the scored classes or regions of a data set.
    pub fn new(labels: &Labels) -> ClassNames {
        ClassNames(labels.scored_names())
    }

    /// The name of a class; its number where it has none.
    pub fn name(&self, class: u8) -> String {
        self.0.get(usize::from(class)).cloned().unwrap_or_else(|| class.to_string())
    }
}

/// The convention of means over cases in which a class is missing, for people.
pub fn missing_words(missing: Missing) -> &'static str {
    match missing {
        Missing::Ignore => {
            "(n of N): N cases, of which n have the score; means leave the others out, which favours whoever finds nothing: \
             the conventions `worst` and `diagonal` count them"
        }
        Missing::Worst => {
            "(n of N): N cases, of which n have the score; missing ones count as 0, and missing distances as infinite"
        }
        Missing::Diagonal => {
            "(n of N): N cases, of which n have the score; missing ones count as 0, and missing distances as the diagonal of the image"
        }
    }
}
