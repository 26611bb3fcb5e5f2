//! Claims in portions. How large due runs are is known only when they have been read, and one claim may ask for a thousand
//! of them: so few are claimed first, and then as many as their size allows.

use semel::error::Result;
use semel::rules::claim::Claim;
use semel::store::{Claimed, Claims, Store};

/// Runs of the first portion. A portion that is not full ends the claim, also if it passed over suspects: those are due later, so
/// they are not in the way of the next claim.
const FIRST: usize = 8;
/// Bytes of ledgers and inboxes at which a claim takes no more runs.
const ENOUGH: usize = 32 * 1024 * 1024;

/// Claims due runs until there are as many as asked for, or they are large enough together. In the second case the next one
/// is due now.
pub(super) async fn claim(store: &dyn Store, claim: Claim) -> Result<Claims> {
    let (mut all, mut bytes, mut portion) = (Claims::default(), 0, claim.limit.min(FIRST));
    loop {
        let mut claims = match store.claim(Claim { limit: portion, ..claim.clone() }).await {
            Ok(claims) => claims,
            // The worker has to be told of what it has claimed before.
            Err(error) if !all.runs.is_empty() => {
                tracing::warn!(%error, "no more runs could be claimed");
                return Ok(all);
            }
            Err(error) => return Err(error),
        };
        let found = claims.runs.len();
        bytes += claims.runs.iter().map(weight).sum::<usize>();
        all.runs.append(&mut claims.runs);
        all = Claims { runs: all.runs, ..claims };
        if found < portion || all.runs.len() == claim.limit {
            return Ok(all);
        }
        portion = next(all.runs.len(), bytes, claim.limit);
        if portion == 0 {
            all.next_due = Some(all.now);
            return Ok(all);
        }
    }
}

/// Runs of the next portion: at most as many as were claimed before it, and as many of their average size as there is room for.
fn next(claimed: usize, bytes: usize, limit: usize) -> usize {
    let each = (bytes / claimed).max(1);
    (ENOUGH.saturating_sub(bytes) / each).min(claimed).min(limit - claimed)
}

fn weight(claimed: &Claimed) -> usize {
    let entries = claimed.entries.iter().flatten().map(semel::rules::entry::Entry::weight).sum::<usize>();
    entries + claimed.inbox.iter().map(|arrival| arrival.message.weight()).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portions_double_and_end_where_the_bytes_or_the_limit_do() {
        for (claimed, bytes, limit, portion) in [
            (8, 8_000, 1_000, 8),
            (512, 512_000, 1_000, 488),
            (4, ENOUGH, 1_000, 0),
            (4, ENOUGH * 2, 1_000, 0),
            (4, ENOUGH / 2, 1_000, 4),
            (6, ENOUGH / 2 + 6, 1_000, 5),
        ] {
            assert_eq!(next(claimed, bytes, limit), portion, "{claimed} runs of {bytes} bytes");
        }
    }
}
