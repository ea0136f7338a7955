//! The division of a prediction's images among processes.

use plimsoll_data::{Case, FoundImages};
use plimsoll_infer::{CaseRequest, planned_work};

use super::cascade::stage_folder;
use super::model::Opened;
use super::request::PredictRequest;
use crate::context::Context;
use crate::part::{CaseWork, Share};

impl PredictRequest {
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
