//! Every hint of an error is followed by a test, or known not to be, with the reason; and flags that hints name are flags.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use plimsoll_remedy::{Job, Remedy};

use crate::support::plimsoll;

/// Errors whose hints are followed by a test, here or in `ends::changes` and `hints`; and those that share such a hint.
const FOLLOWED: &[&str] = &[
    "ComparisonError::MissingCases",
    "ComparisonError::NoScore",
    "ComparisonError::SameName",
    "ComparisonError::TooFew",
    "ConfigError::Coarsest",
    "ConfigError::Heads",
    "ConfigError::Length",
    "ConfigError::Patch",
    "ConfigError::Unused",
    "ConfigError::Value",
    "DatasetError::ChannelNumbers",
    "DatasetError::DuplicateCase",
    "DatasetError::ExtraChannel",
    "DatasetError::FileEnding",
    "DatasetError::Json",
    "DatasetError::LabelForm",
    "DatasetError::LabelValue",
    "DatasetError::MissingChannel",
    "DatasetError::MissingKey",
    "DatasetError::MissingLabel",
    "DatasetError::MissingPredictions",
    "DatasetError::MixedNames",
    "DatasetError::NoBackground",
    "DatasetError::NoCases",
    "DatasetError::NoName",
    "DatasetError::NoPartner",
    "DatasetError::NoPredictions",
    "DatasetError::NotAFolder",
    "DatasetError::Outside",
    "DatasetError::Region",
    "DatasetError::RegionOrder",
    "DatasetError::SameName",
    "DatasetError::SameValue",
    "DatasetError::SegmentValues",
    "DatasetError::SegmentsOverlap",
    "DatasetError::Values",
    "DicomError::Attribute",
    "DicomError::Differs",
    "DicomError::Doubled",
    "DicomError::Gap",
    "DicomError::NotAnImage",
    "DicomError::Nothing",
    "DicomError::Several",
    "DicomError::Stray",
    "DicomError::Unreadable",
    "HeaderError::BitsPerVoxel",
    "HeaderError::Datatype",
    "HeaderError::Dimension",
    "HeaderError::DimensionCount",
    "HeaderError::Magic",
    "HeaderError::PairInOneFile",
    "HeaderError::Quaternion",
    "HeaderError::Scaling",
    "HeaderError::Spacing",
    "HeaderError::Unit",
    "HeaderError::VoxelOffset",
    "ImageDatasetError::Cell",
    "ImageDatasetError::Csv",
    "ImageDatasetError::MixedFolders",
    "ImageDatasetError::MixedLabels",
    "ImageDatasetError::NoCases",
    "ImageDatasetError::NoColumn",
    "ImageDatasetError::Twice",
    "ImageError::Foreign",
    "InferError::Grid",
    "InferError::Infeasible",
    "InferError::InfeasibleOnDevice",
    "InferError::Interrupted",
    "InferError::Memory",
    "InferError::NoFeatures",
    "InferError::OverBudget",
    "InferError::Overhead",
    "InferError::ReplacesImage",
    "InferError::Spool",
    "InferError::WindowBatch",
    "InspectError::Case",
    "InspectError::Memory",
    "InteractiveError::EmptyBox",
    "InteractiveError::NoMarks",
    "InteractiveError::Outside",
    "InteractiveError::Unsupported",
    "ModelError::NotAModel",
    "RunError::AllFoldsBegun",
    "RunError::ChangedData",
    "RunError::FixedSettings",
    "RunError::Infeasible",
    "RunError::InfeasibleOnDevice",
    "RunError::LostCases",
    "RunError::LostCheckpoints",
    "RunError::NewCases",
    "RunError::NoEncoder",
    "RunError::NoSoundCheckpoint",
    "RunError::NothingToResume",
    "RunError::Occupied",
    "RunError::OtherTopology",
    "RunError::OtherUse",
    "RunError::Shortened",
    "SplitsError::Duplicate",
    "SplitsError::Empty",
    "SplitsError::Json",
    "SplitsError::NoFolds",
    "SplitsError::NoSuchFold",
    "SplitsError::OneFold",
    "SplitsError::Overlap",
    "SplitsError::TooFewCases",
    "SplitsError::Unknown",
    "VolumeError::Damaged",
    "VolumeError::MissingPart",
    "VolumeError::NoHeader",
    "VolumeError::StackSpacing",
    "VolumeError::TooShort",
    "VolumeError::Trailing",
    "VolumeError::UnknownName",
    "VolumeError::UnknownSegment",
    "VolumeError::UnwritablePicture",
    "VolumeError::UnwrittenName",
    "VolumeError::WritesPair",
];

/// Errors whose hints are not followed, by the reason.
const NOT_FOLLOWED: &[(&str, &[&str])] = &[
    (
        "it passes on the hint of another error, or leaves it to the system's message",
        &[
            "ComparisonError::Table",
            "ConfigError::Graph",
            "DatasetError::Layout",
            "DatasetError::TooLarge",
            "DatasetError::Volume",
            "DicomError::Grid",
            "DicomError::Volume",
            "HeaderError::Geometry",
            "ImageError::Length",
            "InferError::Config",
            "InferError::Engine",
            "InferError::Files",
            "InferError::Image",
            "InferError::Images",
            "InferError::Inspect",
            "InferError::Located",
            "InferError::Normalisation",
            "InferError::Patch",
            "InferError::Plan",
            "InferError::Prepare",
            "InferError::Run",
            "InferError::Unreadable",
            "InferError::Unsound",
            "InferError::Volume",
            "InferError::Write",
            "InspectError::Labels",
            "InteractiveError::Infer",
            "InteractiveError::Volume",
            "MetricError::Class",
            "MetricError::Length",
            "MetricError::Morphology",
            "MetricError::Volume",
            "ModelError::Config",
            "ModelError::Monai",
            "ModelError::NnUnet",
            "ModelError::NotExported",
            "ModelError::Package",
            "ModelError::Run",
            "ModelError::TensorFlow",
            "ModelError::Weights",
            "PostprocessError::Grid",
            "PostprocessError::Io",
            "PostprocessError::Map",
            "PostprocessError::Morphology",
            "PostprocessError::Volume",
            "RunError::Config",
            "RunError::Engine",
            "RunError::Unwritable",
            "RunError::Weights",
            "TableError::Io",
            "TableError::Labelling",
            "TableError::Names",
            "TableError::NoClass",
            "TableError::Shape",
            "TrainError::Config",
            "TrainError::Engine",
            "TrainError::Images",
            "TrainError::Loader",
            "TrainError::Plan",
            "TrainError::Ranks",
            "TrainError::Run",
            "TrainError::Sampler",
            "TrainError::Splits",
            "TrainError::Unkept",
            "VolumeError::Abandoned",
            "VolumeError::Added",
            "VolumeError::BufferLength",
            "VolumeError::Channel",
            "VolumeError::Header",
            "VolumeError::NotALabel",
            "VolumeError::NotDecoded",
            "VolumeError::PartialPlane",
            "VolumeError::Picture",
            "VolumeError::PlaneCount",
            "VolumeError::Region",
            "VolumeError::Template",
            "VolumeError::Text",
            "VolumeError::TooLarge",
            "VolumeError::UnwritableSize",
        ],
    ),
    (
        "it asks for more memory, another disk or a permission: `faults`, `failing_disk` and tests of limits do so",
        &[
            "ComparisonError::Memory",
            "DatasetError::Io",
            "DatasetError::Memory",
            "DicomError::Io",
            "DicomError::Memory",
            "DicomError::OverBudget",
            "ImageDatasetError::Io",
            "ImageDatasetError::Memory",
            "ImageError::Io",
            "ImageError::Memory",
            "ImageError::Pixels",
            "ImageError::TooLong",
            "InspectError::Io",
            "InspectError::Thread",
            "MetricError::Memory",
            "ModelError::Memory",
            "PostprocessError::Memory",
            "RunError::Io",
            "RunError::Locked",
            "RunError::Memory",
            "SplitsError::Io",
            "SplitsError::Memory",
            "TableError::Memory",
            "TrainError::Memory",
            "TrainError::OverBudget",
            "VolumeError::Decompress",
            "VolumeError::Io",
            "VolumeError::Memory",
        ],
    ),
    (
        "every command refuses the files before this check of an invariant: descriptions when a model is opened, and labels of an earlier \
         stage when they are read; the labels of a stage are made from the image itself",
        &[
            "DicomError::OtherShape",
            "InferError::OtherGrid",
            "InferError::OtherNetwork",
            "InferError::OtherShape",
            "InferError::SeveralChannels",
        ],
    ),
    (
        "it asks for the file as it was, from a copy or its source",
        &[
            "HeaderError::TooLarge",
            "ImageError::CutOff",
            "ImageError::Damaged",
            "ImageError::Empty",
            "ImageError::LargerThanPlanned",
            "InferError::Probabilities",
            "ModelError::DamagedModel",
            "ModelError::ModelFile",
            "RunError::Checkpoint",
            "RunError::Json",
            "RunError::OtherData",
            "RunError::OtherPrograms",
            "RunError::OtherVersion",
            "RunError::OtherWeights",
            "RunError::UnknownCase",
            "VolumeError::ImpossibleSize",
        ],
    ),
    (
        "it asks for a conversion or a correction by another program",
        &[
            "DatasetError::ChannelCount",
            "DicomError::Pixels",
            "DicomError::Segmentation",
            "HeaderError::NotNifti",
            "ImageError::LabelSamples",
            "ImageError::LossyLabels",
            "ImageError::MaskExtent",
            "ImageError::NoRange",
            "ImageError::Unsupported",
            "InteractiveError::Channels",
            "InteractiveError::ConstantImage",
            "InteractiveError::EmptyImage",
            "InteractiveError::ImageNotFinite",
            "MetricError::FrameOfReference",
            "MetricError::Geometry",
            "ModelError::LicensedTask",
            "ModelError::NoTaskWeights",
            "VolumeError::NoSegment",
            "VolumeError::NotForLabels",
            "VolumeError::Overlap",
            "VolumeError::Stack",
            "VolumeError::StackLengths",
            "VolumeError::TemplateDiffers",
            "VolumeError::UnknownLabel",
            "VolumeError::UnnamedClasses",
        ],
    ),
    (
        "it names what to choose from, or another path, of which the user decides",
        &[
            "ComparisonError::CaseTwice",
            "ComparisonError::ClassNames",
            "ComparisonError::Classes",
            "ComparisonError::Count",
            "ComparisonError::Labelling",
            "ComparisonError::NoClass",
            "ComparisonError::NoClassNamed",
            "ComparisonError::NoCommonCases",
            "ComparisonError::NoDiagonal",
            "ComparisonError::NoImageScore",
            "ComparisonError::NoName",
            "ComparisonError::OtherLabel",
            "ComparisonError::OtherReference",
            "ComparisonError::OtherVoxels",
            "ComparisonError::Parameters",
            "ComparisonError::Repeats",
            "ConfigError::Background",
            "ConfigError::Loss",
            "DatasetError::NoDatasetJson",
            "DatasetError::NoLayout",
            "DatasetError::TooManyClasses",
            "DicomError::Interrupted",
            "DicomError::InterruptedWriting",
            "DicomError::Segments",
            "DicomError::TooManyMasks",
            "DicomError::Unencodable",
            "ImageDatasetError::NoClasses",
            "ImageDatasetError::TooLong",
            "ImageDatasetError::TooManyClasses",
            "ModelError::FoldsDiffer",
            "ModelError::NoFold",
            "ModelError::NoMode",
            "ModelError::NoModel",
            "ModelError::NoRun",
            "ModelError::NoStart",
            "ModelError::NoTask",
            "ModelError::NotAdopted",
            "ModelError::NotARun",
            "ModelError::UnavailableTask",
            "ModelError::OfImages",
            "ModelError::OfPairs",
            "ModelError::OwnNames",
            "ModelError::SeveralUses",
            "ModelError::WithoutFolds",
            "PostprocessError::Channels",
            "PostprocessError::NotALabel",
            "PostprocessError::Nothing",
            "PostprocessError::OtherGrid",
            "PostprocessError::Radius",
            "PostprocessError::Steps",
            "RunError::Extra",
            "RunError::FarSpacing",
            "RunError::NewCasesOfSweep",
            "RunError::NoFold",
            "RunError::OtherChannels",
            "RunError::OtherSpecification",
            "RunError::OtherTask",
            "RunError::StartChannels",
            "RunError::Sweep",
            "TableError::Empty",
            "TableError::Line",
            "TrainError::OtherRank",
        ],
    ),
    (
        "calls of the library alone, or of thousands of prompts, lead to it",
        &[
            "InteractiveError::Length",
            "InteractiveError::NoImage",
            "InteractiveError::NoVoxels",
            "InteractiveError::NotFinite",
            "InteractiveError::Stopped",
            "InteractiveError::TooManyPrompts",
        ],
    ),
    (
        "numbers that went wrong: `ends::bad_numbers` follows its ways out",
        &["InferError::NotFinite", "RunError::NotFinite", "TrainError::BadNumbers"],
    ),
];

/// The errors that commands print, with the file of each.
const ERRORS: [(&str, &str); 18] = [
    ("RunError", "plimsoll-run/src/error.rs"),
    ("ModelError", "plimsoll-models/src/error.rs"),
    ("ConfigError", "plimsoll-nn/src/error.rs"),
    ("DatasetError", "plimsoll-data/src/dataset/error.rs"),
    ("InspectError", "plimsoll-data/src/inspect/error.rs"),
    ("SplitsError", "plimsoll-data/src/splits/mod.rs"),
    ("InferError", "plimsoll-infer/src/error.rs"),
    ("InteractiveError", "plimsoll-infer/src/interactive/error.rs"),
    ("MetricError", "plimsoll-metrics/src/error.rs"),
    ("ComparisonError", "plimsoll-metrics/src/comparison/error.rs"),
    ("TableError", "plimsoll-metrics/src/classification/table.rs"),
    ("VolumeError", "plimsoll-volume/src/error.rs"),
    ("HeaderError", "plimsoll-volume/src/nifti/error.rs"),
    ("DicomError", "plimsoll-dicom/src/error.rs"),
    ("ImageError", "plimsoll-image/src/error.rs"),
    ("ImageDatasetError", "plimsoll-data/src/pictures/dataset/error.rs"),
    ("PostprocessError", "plimsoll-postprocess/src/error.rs"),
    ("TrainError", "plimsoll-train/src/error.rs"),
];

/// The body of `remedy` of an error.
fn hints(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
    let source = fs::read_to_string(path).unwrap();
    let body = source.split("pub fn remedy(&self)").nth(1).unwrap();
    body.split("\n    }\n").next().unwrap().to_string()
}

#[test]
fn each_hint_is_followed_or_known_not_to_be() {
    let mut found = BTreeSet::new();
    for (name, file) in ERRORS {
        let hints = hints(file);
        let of_source = if name == "ImageDatasetError" { "DatasetError" } else { name };
        for variant in hints.split(&format!("{of_source}::")).skip(1) {
            let variant: String = variant.chars().take_while(|letter| letter.is_alphanumeric()).collect();
            found.insert(format!("{name}::{variant}"));
        }
    }
    assert!(found.len() > 250, "{found:?}");
    let known = || FOLLOWED.iter().chain(NOT_FOLLOWED.iter().flat_map(|(_, names)| *names));
    let names: BTreeSet<String> = known().map(|name| (*name).to_string()).collect();
    assert_eq!(names.len(), known().count(), "each stands in one list");
    let unknown: Vec<&String> = found.difference(&names).collect();
    assert!(unknown.is_empty(), "follow the hints of {unknown:?} in a test");
    let gone: Vec<&String> = names.difference(&found).collect();
    assert!(gone.is_empty(), "no error has the hints of {gone:?}");
}

/// Returns whether a mark names a job.
fn is_job(mark: &str) -> bool {
    let words = mark.strip_prefix("job ").and_then(|call| call.split(' ').next());
    words.is_some_and(|name| Job::from_name(name).is_some())
}

/// The flags that the help of a command lists.
fn flags_of(command: &[&str]) -> BTreeSet<String> {
    let output = plimsoll().args(command).arg("--help").output().unwrap();
    assert!(output.status.success(), "{command:?}");
    let help = String::from_utf8(output.stdout).unwrap();
    let lines = help.lines().filter(|line| line.trim_start().starts_with('-'));
    lines
        .flat_map(|line| line.split([' ', ',', '=', '[']))
        .filter(|word| word.starts_with("--"))
        .map(String::from)
        .collect()
}

/// Commands with subcommands have theirs behind a space.
const COMMANDS: [&str; 20] = [
    "demo",
    "doctor",
    "inspect",
    "plan",
    "settings",
    "train",
    "sweep",
    "status",
    "watch",
    "report",
    "predict",
    "segment",
    "interact",
    "postprocess",
    "models import",
    "models show",
    "models export",
    "evaluate",
    "compare",
    "export",
];

#[test]
fn flags_that_hints_name_are_flags_of_the_commands() {
    let commands = COMMANDS.map(|name| {
        let words: Vec<&str> = name.split(' ').collect();
        (name, flags_of(&words))
    });
    let is_flag = |flag: &String| commands.iter().any(|(_, flags)| flags.contains(flag));
    let mut count = 0;
    for (name, file) in ERRORS {
        // Texts that continue in the next line.
        let hints = hints(file).replace("\\\n", " ");
        // Marks that name a parameter are flags by a test of the words of the command line.
        for mark in hints.split('‹').skip(1) {
            let mark = mark.split('›').next().unwrap();
            let is_parameter = Remedy::from(format!("‹{mark}›")).changes().next().is_some();
            assert!(is_parameter || is_job(mark), "{name}: there is no parameter or job {mark}");
            count += 1;
        }
        for flag in super::flags(&hints.replace('"', " ")).iter().filter(|word| word.starts_with("--")) {
            let flag = flag.trim_end_matches(|last: char| !last.is_ascii_lowercase()).to_string();
            assert!(is_flag(&flag), "{name}: there is no flag {flag}");
            count += 1;
        }
        // Commands that are written out have the flags that are named with them.
        for command in super::quoted(&hints) {
            let Some(rest) = command.strip_prefix("plimsoll ") else { continue };
            let found = commands.iter().find(|(name, _)| rest.starts_with(name));
            let (name, flags) = found.unwrap_or_else(|| panic!("there is no command `{command}`"));
            for flag in super::flags(&command).iter().filter(|word| word.starts_with("--")) {
                assert!(flags.contains(flag), "`{name}` has no flag {flag}");
            }
        }
    }
    assert!(count > 40, "{count}");
}
