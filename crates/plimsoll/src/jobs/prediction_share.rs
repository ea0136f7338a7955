//! The division of a prediction's images among processes.

use plimsoll_data::{Case, FoundImages};
use plimsoll_infer::{CaseRequest, planned_work};

use super::cascade::stage_folder;
use super::predict::{Opened, PredictRequest};
use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::part::{CaseWork, Share};

impl PredictRequest {
    /// Refuses a part of a job that has none.
    pub(super) fn expect_all(&self, job: &str) -> Outcome {
        match self.part {
            None => Ok(()),
            Some(part) => {
                let message = format!("‹part={part}› has no effect: {job}");
                Err(Error::new(message, "leave ‹part› out"))
            }
        }
    }

    /// The images of the requested part, divided by what all models compute; `None` if no part is requested.
    pub(super) fn share(&self, models: &[&Opened], found: &FoundImages, context: &Context) -> Option<Share> {
        let part = self.part?;
        let work = |case: &Case| {
            let of_model = |opened: &&Opened| {
                let earlier = stage_folder(self, opened).map(|folder| folder.join(&case.id));
                let labels = self.output.join(&case.id);
                let request = CaseRequest {
                    case,
                    earlier: earlier.as_deref(),
                    within: None,
                    labels: &labels,
                    probabilities: None,
                };
                // Headers that cannot be read are reported when their cases are predicted.
                planned_work(&opened.model, &request, self.options.step).unwrap_or(0)
            };
            models.iter().map(of_model).fold(0, u64::saturating_add)
        };
        let refused = found.refused.iter().map(|image| CaseWork { name: &image.case, work: 0 });
        let list: Vec<CaseWork<'_>> = refused
            .chain(found.cases.iter().map(|case| CaseWork { name: &case.id, work: work(case) }))
            .collect();
        let share = Share::new(part, &list);
        share.note(&list, context);
        Some(share)
    }
}
