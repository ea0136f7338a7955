//! Decompressing files that gzip, block gzip or a parallel compressor wrote.

use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

use flate2::bufread::GzDecoder;
use plimsoll_disk::File;

/// A gzip file: one or more compressed members in sequence (block gzip and parallel compressors write many). Trailing
/// bytes that do not start another member are ignored, as gzip itself does.
pub(crate) struct Members {
    /// `None` only while a method is running.
    state: Option<State>,
}

enum State {
    Between(BufReader<File>),
    Inside(Box<GzDecoder<BufReader<File>>>),
    End(BufReader<File>),
}

impl Members {
    /// The members of a file that is positioned at its start.
    pub(crate) fn new(reader: BufReader<File>) -> Members {
        Members { state: Some(State::Between(reader)) }
    }

    /// Reads the next bytes; 0 only at the end.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.state.take() {
                Some(State::Between(mut reader)) => {
                    let another = reader.fill_buf().map(|bytes| bytes.first() == Some(&0x1f));
                    self.state = Some(match another {
                        Ok(true) => State::Inside(Box::new(GzDecoder::new(reader))),
                        Ok(false) => State::End(reader),
                        Err(error) => {
                            self.state = Some(State::Between(reader));
                            return Err(error);
                        }
                    });
                }
                Some(State::Inside(mut decoder)) => {
                    let result = decoder.read(buffer);
                    // At the end of a member the decoder has verified its checksum.
                    if matches!(result, Ok(0)) && !buffer.is_empty() {
                        self.state = Some(State::Between(decoder.into_inner()));
                    } else {
                        self.state = Some(State::Inside(decoder));
                        return result;
                    }
                }
                Some(State::End(reader)) => {
                    self.state = Some(State::End(reader));
                    return Ok(0);
                }
                None => return Err(io::Error::other("the decompressor was lost")),
            }
        }
    }

    /// Rewinds to the first byte.
    pub(crate) fn rewind(&mut self) -> io::Result<()> {
        let mut reader = match self.state.take() {
            Some(State::Between(reader) | State::End(reader)) => reader,
            Some(State::Inside(decoder)) => decoder.into_inner(),
            None => return Err(io::Error::other("the decompressor was lost")),
        };
        let result = reader.seek(SeekFrom::Start(0));
        self.state = Some(State::Between(reader));
        result.map(|_| ())
    }
}
