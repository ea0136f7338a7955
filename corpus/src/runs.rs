//! Files of a run.

use plimsoll_memory::Bytes;
use plimsoll_models::Model;
use plimsoll_run::{
    CheckpointKind, FoldFolder, FoldName, Journal, RunFolder, Settings, Specification, Status, each_epoch,
    each_event, holder,
};

use crate::folder::Folder;
use crate::granted;

/// A sound specification, for readers of other files that look into it.
const SPECIFICATION: &[u8] = include_bytes!("../seeds/specification/sound.json");

/// The most heap for parsing a byte of TOML: a text with a mistake at every second byte took 740 bytes. The
/// length of such files is limited for that reason.
const PARSED: u64 = 1 << 10;

/// A `plimsoll.toml`, which is text.
pub fn settings(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    granted(Bytes(PARSED * bytes.len() as u64));
    if let Ok(settings) = toml::from_str::<Settings>(text)
        && let Err(error) = settings.check()
    {
        assert!(!error.to_string().is_empty());
        error.remedy();
    }
}

/// A `specification.json` of a fold whose weights are to predict.
pub fn specification(bytes: &[u8]) {
    let (place, fold) = fold("specification.json", bytes);
    if let Err(error) = Specification::read(&fold) {
        assert!(error.to_string().contains("specification.json"), "{error}");
        error.remedy();
        return;
    }
    place.write("fold_0/checkpoint_final.safetensors", b"");
    if let Ok(model) = Model::open(place.path(), CheckpointKind::Final) {
        assert!(model.weights.iter().all(|weights| weights.path.starts_with(place.path())));
        assert!(model.config.task.segmentation().is_ok_and(|task| task.dataset.labels.classes() > 1));
    }
    if let Ok(read) = Specification::read(&fold)
        && let Ok(identity) = read.identity()
    {
        assert!(read.owns(identity).is_ok_and(|owns| owns));
    }
}

/// A `metrics.jsonl`, read and gone on with.
pub fn metrics(bytes: &[u8]) {
    let (_place, fold) = fold("metrics.jsonl", bytes);
    let mut records = 0;
    assert!(each_epoch(&fold, |_| records += 1).is_ok());
    status(&fold);
    let journal = Journal::open(&fold, 500, 250);
    assert!(journal.is_ok());
    let mut kept = 0;
    assert!(each_epoch(&fold, |_| kept += 1).is_ok());
    assert!(kept <= records, "{kept} of {records}");
}

/// An `events.jsonl`.
pub fn events(bytes: &[u8]) {
    let (_place, fold) = fold("events.jsonl", bytes);
    assert!(each_event(&fold, |_| {}).is_ok());
    status(&fold);
}

/// A `lock`.
pub fn lock(bytes: &[u8]) {
    let (_place, fold) = fold("lock", bytes);
    if let Some((holder, is_held)) = holder(&fold) {
        assert!(!is_held);
        assert!(!holder.to_string().is_empty());
        holder.kills_since();
    }
    status(&fold);
}

/// The state of a fold, in the words of `plimsoll status`.
fn status(fold: &FoldFolder) {
    let status = Status::read(fold);
    assert!(status.is_ok());
    assert!(status.is_ok_and(|status| !status.state.describe().is_empty()));
}

/// The folder of a fold with one file, and a specification if that is not it.
fn fold(name: &str, bytes: &[u8]) -> (Folder, FoldFolder) {
    let folder = Folder::with(&format!("fold_0/{name}"), bytes);
    let fold = RunFolder::new(folder.path()).fold(FoldName::Number(0));
    if name != "specification.json" {
        folder.write("fold_0/specification.json", SPECIFICATION);
    }
    (folder, fold)
}
