//! Signed links: with one, a person decides without an API key.
//!
//! The signature covers the approval, the choice, the expiry and the person for whom the link was made. Its key is a record of the
//! store: generated once, shared by all servers on that store, in no ledger, and answered by no route. A new key makes
//! all earlier links invalid.

use hmac::{Hmac, KeyInit as _, Mac as _};
use semel::Error;
use semel::clock::Time;
use semel::id::ApprovalId;
use semel::store::Store;
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::access::{hex, unhex};
use crate::api::Choice;
use crate::http::Problem;
use crate::records::{self, RecordKind, Versioned};

/// Length of a key in bytes: that of the hash, as RFC 2104 recommends.
const KEY_BYTES: usize = 32;
/// Id of the only record with a key.
const ID: &str = "approval-links";

/// The key, as it is stored.
#[derive(Clone, Serialize, Deserialize)]
struct LinkKey {
    /// The key in hexadecimal digits.
    key: String,
}

impl RecordKind for LinkKey {
    const KIND: &'static str = "server-key";
}

/// What a link says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) id: ApprovalId,
    pub(crate) choice: Choice,
    pub(crate) expires: Time,
    /// For whom it was made; empty if that was not said.
    pub(crate) to: String,
}

impl Link {
    /// The signature in hexadecimal digits.
    pub(crate) async fn sign(&self, store: &dyn Store) -> Result<String, Problem> {
        let key = match find(store).await? {
            Some(kept) => kept.body,
            None => first(store).await?,
        };
        Ok(hex(&self.mac(&key)?.finalize().into_bytes()))
    }

    /// Whether the signature is that of this link. The comparison takes the same time wherever they differ.
    pub(crate) async fn is_signed(&self, store: &dyn Store, signature: &str) -> Result<bool, Problem> {
        let (Some(kept), Some(signature)) = (find(store).await?, unhex(signature)) else { return Ok(false) };
        Ok(self.mac(&kept.body)?.verify_slice(&signature).is_ok())
    }

    fn mac(&self, key: &LinkKey) -> Result<Hmac<Sha256>, Problem> {
        let damaged = || Problem::unavailable("the key of links is damaged; see the log of the server");
        let key = unhex(&key.key).filter(|key| key.len() == KEY_BYTES).ok_or_else(damaged)?;
        let mut mac = Hmac::<Sha256>::new_from_slice(&key).map_err(|_| damaged())?;
        let (id, expires) = (self.id.to_string(), self.expires.0.to_string());
        // Lengths before the parts: no two links have the same text.
        for part in ["semel/approval-link/v1", &id, self.choice.as_str(), &expires, &self.to] {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part.as_bytes());
        }
        Ok(mac)
    }
}

async fn find(store: &dyn Store) -> Result<Option<Versioned<LinkKey>>, Error> {
    records::find(store, ID).await
}

/// The first key of a store: this one, or that of a server that was faster.
async fn first(store: &dyn Store) -> Result<LinkKey, Problem> {
    match records::keep(store, ID, &fresh()?, 0, None).await {
        Ok(kept) => Ok(kept.body),
        Err(Error::RecordChanged { .. }) => {
            let kept = find(store).await?;
            kept.map(|kept| kept.body)
                .ok_or_else(|| Problem::unavailable("the key of links was just removed; repeat the call"))
        }
        Err(error) => Err(error.into()),
    }
}

/// Replaces the key: all links from before are invalid on every server from now on.
pub(crate) async fn rotate(store: &dyn Store) -> Result<(), Problem> {
    let version = find(store).await?.map_or(0, |kept| kept.version);
    match records::keep(store, ID, &fresh()?, version, None).await {
        // Another call has replaced it at this moment, which is as good.
        Ok(_) | Err(Error::RecordChanged { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn fresh() -> Result<LinkKey, Problem> {
    let mut bytes = [0; KEY_BYTES];
    crate::access::fill(&mut bytes)?;
    Ok(LinkKey { key: hex(&bytes) })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use semel::clock::SystemClock;
    use semel::store::memory::MemoryStore;
    use uuid::Uuid;

    use super::*;

    fn link() -> Link {
        let (id, to) = (ApprovalId(Uuid::from_u128(7)), "ada".to_owned());
        Link { id, choice: Choice::Approved, expires: Time(1_000), to }
    }

    #[tokio::test]
    async fn a_signature_is_of_one_link_and_one_key() {
        let store = MemoryStore::new(Arc::new(SystemClock::new()));
        assert!(!link().is_signed(&store, &"0".repeat(64)).await.unwrap(), "there is no key yet");
        let signature = link().sign(&store).await.unwrap();
        assert_eq!(signature, link().sign(&store).await.unwrap(), "the key is generated once");
        assert!(link().is_signed(&store, &signature).await.unwrap());
        for other in [
            Link { id: ApprovalId(Uuid::from_u128(8)), ..link() },
            Link { choice: Choice::Rejected, ..link() },
            Link { expires: Time(1_001), ..link() },
            Link { to: "ad".to_owned(), ..link() },
        ] {
            assert!(!other.is_signed(&store, &signature).await.unwrap(), "{other:?}");
        }
        for wrong in ["", "zz", &signature[1..], &signature[..62], &signature.to_uppercase()] {
            assert!(!link().is_signed(&store, wrong).await.unwrap(), "{wrong}");
        }
        rotate(&store).await.unwrap();
        assert!(!link().is_signed(&store, &signature).await.unwrap(), "the key was replaced");
        let again = link().sign(&store).await.unwrap();
        assert!(again != signature && link().is_signed(&store, &again).await.unwrap());
    }
}
