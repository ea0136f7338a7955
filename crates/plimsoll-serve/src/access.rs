//! The clients whose requests are answered.

use std::fmt;
use std::hint::black_box;
use std::path::Path;

use crate::error::ServeError;

/// The most bytes of a file of tokens.
const MOST: u64 = 64 << 10;
/// The lengths of tokens.
const LENGTHS: std::ops::RangeInclusive<usize> = 16..=256;

/// A secret that a client sends as `Authorization: Bearer TOKEN`. It is not displayed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// A token of 16 to 256 printable ASCII characters; `None` for other texts.
    pub fn new(text: impl Into<String>) -> Option<Token> {
        let text = text.into();
        let is_safe = LENGTHS.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_safe.then_some(Token(text))
    }

    /// The text, which is a secret.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Reads a file that has a token in each line.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, can be read by other users of the machine, has no token, or has one that is not safe.
    pub fn read(path: &Path) -> Result<Vec<Token>, ServeError> {
        let file = |source| ServeError::File { path: path.into(), source };
        expect_private(path)?;
        let text = plimsoll_disk::read_to_string(path, MOST).map_err(file)?;
        let fault = |why| ServeError::Token { path: path.into(), why };
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let tokens: Option<Vec<Token>> = lines.map(Token::new).collect();
        match tokens {
            None => Err(fault("a line is no token")),
            Some(tokens) if tokens.is_empty() => Err(fault("it has no token")),
            Some(tokens) => Ok(tokens),
        }
    }
}

/// Checks that no other user of the machine can read a secret.
///
/// # Errors
/// Returns an error if one can, or the file does not exist.
pub(crate) fn expect_private(path: &Path) -> Result<(), ServeError> {
    match is_readable_by_others(path) {
        Ok(false) => Ok(()),
        Ok(true) => Err(ServeError::ReadableSecret { path: path.into() }),
        Err(source) => Err(ServeError::File { path: path.into(), source }),
    }
}

#[cfg(unix)]
fn is_readable_by_others(path: &Path) -> std::io::Result<bool> {
    use std::os::unix::fs::PermissionsExt;
    const OTHERS: u32 = 0o077;
    Ok(plimsoll_disk::metadata(path)?.permissions().mode() & OTHERS != 0)
}

#[cfg(not(unix))]
fn is_readable_by_others(_: &Path) -> std::io::Result<bool> {
    Ok(false)
}

/// The clients whose requests are answered.
#[derive(Clone, Debug)]
pub enum Access {
    /// Clients with one of these tokens.
    Tokens(Vec<Token>),
    /// All programs of this machine, but not pages of other sites in its browsers.
    Open,
}

/// The headers that decide about access.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Presented<'a> {
    pub(crate) authorization: Option<&'a str>,
    pub(crate) host: Option<&'a str>,
    pub(crate) origin: Option<&'a str>,
}

impl Access {
    /// Returns `true` if a request may be answered.
    pub(crate) fn allows(&self, presented: Presented<'_>) -> bool {
        match self {
            Access::Tokens(tokens) => {
                let token = presented.authorization.and_then(bearer).unwrap_or("");
                // Each is compared, so that the time does not tell which one is right.
                tokens.iter().fold(false, |is_one, own| is_same(token.as_bytes(), own.0.as_bytes()) | is_one)
            }
            // A page of another site can let a name point to this machine, and then names itself as host and origin.
            Access::Open => {
                presented.host.is_some_and(is_this_machine)
                    && presented.origin.is_none_or(|origin| {
                        origin.split_once("://").is_some_and(|(_, host)| is_this_machine(host))
                    })
            }
        }
    }
}

/// The token of a header, whose scheme has any case.
fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Returns `true` if a host is a name of this machine, with any port.
fn is_this_machine(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    ["127.0.0.1", "[::1]", "localhost"].iter().any(|own| name.eq_ignore_ascii_case(own))
}

/// Compares two texts in a time that depends on their lengths alone.
fn is_same(guess: &[u8], right: &[u8]) -> bool {
    let differs = guess.iter().zip(right).fold(0, |differs, (a, b)| black_box(differs | (a ^ b)));
    guess.len() == right.len() && differs == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_token(authorization: &str) -> Presented<'_> {
        Presented { authorization: Some(authorization), ..Presented::default() }
    }

    #[test]
    fn only_a_right_token_is_allowed() {
        let tokens = ["first-token-of-16", "second-token-of-17"].map(|text| Token::new(text).unwrap());
        let access = Access::Tokens(tokens.to_vec());
        assert!(access.allows(with_token("Bearer first-token-of-16")));
        assert!(access.allows(with_token("bearer second-token-of-17")));
        for wrong in
            ["Bearer first-token-of-1", "Bearer first-token-of-166", "first-token-of-16", "Bearer ", ""]
        {
            assert!(!access.allows(with_token(wrong)), "{wrong}");
        }
        assert!(!access.allows(Presented { host: Some("localhost"), ..Presented::default() }));
    }

    #[test]
    fn without_tokens_pages_of_other_sites_are_refused() {
        let allows =
            |host, origin| Access::Open.allows(Presented { host: Some(host), origin, authorization: None });
        assert!(allows("127.0.0.1:8780", None) && allows("localhost", Some("http://localhost:8780")));
        assert!(allows("[::1]:8780", None));
        assert!(!allows("evil.example:8780", None));
        assert!(!allows("127.0.0.1.evil.example", None));
        assert!(!allows("localhost", Some("https://evil.example")));
        assert!(!allows("localhost", Some("null")));
        assert!(!Access::Open.allows(Presented::default()));
    }

    #[test]
    fn short_or_odd_tokens_are_none_and_no_token_is_shown() {
        assert_eq!(Token::new("short"), None);
        assert_eq!(Token::new("with a space in it"), None);
        let token = Token::new("0123456789abcdef").unwrap();
        assert_eq!(format!("{token:?}"), "Token");
    }

    #[cfg(unix)]
    #[test]
    fn a_file_of_tokens_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        std::fs::write(&path, "0123456789abcdef\n\nfedcba9876543210\n").unwrap();
        let set = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        set(0o640);
        assert!(matches!(Token::read(&path), Err(ServeError::ReadableSecret { .. })));
        set(0o600);
        assert_eq!(Token::read(&path).unwrap().len(), 2);
        std::fs::write(&path, "0123456789abcdef\nshort\n").unwrap();
        assert!(matches!(Token::read(&path), Err(ServeError::Token { .. })));
    }
}
