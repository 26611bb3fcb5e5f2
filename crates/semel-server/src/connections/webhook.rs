//! Connections of the kind `webhook`: a receiver of Standard Webhooks.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use reqwest::Url;
use reqwest::header::HeaderMap;

use super::client::{ClientOptions, client};
use super::kind::{Checking, ConnectionKind, Environment, Settings, Target, TargetCheck};
use super::members::Members;
use super::route::Route;
use super::secret::{Redactor, SecretPlace};
use crate::config::Secret;

pub(super) static KIND: ConnectionKind = ConnectionKind { name: "webhook", read };
/// Prefix of a secret that is written in base64.
const PREFIX: &str = "whsec_";
/// Minimum length of a signing key in bytes: the standard wants 24 to 64.
const SHORTEST_KEY: usize = 16;

/// A receiver of webhooks.
#[derive(Debug)]
pub struct WebhookTarget {
    /// Address below which the paths of steps are.
    pub url: Url,
    /// Address of the receiver, and how it is reached.
    pub route: Route,
    /// Keys by which it is signed; more than one while they are exchanged.
    pub keys: Vec<SigningKey>,
}

impl Target for WebhookTarget {
    fn kind(&self) -> &'static str {
        KIND.name
    }

    fn class(&self) -> &'static str {
        "keyed"
    }

    fn summary(&self) -> String {
        "Standard Webhooks".to_owned()
    }

    fn redactor(&self) -> &Redactor {
        &self.route.redactor
    }

    fn check<'a>(&'a self, check: TargetCheck<'a>) -> Checking<'a> {
        Box::pin(self.route.reach(check, self.url.clone()))
    }
}

/// The key of a signature.
#[derive(Clone)]
pub struct SigningKey(Vec<u8>);

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SigningKey")
    }
}

impl SigningKey {
    /// Reads a secret: `whsec_` and base64, or the key itself.
    pub fn read(secret: &Secret) -> Result<Self, String> {
        let text = secret.expose();
        let key = match text.strip_prefix(PREFIX) {
            Some(coded) => {
                decoded(coded).ok_or_else(|| format!("what follows `{PREFIX}` in the secret is no base64"))?
            }
            None => text.as_bytes().to_vec(),
        };
        match key.len() < SHORTEST_KEY {
            true => Err(format!(
                "the secret has fewer than {SHORTEST_KEY} bytes; make one with `openssl rand -base64 32`"
            )),
            false => Ok(Self(key)),
        }
    }

    /// The bytes of the key.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The keys that a secret of Standard Webhooks may mean. Senders write it as base64 after `whsec_`; some leave the prefix out,
/// and others sign with the text itself.
pub(crate) fn keys_of(secret: &Secret) -> Vec<Vec<u8>> {
    let text = secret.expose();
    match text.strip_prefix(PREFIX) {
        Some(coded) => decoded(coded).into_iter().collect(),
        None => decoded(text).into_iter().chain([text.as_bytes().to_vec()]).collect(),
    }
}

/// The bytes of base64, with or without padding.
fn decoded(text: &str) -> Option<Vec<u8>> {
    STANDARD_NO_PAD.decode(text.trim_end_matches('=')).ok()
}

/// What the configuration says about a receiver of webhooks.
#[derive(Debug)]
struct WebhookSettings {
    url: Url,
    secrets: Vec<SecretPlace>,
    ca_file: Option<PathBuf>,
}

fn read(members: &mut Members<'_>) -> Option<Box<dyn Settings>> {
    let url = super::http::base(members, "url");
    if members.get("secret").is_none() {
        members.refuse(
            "secret",
            "it is missing; give `{ env = \"NAME\" }`, or a list of them while secrets are exchanged",
        );
    }
    let secrets = members.secrets("secret");
    let ca_file = members.text("ca-file").map(PathBuf::from);
    Some(Box::new(WebhookSettings { url: url?, secrets: secrets?, ca_file }))
}

impl Settings for WebhookSettings {
    fn open(self: Box<Self>, environment: Environment<'_>) -> Result<Box<dyn Target>, Vec<(String, String)>> {
        let (mut keys, mut redactor, mut problems) = (Vec::new(), Redactor::default(), Vec::new());
        for place in &self.secrets {
            let read = place.fetch(environment).and_then(|secret| {
                redactor.hide(secret.expose());
                redactor.hide(secret.expose().strip_prefix(PREFIX).unwrap_or_default());
                SigningKey::read(&secret)
            });
            match read {
                Ok(key) => keys.push(key),
                Err(why) => problems.push(("secret".to_owned(), why)),
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let options = ClientOptions { ca_file: self.ca_file, names: None };
        let client = client(options).map_err(|why| vec![("ca-file".to_owned(), why)])?;
        let route = Route { client, headers: HeaderMap::new(), policy: None, redactor };
        Ok(Box::new(WebhookTarget { url: self.url, route, keys }))
    }
}
