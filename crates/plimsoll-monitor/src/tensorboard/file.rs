//! The event file of a process that trains a fold.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use plimsoll_disk::File;
use plimsoll_run::Holder;

use super::records::{each_event, record};
use super::{Event, Image, SessionLog, SourceMetadata, Summary, Value};

/// The beginning of the names of event files: TensorBoard reads only files whose names contain it.
const PREFIX: &str = "events.out.tfevents.";

/// The writer that event files name: files of other writers are left unchanged.
const WRITER: &str = "plimsoll";

/// The start of a session.
const START: i32 = 1;

/// Pictures of three channels.
const RGB: i32 = 3;

/// An event file that is written.
#[derive(Debug)]
pub struct EventFile {
    file: BufWriter<File>,
}

impl EventFile {
    /// Begins a file in a folder, after the files of earlier processes, for a run that resumes after `steps` steps. Events of later
    /// steps, which are repeated, are cut off from the earlier files.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn open(folder: &Path, steps: u64) -> io::Result<EventFile> {
        let earlier = earlier(folder)?;
        let mut second = seconds() as u64;
        for path in &earlier {
            cut_back(path, steps)?;
            // The files' names must be in the order of the processes, even within a second or if the clock was set back.
            let of_name =
                path.file_name().and_then(|name| name.to_str()?.strip_prefix(PREFIX)?.split('.').next());
            let began = of_name.and_then(|number| number.parse::<u64>().ok());
            second = second.max(began.map_or(0, |began| began.saturating_add(1)));
        }
        let Holder { host, pid, .. } = Holder::this_process();
        // A host's name has no slashes, but what the system says is not checked.
        let host = host.replace('/', "_");
        let file = File::create_new(folder.join(format!("{PREFIX}{second:010}.{host}.{pid}.0")))?;
        let mut events = EventFile { file: BufWriter::new(file) };
        events.write(0, |event| {
            event.file_version = Some("brain.Event:2".into());
            event.source_metadata = Some(SourceMetadata { writer: WRITER.into() });
        })?;
        if !earlier.is_empty() {
            // For a TensorBoard that has read them already.
            events.write(steps + 1, |event| event.session_log = Some(SessionLog { status: START }))?;
        }
        events.flush()?;
        Ok(events)
    }

    /// Numbers of a step, each with its name. They are rounded to 32 bits.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn scalars<'a>(
        &mut self,
        step: u64,
        numbers: impl IntoIterator<Item = (&'a str, f64)>,
    ) -> io::Result<()> {
        let number = |(tag, number): (&str, f64)| Value {
            tag: tag.into(),
            simple_value: Some(number as f32),
            image: None,
        };
        let value = numbers.into_iter().map(number).collect();
        self.write(step, |event| event.summary = Some(Summary { value }))
    }

    /// A picture of a step, an RGB PNG.
    ///
    /// # Errors
    /// If it is no PNG, or the disk refuses.
    pub fn image(&mut self, step: u64, tag: &str, png: Vec<u8>) -> io::Result<()> {
        let (width, height) = size(&png)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, format!("{tag} is not a PNG")))?;
        let image = Image { height, width, colorspace: RGB, encoded_image_string: png };
        let value = vec![Value { tag: tag.into(), simple_value: None, image: Some(image) }];
        self.write(step, |event| event.summary = Some(Summary { value }))
    }

    /// Passes on what was collected.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }

    fn write(&mut self, step: u64, fill: impl FnOnce(&mut Event)) -> io::Result<()> {
        let mut event = Event { wall_time: seconds(), step: step as i64, ..Event::default() };
        fill(&mut event);
        self.file.write_all(&record(&event))
    }
}

/// Pixels across and down of a PNG, by its first chunk, IHDR, which is behind a signature of eight bytes.
fn size(png: &[u8]) -> Option<(i32, i32)> {
    let (width, rest) = png.strip_prefix(b"\x89PNG\r\n\x1a\n")?.get(8..)?.split_first_chunk::<4>()?;
    let (height, _) = rest.split_first_chunk::<4>()?;
    Some((i32::from_be_bytes(*width), i32::from_be_bytes(*height)))
}

/// Since 1970. A clock before that is wrong anyway.
fn seconds() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// The event files of a folder.
fn earlier(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = plimsoll_disk::read_dir(folder)?;
    found.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX)));
    Ok(found)
}

/// Cuts off events after step `steps`, and a record that a killed process has not finished. Files of other programs are unchanged.
fn cut_back(path: &Path, steps: u64) -> io::Result<()> {
    let mut kept = 0;
    let mut is_own = false;
    each_event(path, |event, end| {
        if kept == 0 {
            is_own = event.source_metadata.as_ref().is_some_and(|source| source.writer == WRITER);
            if !is_own {
                return false;
            }
        }
        let is_kept = event.summary.is_none() || event.step <= steps as i64;
        if is_kept {
            kept = end;
        }
        is_kept
    })?;
    if !is_own {
        return Ok(());
    }
    let file = File::append(path)?;
    if file.len()? > kept { file.set_len(kept) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The steps and numbers of all files of a folder, in the order of their names; a session that starts is -1.
    fn read(folder: &Path) -> Vec<(i64, f32)> {
        let mut found = Vec::new();
        let mut paths = earlier(folder).unwrap();
        paths.sort();
        for path in paths {
            each_event(&path, |event, _| {
                let values = event.summary.into_iter().flat_map(|summary| summary.value);
                found.extend(values.map(|value| (event.step, value.simple_value.unwrap_or(f32::NAN))));
                found.extend(event.session_log.map(|_| (event.step, -1.0)));
                true
            })
            .unwrap();
        }
        found
    }

    #[test]
    fn files_of_other_programs_are_left_as_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(format!("{PREFIX}0000000001.host.1.0"));
        let theirs: Vec<u8> = [Event { file_version: Some("brain.Event:2".into()), ..Event::default() }]
            .into_iter()
            .chain((1..=9).map(|step| Event {
                step,
                summary: Some(Summary { value: Vec::new() }),
                ..Event::default()
            }))
            .flat_map(|event| record(&event))
            .chain([1, 2, 3])
            .collect();
        std::fs::write(&path, &theirs).unwrap();
        drop(EventFile::open(dir.path(), 2).unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), theirs);
        // One that ends before it says who writes it is none of ours, either.
        std::fs::write(&path, [7; 5]).unwrap();
        drop(EventFile::open(dir.path(), 2).unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), [7; 5]);
    }

    #[test]
    fn a_run_that_goes_on_has_no_step_twice() {
        let dir = tempfile::tempdir().unwrap();
        let mut first = EventFile::open(dir.path(), 0).unwrap();
        for step in [1, 2, 3] {
            first.scalars(step, [("loss", step as f64 / 2.0)]).unwrap();
        }
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x04\0\0\0\x02".to_vec();
        assert_eq!(size(&png), Some((4, 2)));
        assert!(first.image(3, "picture", png[..20].to_vec()).is_err());
        first.image(3, "picture", png).unwrap();
        first.flush().unwrap();
        let path = earlier(dir.path()).unwrap().remove(0);
        let mut torn = std::fs::read(&path).unwrap();
        torn.extend([1, 2, 3]);
        std::fs::write(&path, torn).unwrap();
        let mut second = EventFile::open(dir.path(), 2).unwrap();
        second.scalars(3, [("loss", 9.0)]).unwrap();
        drop(second);
        assert_eq!(read(dir.path()), [(1, 0.5), (2, 1.0), (3, -1.0), (3, 9.0)]);
        let mut versions = 0;
        for path in earlier(dir.path()).unwrap() {
            each_event(&path, |event, _| {
                versions += usize::from(event.file_version.as_deref() == Some("brain.Event:2"));
                false
            })
            .unwrap();
        }
        assert_eq!(versions, 2);
    }
}
