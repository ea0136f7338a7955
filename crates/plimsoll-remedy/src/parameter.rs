//! Names of parameters and jobs that remedies mention.

/// Defines an enumeration of names.
macro_rules! names {
    ($(#[$doc:meta])* $kind:ident { $($(#[$of:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum $kind {
            $($(#[$of])* $variant,)*
        }

        impl $kind {
            /// All of them.
            pub const ALL: &[$kind] = &[$($kind::$variant,)*];

            /// The name in lower case, with underscores between words.
            pub fn name(self) -> &'static str {
                match self {
                    $($kind::$variant => $name,)*
                }
            }

            /// Returns the one of this name.
            pub fn from_name(name: &str) -> Option<$kind> {
                $kind::ALL.iter().copied().find(|own| own.name() == name)
            }
        }
    };
}

names! {
    /// A parameter of a job.
    Parameter {
        /// Whether changed data is accepted on resume.
        AcceptChangedData = "accept_changed_data",
        /// Changes that planning may make so that a run fits.
        Allow = "allow",
        /// Whether weights may have tensors that the network lacks.
        AllowExtra = "allow_extra",
        /// Whether lists may name files outside of the data set's folder.
        AllowOutside = "allow_outside",
        /// Endings of the names of BIDS images.
        Bids = "bids",
        /// Whether the body is found first.
        BodySeg = "body_seg",
        /// The kind of checkpoint.
        Checkpoint = "checkpoint",
        /// Classes to compare.
        Class = "class",
        /// Whether only cases that all candidates have are compared.
        CommonCases = "common_cases",
        /// The data set of a comparison.
        Data = "data",
        /// The data set of a page.
        Dataset = "dataset",
        /// The device that runs programs.
        Device = "device",
        /// Whether ensembles of repeats are compared.
        Ensembles = "ensembles",
        /// The number of epochs.
        Epochs = "epochs",
        /// Whether weights go into a file beside the model.
        ExternalData = "external_data",
        /// Whether the fast model of a task is used.
        Fast = "fast",
        /// Whether the fastest model of a task is used.
        Fastest = "fastest",
        /// Channels of each stage of a network.
        Features = "features",
        /// Channels of the first stage of SwinUNETR.
        FeatureSize = "feature_size",
        /// A fold.
        Fold = "fold",
        /// Folds to train.
        Folds = "folds",
        /// The format of an export.
        Format = "format",
        /// Whether logits are resampled instead of labels.
        HigherOrderResampling = "higher_order_resampling",
        /// Channels of the first stage of SegResNet.
        InitFilters = "init_filters",
        /// The folder or file of images or label maps.
        Input = "input",
        /// Classes to score.
        Labels = "labels",
        /// The initial learning rate.
        LearningRate = "learning_rate",
        /// The overlap of lesions that counts as found.
        LesionOverlap = "lesion_overlap",
        /// Whether the available names are listed.
        List = "list",
        /// Threads that make batches.
        LoaderThreads = "loader_threads",
        /// A score of a comparison.
        Metric = "metric",
        /// Groups of scores.
        Metrics = "metrics",
        /// Axes along which windows are mirrored.
        MirrorAxes = "mirror_axes",
        /// The convention for missing scores.
        Missing = "missing",
        /// Whether labels are written as one file.
        OneFile = "one_file",
        /// The sheet of wrong predictions.
        Mistakes = "mistakes",
        /// What becomes of cases that the data set has gained.
        NewCases = "new_cases",
        /// Whether post-processing is left out.
        NoPostprocessing = "no_postprocessing",
        /// Whether a classifier is trained for each pair of classes.
        OneVsOne = "one_vs_one",
        /// Arms, seeds or folds of a sweep.
        Only = "only",
        /// The text file of OpenMetrics.
        Openmetrics = "openmetrics",
        /// Whether label maps are written on grids at right angles.
        Orthogonal = "orthogonal",
        /// The folder or file of the results of a run or an export.
        Out = "out",
        /// The spacing at which outliers are seen.
        OutlierSpacing = "outlier_spacing",
        /// The folder or file of predictions.
        Output = "output",
        /// The overlap of windows.
        Overlap = "overlap",
        /// Whether existing results are replaced.
        Overwrite = "overwrite",
        /// Folds or trials that run at the same time.
        Parallel = "parallel",
        /// The page that is written.
        Page = "page",
        /// Whether references without a prediction are left out.
        Partial = "partial",
        /// The patch, as depth,height,width in voxels.
        PatchSize = "patch_size",
        /// The storage of features.
        Precision = "precision",
        /// Whether previews are drawn.
        Preview = "preview",
        /// Labels of the earlier stage of a cascade.
        PrevStagePredictions = "prev_stage_predictions",
        /// The limit of the process's memory.
        Ram = "ram",
        /// The least volume of a component, in mm³.
        RemoveSmallBlobs = "remove_small_blobs",
        /// Draws of a bootstrap.
        Resamples = "resamples",
        /// Whether to continue with what is there.
        Resume = "resume",
        /// The storage of sums of windows.
        Ring = "ring",
        /// Whether the region of interest is found by a finer model.
        RobustCrop = "robust_crop",
        /// The subset of a task's labels.
        RoiSubset = "roi_subset",
        /// The form of a DICOM segmentation.
        SegmentationType = "segmentation_type",
        /// Whether a table has several labels of each case.
        SeveralLabels = "several_labels",
        /// Whether cases with an error are left out.
        SkipBadCases = "skip_bad_cases",
        /// Whether the validation of folds is left out.
        SkipValidation = "skip_validation",
        /// The spacing that a network sees, in millimetres.
        Spacing = "spacing",
        /// A file of folds.
        Splits = "splits",
        /// The quantity that windows are summed as.
        Sum = "sum",
        /// The definition of surfaces.
        Surface = "surface",
        /// The distance that surfaces may differ by, in millimetres.
        Tolerance = "tolerance",
        /// The trainer of nnU-Net that a model is taken for.
        TrainerAs = "trainer_as",
        /// The unit of lengths in headers.
        Unit = "unit",
        /// Volumes that a page has.
        Volumes = "volumes",
        /// The rule of votes of pair classifiers.
        Votes = "votes",
        /// The limit of a device's own memory.
        Vram = "vram",
        /// Whether cases are read into the cache first.
        Warm = "warm",
        /// A file of weights to start from, or a folder of weights.
        Weights = "weights",
        /// Windows that are predicted together.
        WindowBatch = "window_batch",
        /// Whether a description of the data set is written.
        Write = "write",
    }
}

names! {
    /// A job.
    Job {
        /// Measurements of speed.
        Bench = "bench",
        /// Comparing models.
        Compare = "compare",
        /// Describing the machine.
        Doctor = "doctor",
        /// Scoring predictions.
        Evaluate = "evaluate",
        /// Exporting weights.
        Export = "export",
        /// Inspecting a data set.
        Inspect = "inspect",
        /// Importing, exporting and showing models.
        Models = "models",
        /// Planning a run.
        Plan = "plan",
        /// Steps on label maps.
        Postprocess = "postprocess",
        /// Predicting.
        Predict = "predict",
        /// Writing a page.
        Report = "report",
        /// Segmenting as TotalSegmentator does.
        Segment = "segment",
        /// Listing settings.
        Settings = "settings",
        /// The state of runs.
        Status = "status",
        /// A sweep of settings.
        Sweep = "sweep",
        /// Training.
        Train = "train",
    }
}
