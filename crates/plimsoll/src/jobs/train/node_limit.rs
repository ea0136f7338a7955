//! The memory limit of a rank beside others on its node.

use plimsoll_memory::{Bytes, Limit, Limits};
use plimsoll_ranks::{Communicator, RanksError};

use crate::context::Context;
use crate::error::{Error, Outcome};

/// The most bytes of a node's name and the sources of its limits.
const LONGEST: usize = 64 << 10;
/// The divisor of the share that stays free without a requested limit.
const MARGIN: u64 = 16;

/// Returns the memory limit of this rank. What ranks on one node are limited by together, like the memory of the node or a control group, is
/// divided by their number. Limits of a process apply to each.
///
/// # Errors
/// Returns an error if the ranks of a node may not take `asked` each, or communication fails.
pub(super) fn limit_of_rank(
    asked: Option<Bytes>,
    communicator: &mut dyn Communicator,
    context: &Context,
) -> Outcome<Option<Bytes>> {
    let limits = context.limits(asked);
    let host = plimsoll_memory::host::name();
    let all = shared_sources(&host, &limits, communicator)?;
    let Some((ranks, tightest)) = least_share(&host, &limits, &all) else { return Ok(asked) };
    let share = Bytes(tightest.bytes.0 / ranks);
    match asked {
        Some(asked) if asked > share => {
            let together = Bytes(asked.0.saturating_mul(ranks));
            let Limit { source, bytes, .. } = tightest;
            let message = format!(
                "{ranks} ranks with ‹ram={asked}› on {host} may take {together}, more than the {bytes} that {source} leaves"
            );
            let hint = format!("set the limit of a rank to {share} at most, or start fewer ranks on a node");
            Err(Error::new(message, hint))
        }
        Some(asked) => Ok(Some(asked)),
        None => Ok(Some(limits.limit.min(share - Bytes(share.0 / MARGIN)))),
    }
}

/// The limit that leaves a rank the least, and the number of ranks that share it; `None` if no limit is shared. `all` has the lines of
/// [`shared_sources`].
fn least_share<'a>(host: &str, limits: &'a Limits, all: &[String]) -> Option<(u64, &'a Limit)> {
    let ranks = |limit: &Limit| {
        let line = line(host, limit);
        all.iter().filter(|text| text.lines().any(|other| other == line)).count() as u64
    };
    let shared = limits.found.iter().filter(|limit| is_shared(limit)).map(|limit| (ranks(limit), limit));
    shared.filter(|(ranks, _)| *ranks > 1).min_by_key(|(ranks, limit)| limit.bytes.0 / ranks)
}

/// Tells all ranks which limits this rank shares with others on its node, and returns the lines of all ranks.
fn shared_sources(
    host: &str,
    limits: &Limits,
    communicator: &mut dyn Communicator,
) -> Result<Vec<String>, RanksError> {
    let lines: Vec<String> =
        limits.found.iter().filter(|limit| is_shared(limit)).map(|limit| line(host, limit)).collect();
    let all = communicator.all_gather(lines.join("\n").as_bytes(), LONGEST)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned();
    Ok(all.bytes().chunks(LONGEST).map(text).collect())
}

/// A limit as other ranks name it.
fn line(host: &str, limit: &Limit) -> String {
    format!("{host} {}", limit.source.replace('\n', " "))
}

/// Returns `true` if a limit is of several processes together. Resource limits are of each.
fn is_shared(limit: &Limit) -> bool {
    !limit.source.starts_with("RLIMIT")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(found: &[(&str, u64)]) -> Limits {
        let limit = |&(source, mib): &(&str, u64)| Limit {
            source: source.into(),
            bytes: Bytes::mib(mib),
            ceiling: Bytes::mib(mib),
        };
        let found: Vec<Limit> = found.iter().map(limit).collect();
        Limits { limit: found[0].bytes, found, unread: Vec::new(), asked: None }
    }

    #[test]
    fn ranks_of_a_node_share_its_memory_and_their_group_but_no_resource_limit() {
        let own = limits(&[("RLIMIT_AS", 900), ("cgroup v2 /job", 2000), ("available memory", 3000)]);
        let same = |lines: &[&str]| lines.join("\n");
        let other_node = same(&["b cgroup v2 /job", "b available memory"]);
        let beside = same(&["a cgroup v2 /job", "a available memory"]);
        let own_group = same(&["a cgroup v2 /task_1", "a available memory"]);
        let least =
            |all: &[String]| least_share("a", &own, all).map(|(ranks, limit)| (ranks, limit.source.as_str()));
        assert_eq!(least(&[beside.clone(), other_node.clone()]), None);
        assert_eq!(least(&[beside.clone(), beside.clone(), other_node]), Some((2, "cgroup v2 /job")));
        // Groups of their own: the memory of the node is shared all the same.
        assert_eq!(least(&[beside, own_group.clone(), own_group]), Some((3, "available memory")));
    }
}
