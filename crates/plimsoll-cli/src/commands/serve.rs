//! `plimsoll serve`

use std::fmt::Write as _;
use std::io;

use plimsoll_serve::{Access, Answered, ServeError, Service, Token, serve_http, serve_mcp};

use crate::args::Serve;
use crate::failure::{Failure, Outcome};
use crate::report::json;
use crate::terminal;

/// Random bytes of a token.
const TOKEN: usize = 24;

/// Answers requests until a signal ends it.
pub fn run(args: &Serve, as_json: bool) -> Outcome {
    if args.stdio {
        return run_mcp(args);
    }
    let context = terminal::context(as_json)?;
    // A first signal ends connections and predictions in order.
    context.keep_results();
    let settings = args.service()?;
    let http = args.http(token)?;
    let made = match &http.access {
        Access::Tokens(tokens) if args.token_file.is_none() => tokens.first().cloned(),
        _ => None,
    };
    let service = Service::open(settings, http.tls.is_some()).map_err(failed)?;
    let shares = service.shares();
    let scheme = if http.tls.is_some() { "https" } else { "http" };
    let listening = |address| {
        let url = format!("{scheme}://{address}");
        if as_json {
            let shown = Listening {
                url,
                token: made.as_ref().map(Token::text),
                ram_limit_bytes: shares.limit.0,
                transport_bytes: shares.transport.0,
            };
            // Output that cannot be written is noted by itself.
            let _ = json(&shown);
            return;
        }
        println!("{url}");
        if let Some(token) = &made {
            println!("token {}", token.text());
        }
        println!(
            "limit {}: {} for connections, {} for the prediction that runs",
            shares.limit, shares.transport, shares.predictions
        );
    };
    serve_http(service, http, &context.stop, listening, log).map_err(failed)
}

/// Answers messages on standard streams until the input ends.
fn run_mcp(args: &Serve) -> Outcome {
    // The output has messages alone.
    let context = terminal::context(true)?;
    context.keep_results();
    let service = Service::open(args.service()?, false).map_err(failed)?;
    serve_mcp(service, io::BufReader::new(io::stdin()), io::stdout(), &context.stop).map_err(failed)
}

/// A service that cannot start, or a token that cannot be read.
pub fn failed(error: ServeError) -> Failure {
    Failure::new(&error, error.remedy())
}

/// The address and the memory of a server that listens.
#[derive(serde::Serialize)]
struct Listening<'a> {
    url: String,
    /// The token that was made for it; none if the user has named some.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
    ram_limit_bytes: u64,
    transport_bytes: u64,
}

/// Prints an answer: address, route, status and time, and nothing that a client sent.
fn log(answered: &Answered) {
    let Answered { peer, route, status, seconds } = answered;
    eprintln!("{peer} {} {status} {seconds:.1} s", route.unwrap_or("unknown"));
}

/// A new token of hexadecimal digits.
fn token() -> Outcome<Token> {
    let mut bytes = [0; TOKEN];
    getrandom::fill(&mut bytes).map_err(io::Error::from)?;
    let mut text = String::with_capacity(2 * TOKEN);
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    Token::new(text).ok_or_else(|| Failure::new("a token could not be made", "name one with --token-file"))
}
