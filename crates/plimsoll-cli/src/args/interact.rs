//! `plimsoll interact`: objects that prompts mark.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use plimsoll::{InteractRequest, Prompt};
use plimsoll_run::FoldName;

use super::{Compute, Ram};
use crate::failure::Outcome;

/// An image, a model of nnInteractive and prompts.
#[derive(Debug, ClapArgs)]
pub struct Interact {
    /// The image, of one channel.
    #[arg(value_name = "IMAGE")]
    pub image: PathBuf,
    /// The folder of a model of nnInteractive: plans.json, dataset.json, inference_info.json and fold_0.
    #[arg(short, long, value_name = "MODEL")]
    pub model: PathBuf,
    /// The fold, if the folder has several.
    #[arg(long, value_name = "FOLD")]
    pub fold: Option<FoldName>,
    /// The label map: 1 for the object.
    #[arg(short, long, value_name = "OUT", required_unless_present = "plan")]
    pub output: Option<PathBuf>,
    /// A prompt; several apply in their order, with a prediction after each. Voxels are in the order depth, height, width, from 0:
    /// point:40,60,60; box:40:41,20:90,30:80 (the end is past the last voxel); scribble:FILE or lasso:FILE, masks on the grid of the image;
    /// initial:FILE, a segmentation to begin with. With no- before it, like no-point:40,60,90, a prompt marks what does not belong to the
    /// object.
    #[arg(short, long, value_name = "PROMPT", value_parser = prompt, required_unless_present = "plan")]
    pub prompt: Vec<Prompt>,
    /// Segment one patch around each prompt alone, even if the object continues beyond it.
    #[arg(long)]
    pub no_zoom: bool,
    /// Replace an existing label map.
    #[arg(long)]
    pub overwrite: bool,
    /// Print the memory, from the header of the image alone; nothing is predicted.
    #[arg(long)]
    pub plan: bool,
    #[command(flatten)]
    pub ram: Ram,
    #[command(flatten)]
    pub compute: Compute,
}

impl Interact {
    /// The request.
    pub fn request(&self) -> Outcome<InteractRequest> {
        let backend = if self.plan { self.compute.open_to_plan()? } else { self.compute.open()? };
        Ok(InteractRequest {
            image: self.image.clone(),
            model: self.model.clone(),
            fold: self.fold,
            output: self.output.clone().unwrap_or_default(),
            prompts: self.prompt.clone(),
            auto_zoom: !self.no_zoom,
            overwrite: self.overwrite,
            ram: self.ram.ram,
            threads: self.compute.threads.count(),
            backend,
        })
    }
}

/// Reads a prompt: its kind, a colon, and its voxels or its file.
fn prompt(text: &str) -> Result<Prompt, String> {
    let kinds = "point, box, scribble, lasso and initial";
    let Some((kind, value)) = text.split_once(':') else {
        return Err(format!(
            "a prompt is a kind, a colon and a value, like point:40,60,60; kinds are {kinds}"
        ));
    };
    let (include, kind) = match kind.strip_prefix("no-") {
        Some(kind) => (false, kind),
        None => (true, kind),
    };
    let file = PathBuf::from(value);
    match (kind, include) {
        ("point", _) => {
            let at = three(value, |number| number.parse().ok());
            let at = at.ok_or("a point is depth,height,width, like point:40,60,60")?;
            Ok(Prompt::Point { at, include })
        }
        ("box", _) => {
            let range = |text: &str| {
                let (start, end) = text.split_once(':')?;
                Some((start.trim().parse::<i64>().ok()?, end.trim().parse::<i64>().ok()?))
            };
            let ranges = three(value, range).ok_or("a box is three ranges, like box:40:41,20:90,30:80")?;
            Ok(Prompt::Box {
                start: ranges.map(|(start, _)| start),
                end: ranges.map(|(_, end)| end),
                include,
            })
        }
        ("scribble", _) => Ok(Prompt::Scribble { file, include }),
        ("lasso", _) => Ok(Prompt::Lasso { file, include }),
        ("initial", true) => Ok(Prompt::Initial { file }),
        _ => Err(format!("unknown kind of prompt `{kind}`; kinds are {kinds}")),
    }
}

/// Reads three values with commas between.
fn three<T>(text: &str, read: impl Fn(&str) -> Option<T>) -> Option<[T; 3]> {
    let values: Option<Vec<T>> = text.split(',').map(|part| read(part.trim())).collect();
    values?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_are_read_by_their_kinds() {
        assert_eq!(prompt("point:4, 5,6"), Ok(Prompt::Point { at: [4, 5, 6], include: true }));
        assert_eq!(prompt("no-point:-1,5,6"), Ok(Prompt::Point { at: [-1, 5, 6], include: false }));
        let expected = Prompt::Box { start: [4, 0, 7], end: [5, 9, 8], include: false };
        assert_eq!(prompt("no-box:4:5,0:9,7:8"), Ok(expected));
        let file = PathBuf::from("c:/lasso.nii.gz");
        assert_eq!(prompt("lasso:c:/lasso.nii.gz"), Ok(Prompt::Lasso { file, include: true }));
        for wrong in [
            "point",
            "point:4,5",
            "point:4,5,6,7",
            "point:a,5,6",
            "box:4,0:9,7:8",
            "no-initial:a.nii",
            "dot:1,2,3",
        ] {
            assert!(prompt(wrong).is_err(), "{wrong}");
        }
    }
}
