//! Run numbers, as workers see them. A store numbers the runs of all tenants, so the difference of two numbers tells
//! how much others have started. Workers use numbers as addresses only. They see a permutation that differs per
//! tenant, is the same at every server of a store, and can be inverted only by the server.

use semel::clock::Clock;
use semel::error::{Error, Result};
use semel::id::WorkspaceId;
use semel::rules::json::Payload;
use semel::rules::key::RecordId;
use semel::rules::path::Name;
use semel::rules::record::{Keep, Look, LookBy};
use semel::rules::run::Run;
use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;

use crate::app::App;

/// Four Feistel rounds of pseudo-random functions give a permutation that is indistinguishable from a random one.
const ROUNDS: u8 = 4;

/// Secret of the permutations, read from the store once.
#[derive(Default)]
pub(super) struct Numbers(OnceCell<String>);

/// Permutation of run numbers for one tenant.
pub(super) struct Permutation([u8; 32]);

impl Numbers {
    /// The permutation of a tenant.
    pub(super) async fn of(&self, app: &App, workspace: WorkspaceId) -> Result<Permutation> {
        let secret = self.0.get_or_try_init(|| secret(app)).await?;
        Ok(Permutation::of(secret, workspace))
    }
}

/// The secret of this store; created by the first server that needs it.
async fn secret(app: &App) -> Result<String> {
    let kind = Name::new("secret").expect("a plain name");
    let id = RecordId::new("worker-numbers".to_owned()).expect("a plain id");
    loop {
        let look = Look { kind: kind.clone(), by: LookBy::Id(id.clone()) };
        if let Some(record) = app.store.records(look).await?.first() {
            let at = || format!("record {kind} {id}");
            return record.body.read().map_err(|e| Error::Corrupt { at: at(), source: e.into() });
        }
        let body = Payload::of(&drawn(&*app.clock))?;
        let keep = Keep { kind: kind.clone(), id: id.clone(), body, expected: Some(0), ttl: None };
        match app.store.keep(keep).await {
            // Another server has created it first.
            Ok(_) | Err(Error::RecordChanged { .. }) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Generates a secret of about two hundred random bits.
fn drawn(clock: &dyn Clock) -> String {
    [clock.uuid(), clock.uuid(), clock.uuid()].map(|uuid| uuid.simple().to_string()).concat()
}

impl Permutation {
    fn of(secret: &str, workspace: WorkspaceId) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"semel/number/v1");
        hash.update(workspace.0.as_bytes());
        hash.update(secret.as_bytes());
        Self(hash.finalize().into())
    }

    /// A number as this tenant sees it.
    pub(super) fn hide(&self, num: i64) -> i64 {
        let (mut left, mut right) = halves(num);
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ self.mix(round, right));
        }
        whole(left, right)
    }

    /// Replaces the number in a run by the one that this tenant sees.
    pub(super) fn in_run(&self, run: &mut Run) {
        run.num = self.hide(run.num);
    }

    fn mix(&self, round: u8, half: u32) -> u32 {
        let mut hash = Sha256::new();
        hash.update(self.0);
        hash.update([round]);
        hash.update(half.to_be_bytes());
        let full: [u8; 32] = hash.finalize().into();
        u32::from_be_bytes(full[..4].try_into().expect("4 of 32 bytes"))
    }
}

fn halves(num: i64) -> (u32, u32) {
    let bytes = num.to_be_bytes();
    let half = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("4 of 8 bytes"));
    (half(0), half(4))
}

fn whole(left: u32, right: u32) -> i64 {
    (i64::from(left) << 32) | i64::from(right)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    /// The number that a tenant sees as `hidden`; the mapping is one to one.
    fn show(permutation: &Permutation, hidden: i64) -> i64 {
        let (mut left, mut right) = halves(hidden);
        for round in (0..ROUNDS).rev() {
            (left, right) = (right ^ permutation.mix(round, left), left);
        }
        whole(left, right)
    }

    #[test]
    fn a_number_is_found_again_and_tells_nothing() {
        let [ours, theirs] = [1, 2].map(|n| Permutation::of("s", WorkspaceId(Uuid::from_u128(n))));
        let other = Permutation::of("t", WorkspaceId(Uuid::from_u128(1)));
        for num in [i64::MIN, -1, 0, 1, 2, 1_000_000, i64::MAX] {
            assert_eq!(show(&ours, ours.hide(num)), num);
            assert_ne!(ours.hide(num), theirs.hide(num));
            assert_ne!(ours.hide(num), other.hide(num));
        }
        let hidden: Vec<i64> = (1..=64).map(|num| ours.hide(num)).collect();
        let rises = hidden.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!((16..48).contains(&rises), "in no order: {rises}");
    }
}
