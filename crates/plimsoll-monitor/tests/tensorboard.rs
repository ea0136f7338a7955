//! Files of TensorBoard's own writer are read to the last field; `oracles/tensorboard.py` has TensorBoard read
//! ours.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use plimsoll_monitor::tensorboard::{Event, Image, SessionLog, Summary, Value, each_event};

#[test]
fn events_of_tensorboard_are_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/tensorboard.tfevents");
    let mut found = Vec::new();
    let mut last = 0;
    each_event(&path, |event, end| {
        found.push(event);
        last = end;
        true
    })
    .unwrap();
    let number = |tag: &str, number| Value { tag: tag.into(), simple_value: Some(number), image: None };
    let summary = |wall_time, step, value| Event {
        wall_time,
        step,
        summary: Some(Summary { value }),
        ..Event::default()
    };
    let bytes: Vec<u8> = (0..64).collect();
    let image = Image { height: 2, width: 4, colorspace: 3, encoded_image_string: bytes.repeat(4) };
    let expected = [
        Event { wall_time: 1.5, file_version: Some("brain.Event:2".into()), ..Event::default() },
        summary(2.5, 250, vec![number("loss/train", 0.75), number("learning_rate", 0.002)]),
        summary(2.5, 500, vec![number("loss/train", -1.25), number("learning_rate", 0.001)]),
        summary(3.5, 500, vec![Value { tag: "progress".into(), simple_value: None, image: Some(image) }]),
        Event { wall_time: 4.5, step: 501, session_log: Some(SessionLog { status: 1 }), ..Event::default() },
    ];
    assert_eq!(found, expected);
    assert_eq!(last, std::fs::metadata(&path).unwrap().len());
}
