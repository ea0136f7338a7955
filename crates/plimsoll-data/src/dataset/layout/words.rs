//! Words by which people tell images from label maps.

/// Words for label maps.
const LABELS: [&str; 26] = [
    "annotation",
    "annotations",
    "dseg",
    "gold",
    "groundtruth",
    "gt",
    "gts",
    "label",
    "labelmap",
    "labelmaps",
    "labels",
    "labelstr",
    "manual",
    "mask",
    "masks",
    "roi",
    "rois",
    "seg",
    "segm",
    "segmentation",
    "segmentations",
    "segs",
    "target",
    "targets",
    "truth",
    "y",
];

/// Words for images.
const IMAGES: [&str; 24] = [
    "ct", "data", "image", "images", "imagestr", "img", "imgs", "im", "input", "inputs", "mr", "mri", "orig",
    "original", "pet", "raw", "scan", "scans", "us", "vol", "volume", "volumes", "vols", "x",
];

/// Words for cases that are only to be predicted.
const TESTS: [&str; 3] = ["imagests", "labelsts", "test"];

/// The characters between words in names.
pub(crate) const SEPARATORS: [char; 4] = ['_', '-', '.', ' '];

fn is_one_of(words: &[&str], name: &str) -> bool {
    words.contains(&&*name.to_lowercase())
}

/// Returns `true` if a name, or one of its words, denotes label maps.
pub(crate) fn is_of_labels(name: &str) -> bool {
    is_one_of(&LABELS, name) || name.split(SEPARATORS).any(|word| word.len() > 1 && is_one_of(&LABELS, word))
}

/// Returns `true` if a name, or one of its words, denotes images.
pub(crate) fn is_of_images(name: &str) -> bool {
    is_one_of(&IMAGES, name) || name.split(SEPARATORS).any(|word| word.len() > 1 && is_one_of(&IMAGES, word))
}

/// Returns `true` if a folder of this name has cases that are only predicted.
pub(crate) fn is_of_tests(name: &str) -> bool {
    is_one_of(&TESTS, name)
}

/// A name without the words at its ends that describe its contents: `im_case7` and `case7_seg` are `case7`.
pub(crate) fn core(stem: &str) -> &str {
    let is_word = |word: &str| is_one_of(&LABELS, word) || is_one_of(&IMAGES, word);
    let mut core = stem;
    loop {
        let last = core.rsplit_once(SEPARATORS).filter(|(rest, word)| !rest.is_empty() && is_word(word));
        let first = core.split_once(SEPARATORS).filter(|(word, rest)| !rest.is_empty() && is_word(word));
        core = match (last, first) {
            (Some((rest, _)), _) => rest,
            (None, Some((_, rest))) => rest,
            (None, None) => return core,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_at_the_ends_of_names_say_what_they_are_of() {
        for (stem, expected) in [
            ("mv01", "mv01"),
            ("mv01_seg", "mv01"),
            ("mv01_y", "mv01"),
            ("label-mv01.gt", "mv01"),
            ("img_3_label", "3"),
            ("seg", "seg"),
            ("case_image_of_x7", "case_image_of_x7"),
        ] {
            assert_eq!(core(stem), expected);
        }
        assert!(is_of_labels("labelsTr") && is_of_labels("vessel_masks") && !is_of_labels("y_axis_scans"));
        assert!(is_of_images("raw") && is_of_images("train images") && !is_of_images("seg"));
    }
}
