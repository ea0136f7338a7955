//! Options of `nnUNetv2_predict` and `TotalSegmentator`, under the names that their users know: those that are ours under another name, and
//! those that are refused with a reason.

use std::ffi::{OsStr, OsString};

use crate::failure::Failure;

/// The counterpart of an option of another program.
enum Meaning {
    /// An option of ours.
    Ours(&'static str),
    /// Not done, and why; and what to do instead.
    Refused(&'static str, &'static str),
}

use Meaning::{Ours, Refused};

const NO_PROCESSES: Meaning = Refused(
    "has no effect: there is one process, whose steps share its threads",
    "leave it out, or set --threads",
);
const NO_BAR: Meaning = Refused(
    "has no effect: progress bars appear only on terminals",
    "leave it out; with --json there are none",
);

/// Options of `nnUNetv2_predict` and `nnUNetv2_predict_from_modelfolder` 2.8.1.
const NNUNET: [(&str, Meaning); 13] = [
    ("-chk", Ours("--chk")),
    ("-tr", Ours("--tr")),
    ("-step_size", Ours("--step-size")),
    ("--step_size", Ours("--step-size")),
    ("-prev_stage_predictions", Ours("--prev-stage-predictions")),
    ("-device", Ours("--device")),
    ("--c", Ours("--continue-prediction")),
    ("-npp", NO_PROCESSES),
    ("-nps", NO_PROCESSES),
    (
        "-num_parts",
        Refused(
            "is not needed: one argument names the part of the images",
            "pass --part 1/4 for -num_parts 4 -part_id 0",
        ),
    ),
    (
        "-part_id",
        Refused(
            "is not needed: one argument names the part of the images",
            "pass --part 1/4 for -num_parts 4 -part_id 0",
        ),
    ),
    ("--disable_progress_bar", NO_BAR),
    (
        "--not_on_device",
        Refused("has no effect: the memory limit of the GPU decides what it stores", "set --vram"),
    ),
];

const BY_NAME: Meaning = Refused(
    "is not needed: the name of the output says what is written",
    "let -o end in .nii.gz, .nii or .seg.nrrd with --ml, or in .dcm with --segmentation-type labelmap, binary or rtstruct",
);
const LINEAR: Meaning = Refused(
    "is not supported: images are resampled linearly, TotalSegmentator's default",
    "leave it out; --higher-order-resampling resamples them with nnU-Net's cubic splines",
);
const LOW_RESOLUTION: Meaning = Refused(
    "is not supported: labels are written on the grid of the image",
    "leave it out, and resample the labels elsewhere",
);
const NO_SPLIT: Meaning = Refused(
    "has no effect: images are read in parts and need no division",
    "leave it out, and set the memory limit with --ram",
);
const NO_NORA: Meaning = Refused("is not supported: no results are sent to Nora", "leave it out");
const NO_RADIOMICS: Meaning = Refused(
    "is not supported: it measures resampled images, and textures",
    "--report writes the shape and the first-order features of each label in the image as it is",
);
const REPORT: Meaning =
    Refused("is not needed", "--json prints a report of the run; --report writes features of each label");
const MEAN: Meaning = Refused("is not supported: --statistics reports the mean intensity", "leave it out");
const NO_MORE_STATISTICS: Meaning =
    Refused("is not supported: --statistics reports volume and mean intensity", "leave it out");
const NO_CROP_PATH: Meaning = Refused(
    "is not supported: the task finds its region of interest itself",
    "leave it out; --roi-subset selects structures",
);
const ALWAYS_SAVED: Meaning =
    Refused("is not supported: statistics are computed from the written labels", "leave it out");
const NO_V1: Meaning = Refused("is not supported: labels have the values of version 2", "leave it out");
const QUIET: Meaning = Refused("is not needed", "--json prints one report and nothing else");
const NO_PROBABILITIES: Meaning = Refused(
    "is not supported for tasks",
    "`plimsoll predict --save-probabilities -m MODEL` writes the probabilities of one model",
);
const NO_MORE_WORDS: Meaning = Refused("has no effect: errors state what failed", "leave it out");
const NO_LICENSE: Meaning = Refused(
    "has no effect: tasks whose weights need a licence are not run",
    "`plimsoll segment --list` names the open ones",
);
const LISTED: Meaning = Refused("is not needed", "`plimsoll segment --list` names the labels of all tasks");
const OLD_ORDER: Meaning = Refused(
    "is not supported: it smooths labels after the decision",
    "--higher-order-resampling decides them on the grid of the image, which is smoother, too",
);

/// Options of TotalSegmentator 2.18.
const TOTAL_SEGMENTATOR: [(&str, Meaning); 58] = [
    ("-ml", Ours("--ml")),
    ("-ta", Ours("--task")),
    ("-f", Ours("--fast")),
    ("-ff", Ours("--fastest")),
    ("-ms", Ours("--model-size")),
    ("-rs", Ours("--roi-subset")),
    ("-rsr", Ours("--roi-subset-robust")),
    ("-rc", Ours("--robust-crop")),
    ("-ho", Ours("--higher-order-resampling")),
    ("-sii", Ours("--stats-include-incomplete")),
    ("-bs", Ours("--body-seg")),
    ("-ndm", Ours("--no-derived-masks")),
    ("-rmb", Ours("--remove-small-blobs")),
    ("-d", Ours("--device")),
    ("-lt", Ours("--list")),
    ("--list-tasks", Ours("--list")),
    ("-ot", BY_NAME),
    ("--output_type", BY_NAME),
    ("-nr", NO_PROCESSES),
    ("--nr_thr_resamp", NO_PROCESSES),
    ("-ns", NO_PROCESSES),
    ("--nr_thr_saving", NO_PROCESSES),
    ("-ro", LINEAR),
    ("--resampling_order", LINEAR),
    ("-sl", LOW_RESOLUTION),
    ("--save_lowres", LOW_RESOLUTION),
    ("-t", NO_NORA),
    ("--nora_tag", NO_NORA),
    ("--higher_order_resampling_LEGACY", OLD_ORDER),
    ("--high_order_resampling_LEGACY", OLD_ORDER),
    ("-r", NO_RADIOMICS),
    ("--radiomics", NO_RADIOMICS),
    ("-rp", REPORT),
    ("-sa", MEAN),
    ("--stats_aggregation", MEAN),
    ("-sx", NO_MORE_STATISTICS),
    ("--statistics_extra", NO_MORE_STATISTICS),
    ("-cp", NO_CROP_PATH),
    ("--crop_path", NO_CROP_PATH),
    ("-fs", NO_SPLIT),
    ("--force_split", NO_SPLIT),
    ("--force-split", NO_SPLIT),
    ("-ss", ALWAYS_SAVED),
    ("--skip_saving", ALWAYS_SAVED),
    ("-v1o", NO_V1),
    ("--v1_order", NO_V1),
    ("-q", QUIET),
    ("--quiet", QUIET),
    ("-sp", NO_PROBABILITIES),
    ("--save_probabilities", NO_PROBABILITIES),
    ("-v", NO_MORE_WORDS),
    ("--verbose", NO_MORE_WORDS),
    ("--debug", NO_MORE_WORDS),
    ("-l", NO_LICENSE),
    ("--license_number", NO_LICENSE),
    ("-lc", LISTED),
    ("--list-classes", LISTED),
    ("--test", Refused("is not supported: it belongs to TotalSegmentator's own tests", "leave it out")),
];

/// The options of another program that a command knows.
fn known(command: &OsStr) -> &'static [(&'static str, Meaning)] {
    match command.to_str() {
        Some("predict") => &NNUNET,
        Some("segment") => &TOTAL_SEGMENTATOR,
        _ => &[],
    }
}

/// Arguments of the process, with other programs' names of options of `predict` and `segment` as ours.
///
/// # Errors
/// Returns an error if there is one that is not done here.
pub fn with_own_names(arguments: impl Iterator<Item = OsString>) -> Result<Vec<OsString>, Failure> {
    let mut arguments: Vec<OsString> = arguments.collect();
    let known = arguments.get(1).map_or(&[][..], |command| known(command));
    for argument in arguments.iter_mut().skip(2).take_while(|argument| *argument != "--") {
        let Some(text) = argument.to_str() else { continue };
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        match known.iter().find(|(theirs, _)| name == *theirs) {
            None => {}
            Some((theirs, Refused(why, hint))) => return Err(Failure::new(format!("{theirs} {why}"), *hint)),
            Some((_, Ours(own))) => {
                let value = value.map(|value| format!("={value}")).unwrap_or_default();
                *argument = format!("{own}{value}").into();
            }
        }
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn renamed<const N: usize>(arguments: [&str; N]) -> Result<Vec<String>, String> {
        let found = with_own_names(arguments.into_iter().map(OsString::from));
        found
            .map(|all| all.into_iter().map(|one| one.into_string().unwrap()).collect())
            .map_err(|failure| format!("{}; {}", failure.line(), failure.remedy()))
    }

    #[test]
    fn options_of_other_programs_are_ours_under_another_name_and_values_stay() {
        assert_eq!(
            renamed(["plimsoll", "predict", "-i", "-chk", "-chk", "a", "-step_size=0.5"]).unwrap(),
            ["plimsoll", "predict", "-i", "--chk", "--chk", "a", "--step-size=0.5"]
        );
        assert_eq!(
            renamed(["plimsoll", "segment", "-ta", "total", "-rs", "liver", "-ho"]).unwrap(),
            ["plimsoll", "segment", "--task", "total", "--roi-subset", "liver", "--higher-order-resampling"]
        );
        // Other commands have other options.
        assert_eq!(renamed(["plimsoll", "train", "-tr"]).unwrap(), ["plimsoll", "train", "-tr"]);
        assert_eq!(renamed(["plimsoll", "predict", "-q"]).unwrap(), ["plimsoll", "predict", "-q"]);
    }

    #[test]
    fn what_is_not_done_is_refused_by_its_name_with_what_to_do_instead() {
        let refused = renamed(["plimsoll", "segment", "-i", "a", "-ro", "3"]).unwrap_err();
        assert!(
            refused.starts_with("-ro is not supported") && refused.contains("--higher-order"),
            "{refused}"
        );
        let refused = renamed(["plimsoll", "predict", "-npp", "3"]).unwrap_err();
        assert!(refused.starts_with("-npp has no effect") && refused.contains("--threads"), "{refused}");
    }

    #[test]
    fn no_name_is_there_twice() {
        for command in ["predict", "segment"] {
            let names: Vec<&str> = known(command.as_ref()).iter().map(|(name, _)| *name).collect();
            let mut sorted = names.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), names.len());
        }
    }
}
