//! The stored inspection among the seeds is of the present version: of another one nothing after the version
//! number would be read.

#[test]
fn the_sound_fingerprint_is_that_of_its_data_set_and_one_of_another_version_is_not() {
    let sound = include_bytes!("../seeds/fingerprint/sound");
    assert!(corpus::is_fingerprint(sound), "make it anew where the version was raised");
    let text = String::from_utf8_lossy(sound);
    let at = text.find("\"version\":").map(|at| at + 10);
    let mut older = sound.to_vec();
    at.into_iter().for_each(|at| older[at] = b'1');
    assert!(!corpus::is_fingerprint(&older));
    // A mask that is not what it was.
    let mut damaged = sound.to_vec();
    damaged.last_mut().into_iter().for_each(|last| *last ^= 1);
    assert!(!corpus::is_fingerprint(&damaged));
}
