//! The kinds of files that commands write, recognised by how they begin.

use plimsoll_disk::outputs::Contents;

/// The mark in the head of every page.
pub const GENERATOR: &str = "<meta name=\"generator\" content=\"plimsoll\">";

/// The mark in the head of a page about an inspection.
pub const OF_INSPECTION: &str = "<meta name=\"description\" content=\"Inspection of a data set\">";

/// A page about a run or a sweep.
pub const PAGE: Contents =
    Contents { name: "a page about a run", is_own: |head| has(head, GENERATOR) && !has(head, OF_INSPECTION) };

/// A page about an inspection.
pub const INSPECTION_PAGE: Contents = Contents {
    name: "a page about an inspection",
    is_own: |head| has(head, GENERATOR) && has(head, OF_INSPECTION),
};

/// The numbers of an inspection.
pub const INSPECTION: Contents = Contents {
    name: "the numbers of an inspection",
    // `cases` is a list in descriptions of data sets, and a number here.
    is_own: |head| {
        begins(head, "{\n  \"name\": ")
            && has(head, "\n  \"layout\": ")
            && (1..=9).any(|digit| has(head, &format!("\n  \"cases\": {digit}")))
    },
};

/// The scores of an evaluation. Those of nnU-Net do not count cases.
pub const SCORES: Contents = Contents {
    name: "scores of this program",
    is_own: |head| has(head, "\n  \"foreground_mean\": ") && has(head, "\n  \"foreground_cases\": "),
};

/// The table of an evaluation.
pub const TABLE_OF_SCORES: Contents =
    Contents { name: "a table of scores", is_own: |head| begins(head, "case,class,") };

/// The table of a comparison.
pub const COMPARISON: Contents =
    Contents { name: "a table of a comparison", is_own: |head| begins(head, "score,class,first,second,") };

/// The table of a prediction.
pub const PREDICTIONS: Contents =
    Contents { name: "a table of predictions", is_own: |head| begins(head, "case,label,") };

/// A drawing, which no command reads.
pub const DRAWING: Contents =
    Contents { name: "an SVG drawing", is_own: |head| begins(head, crate::svg::OPENING) };

/// A picture of a comparison.
pub const PICTURE: Contents = Contents {
    name: "a picture of this program",
    is_own: |head| head.starts_with(b"\x89PNG\r\n\x1a\n") && has(head, crate::picture::SOFTWARE),
};

/// Numbers for Prometheus.
pub const METRICS: Contents =
    Contents { name: "a file of metrics", is_own: |head| begins(head, "# TYPE plimsoll_") };

/// A file for sbatch.
pub const BATCH: Contents = Contents {
    name: "a batch file of a sweep",
    is_own: |head| begins(head, "#!/bin/bash\n# One task for each trial of a sweep."),
};

/// A manifest for Kubernetes.
pub const MANIFEST: Contents = Contents {
    name: "a manifest of a sweep",
    is_own: |head| begins(head, "# One pod for each trial of a sweep"),
};

/// A file for sbatch that trains by ranks.
pub const TRAINING_BATCH: Contents = Contents {
    name: "a batch file of a training",
    is_own: |head| begins(head, "#!/bin/bash\n# A training by "),
};

/// A manifest for Kubernetes that trains by ranks.
pub const TRAINING_MANIFEST: Contents =
    Contents { name: "a manifest of a training", is_own: |head| begins(head, "# A training by ") };

/// Steps that were chosen.
pub const STEPS: Contents =
    Contents { name: "a file of steps that were chosen", is_own: |head| has(head, "[chosen]") };

/// A graph of ONNX, which begins with its version.
pub const GRAPH: Contents =
    Contents { name: "a file of ONNX", is_own: |head| head.first() == Some(&8) && has(head, "plimsoll") };

/// Contents that may be an input, like a label map or a checkpoint.
pub const OTHER: Contents = Contents { name: "a result", is_own: |_| false };

fn begins(head: &[u8], text: &str) -> bool {
    head.starts_with(text.as_bytes())
}

fn has(head: &[u8], text: &str) -> bool {
    head.windows(text.len()).any(|window| window == text.as_bytes())
}
