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
        /// Accepts changed data on resume.
        AcceptChangedData = "accept_changed_data",
        /// Settings that are adopted from a start.
        Adopt = "adopt",
        /// Changes that planning may make so that a run fits.
        Allow = "allow",
        /// Allows weights to have tensors that the network lacks.
        AllowExtra = "allow_extra",
        /// Allows lists to name files outside of the data set's folder.
        AllowOutside = "allow_outside",
        /// Endings of the names of BIDS images.
        Bids = "bids",
        /// Finds the body first.
        BodySeg = "body_seg",
        /// The kind of checkpoint.
        Checkpoint = "checkpoint",
        /// Classes to compare.
        Class = "class",
        /// Compares only cases that all candidates have.
        CommonCases = "common_cases",
        /// The data set of a comparison.
        Data = "data",
        /// The data set of a page.
        Dataset = "dataset",
        /// The device that runs programs.
        Device = "device",
        /// The file of a drawing.
        Draw = "draw",
        /// Compares ensembles of repeats.
        Ensembles = "ensembles",
        /// The number of epochs.
        Epochs = "epochs",
        /// Puts weights into a file beside the model.
        ExternalData = "external_data",
        /// Uses the fast model of a task.
        Fast = "fast",
        /// Uses the fastest model of a task.
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
        /// Resamples logits instead of labels.
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
        /// Lists the available names.
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
        /// Writes labels as one file.
        OneFile = "one_file",
        /// The sheet of wrong predictions.
        Mistakes = "mistakes",
        /// The treatment of cases that the data set has gained.
        NewCases = "new_cases",
        /// Initialises heads at random.
        NewHead = "new_head",
        /// Leaves post-processing out.
        NoPostprocessing = "no_postprocessing",
        /// Trains a classifier for each pair of classes.
        OneVsOne = "one_vs_one",
        /// Arms, seeds or folds of a sweep.
        Only = "only",
        /// The text file of OpenMetrics.
        Openmetrics = "openmetrics",
        /// Writes label maps on grids at right angles.
        Orthogonal = "orthogonal",
        /// The folder or file of the results of a run or an export.
        Out = "out",
        /// The spacing at which outliers are seen.
        OutlierSpacing = "outlier_spacing",
        /// The folder or file of predictions.
        Output = "output",
        /// The overlap of windows.
        Overlap = "overlap",
        /// Replaces existing results.
        Overwrite = "overwrite",
        /// Folds or trials that run at the same time.
        Parallel = "parallel",
        /// The page that is written.
        Page = "page",
        /// The part of a job that is divided among processes.
        Part = "part",
        /// Leaves references without a prediction out.
        Partial = "partial",
        /// The patch, as depth,height,width in voxels.
        PatchSize = "patch_size",
        /// The storage of features.
        Precision = "precision",
        /// Draws previews.
        Preview = "preview",
        /// Labels of the earlier stage of a cascade.
        PrevStagePredictions = "prev_stage_predictions",
        /// The limit of the process's memory.
        Ram = "ram",
        /// The least volume of a component, in mm³.
        RemoveSmallBlobs = "remove_small_blobs",
        /// Draws of a bootstrap.
        Resamples = "resamples",
        /// Continues an earlier job.
        Resume = "resume",
        /// The storage of sums of windows.
        Ring = "ring",
        /// Finds the region of interest by a finer model.
        RobustCrop = "robust_crop",
        /// The subset of a task's labels.
        RoiSubset = "roi_subset",
        /// The form of a DICOM segmentation.
        SegmentationType = "segmentation_type",
        /// Declares several labels of each case in a table.
        SeveralLabels = "several_labels",
        /// Leaves cases with an error out.
        SkipBadCases = "skip_bad_cases",
        /// Leaves the validation of folds out.
        SkipValidation = "skip_validation",
        /// The spacing that a network sees, in millimetres.
        Spacing = "spacing",
        /// A file of folds.
        Splits = "splits",
        /// The trained weights that a run starts from.
        Start = "start",
        /// Sums weights over image channels.
        SumStem = "sum_stem",
        /// Resamples kernels of weights linearly.
        Upkern = "upkern",
        /// The quantity that windows are summed as.
        Sum = "sum",
        /// The definition of surfaces.
        Surface = "surface",
        /// The distance that surfaces may differ by, in millimetres.
        Tolerance = "tolerance",
        /// The trainer of nnU-Net that a model is taken for.
        TrainerAs = "trainer_as",
        /// The way of messages between ranks.
        Transport = "transport",
        /// The unit of lengths in headers.
        Unit = "unit",
        /// Volumes that a page has.
        Volumes = "volumes",
        /// The rule of votes of pair classifiers.
        Votes = "votes",
        /// The limit of a device's own memory.
        Vram = "vram",
        /// Reads cases into the cache first.
        Warm = "warm",
        /// The folder of weights.
        Weights = "weights",
        /// Windows that are predicted together.
        WindowBatch = "window_batch",
        /// Writes a description of the data set.
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
