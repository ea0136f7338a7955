//! Bodies of `multipart/related`, part by part as they arrive.

/// A piece of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// A part begins.
    Begin,
    /// The next bytes of the part.
    Data(&'a [u8]),
    /// The part is complete.
    End,
}

/// A body that is no `multipart/related` of its boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// The longest head of a part.
const MOST_HEAD: usize = 8 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the first boundary.
    Preamble,
    /// Behind a boundary: a line break begins a part, two dashes end the body.
    Boundary,
    Head,
    Content,
    Ended,
}

/// A reader of a body. It holds a boundary and the head of a part at most.
pub(super) struct Parts {
    /// A line break, two dashes, and the text of the boundary.
    delimiter: Vec<u8>,
    state: State,
    held: Vec<u8>,
}

impl Parts {
    /// A reader of a body with this boundary.
    pub(super) fn new(boundary: &str) -> Parts {
        // The first boundary may begin the body, without the line break before it.
        Parts {
            delimiter: format!("\r\n--{boundary}").into_bytes(),
            state: State::Preamble,
            held: b"\r\n".to_vec(),
        }
    }

    /// Reads the next bytes, and hands pieces on.
    pub(super) fn read<E: From<Malformed>>(
        &mut self,
        bytes: &[u8],
        take: &mut dyn FnMut(Piece<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.held.extend_from_slice(bytes);
        loop {
            match self.state {
                State::Ended => {
                    self.held.clear();
                    return Ok(());
                }
                State::Boundary => {
                    if self.held.len() < 2 {
                        return Ok(());
                    }
                    self.state = match &self.held[..2] {
                        b"--" => State::Ended,
                        b"\r\n" => State::Head,
                        _ => return Err(Malformed.into()),
                    };
                    if self.state == State::Head {
                        // Kept, so that a head without fields ends as others do.
                        take(Piece::Begin)?;
                    }
                }
                State::Head => match find(&self.held, b"\r\n\r\n") {
                    Some(end) => {
                        self.held.drain(..end + 4);
                        self.state = State::Content;
                    }
                    None if self.held.len() > MOST_HEAD => return Err(Malformed.into()),
                    None => return Ok(()),
                },
                State::Preamble | State::Content => {
                    let is_content = self.state == State::Content;
                    let found = find(&self.held, &self.delimiter);
                    // Without a boundary, the last bytes may be the beginning of one.
                    let end = found.unwrap_or((self.held.len() + 1).saturating_sub(self.delimiter.len()));
                    if is_content && end > 0 {
                        take(Piece::Data(&self.held[..end]))?;
                    }
                    self.held.drain(..end);
                    if found.is_none() {
                        return Ok(());
                    }
                    self.held.drain(..self.delimiter.len());
                    self.state = State::Boundary;
                    if is_content {
                        take(Piece::End)?;
                    }
                }
            }
        }
    }

    /// Returns `true` if the body has its end.
    pub(super) fn is_ended(&self) -> bool {
        self.state == State::Ended
    }
}

/// The bytes of each complete part of a body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartLengths {
    /// By part, in their order.
    pub lengths: Vec<u64>,
    /// `true` if the body has its end.
    pub is_ended: bool,
}

/// Reads a body that arrives in `chunks`; `None` if its content type names no boundary, or it is malformed.
pub fn part_lengths<'a>(
    content_type: &str,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> Option<PartLengths> {
    let mut parts = Parts::new(boundary(content_type)?);
    let (mut found, mut open) = (PartLengths::default(), None);
    for chunk in chunks {
        let read = parts.read::<Malformed>(chunk, &mut |piece| {
            match (piece, open) {
                (Piece::Begin, None) => open = Some(0),
                (Piece::Data(data), Some(length)) => open = Some(length + data.len() as u64),
                (Piece::End, Some(length)) => {
                    found.lengths.push(length);
                    open = None;
                }
                _ => return Err(Malformed),
            }
            Ok(())
        });
        read.ok()?;
    }
    found.is_ended = parts.is_ended();
    Some(found)
}

fn find(within: &[u8], what: &[u8]) -> Option<usize> {
    within.windows(what.len()).position(|window| window == what)
}

/// The boundary that a content type names.
pub(super) fn boundary(content_type: &str) -> Option<&str> {
    let mut fields = content_type.split(';').map(str::trim);
    if !fields.next()?.eq_ignore_ascii_case("multipart/related") {
        return None;
    }
    fields.find_map(|field| {
        let (name, value) = field.split_once('=')?;
        let value = value.trim_matches('"');
        (name.eq_ignore_ascii_case("boundary") && !value.is_empty() && value.len() <= 70).then_some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &[u8], step: usize) -> Result<(Vec<Vec<u8>>, bool), Malformed> {
        let mut parts = Parts::new("b");
        let (mut found, mut open) = (Vec::new(), None::<Vec<u8>>);
        for chunk in body.chunks(step) {
            parts.read::<Malformed>(chunk, &mut |piece| {
                match piece {
                    Piece::Begin => open = Some(Vec::new()),
                    Piece::Data(data) => open.as_mut().unwrap().extend(data),
                    Piece::End => found.push(open.take().unwrap()),
                }
                Ok(())
            })?;
        }
        Ok((found, parts.is_ended()))
    }

    #[test]
    fn parts_are_the_same_however_the_body_is_cut() {
        let body = b"preamble\r\n--b\r\nContent-Type: application/dicom\r\n\r\none\r\n--\r\n-b\r\n--b\r\n\r\n\r\n--b--\r\nepilogue";
        for step in 1..=body.len() {
            let (parts, is_ended) = read(body, step).unwrap();
            assert_eq!(parts, [&b"one\r\n--\r\n-b"[..], b""], "{step}");
            assert!(is_ended);
        }
        let (parts, is_ended) = read(b"--b\r\n\r\nwhole\r\n--b\r\nA: b\r\n\r\ncut", 5).unwrap();
        assert!(parts == [b"whole"] && !is_ended);
        assert_eq!(read(b"--bxy", 1), Err(Malformed));
        assert_eq!(read(&[b"--b\r\n", &[b'x'; 9000][..]].concat(), 100), Err(Malformed));
    }

    #[test]
    fn boundaries_are_read_with_and_without_quotes() {
        let quoted = "multipart/related; type=\"application/dicom\"; boundary=\"a b\"";
        assert_eq!(boundary(quoted), Some("a b"));
        assert_eq!(boundary("Multipart/Related;boundary=x"), Some("x"));
        assert_eq!(boundary("application/json"), None);
        assert_eq!(boundary("multipart/related"), None);
    }
}
