//! The way to the other sides: the provider's address and connections, and what is known about a step in doubt.

use std::sync::Arc;

use libtest_mimic::Failed;
use serde_json::{Value, json};

use super::components::{Components, DoubtLook};
use super::provider::Sales;
use crate::operator::{Looking, Witness};
use crate::outside::{Ask, client};

/// The way to the provider.
#[derive(Clone)]
pub(super) struct ProviderDesk {
    http: reqwest::Client,
    pub(super) base: String,
}

impl ProviderDesk {
    /// The provider at a port.
    pub(super) fn at(port: u16) -> Self {
        Self { http: client(), base: format!("http://127.0.0.1:{port}") }
    }

    async fn post(&self, path: &str, body: Value) -> Result<Value, Failed> {
        let response = self.http.post(format!("{}{path}", self.base)).body(body.to_string()).send().await?;
        Ok(serde_json::from_str(&response.text().await?)?)
    }

    /// What was done, when nothing is under way any more.
    pub(super) async fn sales(&self) -> Result<Sales, Failed> {
        Ok(serde_json::from_value(self.post("/sales", Value::Null).await?)?)
    }
}

/// What the other sides know about a step in doubt.
pub(super) struct OtherSides {
    pub(super) provider: ProviderDesk,
    pub(super) components: Arc<Components>,
}

impl Witness for OtherSides {
    fn look<'a>(&'a self, ask: &'a Ask) -> Looking<'a> {
        Box::pin(async move {
            match self.components.look(&ask.at).await? {
                DoubtLook::Happened(value) => Ok(Some(value)),
                DoubtLook::Absent => Ok(None),
                DoubtLook::Elsewhere => {
                    let number = self.provider.post("/asked-by-the-operator", json!(ask.at)).await?;
                    Ok((!number.is_null()).then(|| json!({ "n": number })))
                }
            }
        })
    }
}

/// The server's file: a connection for everything that a provider can do about a repetition.
pub(super) fn connections(base: &str) -> String {
    let find = "find = { get = \"/found?reference={{ effect.key }}\" }, found = \"{{ body.found }}\", settle = \"1s\"";
    let profiles = [
        ("key", "{ by = \"key\", header = \"Idempotency-Key\", window = \"for-ever\" }".to_owned()),
        (
            "kept",
            format!(
                "{{ by = \"key\", header = \"Idempotency-Key\", window = \"24h\", replayed = \"Idempotent-Replayed\", {find} }}"
            ),
        ),
        ("found", format!("{{ by = \"key\", header = \"Idempotency-Key\", window = \"1s\", {find} }}")),
        (
            "repeated",
            "{ by = \"key\", header = \"Idempotency-Key\", window = \"for-ever\", repeated = [\"400/duplicate\"] }"
                .to_owned(),
        ),
        ("window", "{ by = \"key\", json = \"/reference\", format = \"uuid\", window = \"1s\" }".to_owned()),
        ("look-up", format!("{{ by = \"look-up\", put = {{ json = \"/reference\" }}, {find} }}")),
        ("nothing", "{ by = \"nothing\" }".to_owned()),
    ];
    let mut text = String::new();
    for (name, profile) in profiles {
        text += &format!(
            "[connections.{name}]\nkind = \"http\"\nbase = \"{base}/{name}\"\ntimeout = \"500ms\"\nprofile = {profile}\n\
             headers = {{ authorization = {{ bearer = {{ env = \"PROVIDER_KEY\" }} }} }}\n"
        );
    }
    text + &format!(
        "[connections.told]\nkind = \"webhook\"\nurl = \"{base}/told\"\ntimeout = \"500ms\"\nsecret = {{ env = \"PROVIDER_KEY\" }}\n"
    )
}
