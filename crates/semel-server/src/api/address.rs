//! Requests and answers of hook addresses.

use serde::{Deserialize, Serialize};

/// How a sender signs its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
#[schema(as = SignatureScheme)]
pub enum Scheme {
    /// Standard Webhooks, as many senders have it: the headers `webhook-id`, `webhook-timestamp` and `webhook-signature`.
    StandardWebhooks,
    /// The scheme of Stripe, in the header `Stripe-Signature`.
    Stripe,
    /// The scheme of GitHub, in the header `X-Hub-Signature-256`.
    Github,
}

/// Verification of a sender's signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VerifySender {
    /// Scheme by which the sender signs.
    pub scheme: Scheme,
    /// Connection in the configuration of the server that has the secret.
    pub connection: String,
}

/// Body of `POST /hooks/{token}/address`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateAddress {
    /// Time from which the address is refused, RFC 3339; in 30 days if absent, and in 366 days at the latest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
    /// Signature that each request must have. If absent, the address itself is the only credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<VerifySender>,
}

/// A public address of a hook, without its secret path.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressView {
    /// Id of the address (`adr_…`).
    pub id: String,
    /// Token of the hook that receives what is sent to the address.
    pub token: String,
    /// Signature that each request must have. Absent if none is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<VerifySender>,
    /// Name of the API key that created it.
    pub created_by: String,
    /// Time of creation, RFC 3339.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// Time from which the address is refused, RFC 3339.
    #[schema(format = DateTime)]
    pub expires_at: String,
    /// Time of the revocation, RFC 3339. Absent if it is not revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub revoked_at: Option<String>,
}

/// Answer of `POST /hooks/{token}/address`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressCreated {
    /// The address that was created, without its secret path.
    #[serde(flatten)]
    pub address: AddressView,
    /// Secret path at the public address of the server. It is shown only in the first answer; absent when the call is repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// Answer of `GET /hook-addresses`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressList {
    /// Addresses on this page, the oldest first, including revoked ones. There may be fewer than the limit although more pages
    /// follow.
    pub addresses: Vec<AddressView>,
    /// Cursor of the next page: pass it as `cursor`. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Answer to the sender of a webhook.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReceivedAnswer {
    /// Whether an earlier request had brought the same event, so that this one was absorbed.
    pub absorbed: bool,
}
