//! The agreement of all ranks to use NCCL.

use crate::communicator::Communicator;
use crate::error::{NoNccl, RanksError};

/// The most bytes of a rank's answer; longer reasons are cut.
const ANSWER: usize = 1024;

/// Agrees with all ranks to use NCCL, if each has a card of its own. `card` names this rank's, alike in all processes of a node and unlike those of
/// other nodes, or is the reason why it cannot use one. All ranks call this, and all return the same.
///
/// # Errors
/// Returns an error if communication fails.
pub fn agree_on_nccl(
    communicator: &mut dyn Communicator,
    card: Result<&str, &NoNccl>,
) -> Result<Result<(), NoNccl>, RanksError> {
    let answer = match card {
        Ok(card) => format!("+{card}"),
        Err(reason) => format!("-{reason}"),
    };
    let end = (0..=answer.len().min(ANSWER)).rev().find(|end| answer.is_char_boundary(*end));
    let all = communicator.all_gather(&answer.as_bytes()[..end.unwrap_or(0)], ANSWER)?;
    let mut cards: Vec<String> = Vec::with_capacity(communicator.size());
    for (rank, answer) in all.bytes().chunks(ANSWER).enumerate() {
        let answer = String::from_utf8_lossy(answer);
        let answer = answer.trim_end_matches('\0');
        let Some(card) = answer.strip_prefix('+') else {
            let reason = answer.trim_start_matches('-').to_owned();
            return Ok(Err(NoNccl::OfRank { rank, reason }));
        };
        if let Some(first) = cards.iter().position(|other| other == card) {
            return Ok(Err(NoNccl::SharedCard { first, second: rank, card: card.to_owned() }));
        }
        cards.push(card.to_owned());
    }
    Ok(Ok(()))
}
