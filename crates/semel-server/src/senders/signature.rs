//! Signatures of senders. Each scheme is as its own page describes it:
//! - Standard Webhooks: <https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md>
//! - Stripe: <https://docs.stripe.com/webhooks#verify-manually>
//! - GitHub: <https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries>

use std::time::Duration;

use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use semel::clock::Time;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::access::{hex, unhex};
use crate::api::Scheme;
use crate::config::Secret;
use crate::connections::keys_of;

/// Maximum difference between the time of a signature and ours, as both schemes with a time recommend: what was
/// recorded on its way cannot be sent again later.
const TOLERANCE: Duration = Duration::from_mins(5);
/// Maximum number of signatures in a request: senders have two while they replace a secret.
const SIGNATURES: usize = 16;

/// A request whose signature is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signed {
    /// The sender's own id of the event; the hash of the body if it has sent none, so that a recorded request is absorbed.
    pub(crate) id: String,
}

/// A request as it was received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received<'a> {
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a [u8],
    pub(crate) now: Time,
}

impl<'a> Received<'a> {
    /// Verifies the signature with any of the secrets. None if it is missing, malformed, wrong or too old: a sender is not
    /// told which.
    pub(crate) fn verify(self, scheme: Scheme, secrets: &[Secret]) -> Option<Signed> {
        match scheme {
            Scheme::StandardWebhooks => self.standard_webhooks(secrets),
            Scheme::Stripe => self.stripe(secrets),
            Scheme::Github => self.github(secrets),
        }
    }

    /// `webhook-signature: v1,<base64> v1,<base64>`, over id, time and body; the secret is base64 after `whsec_`.
    fn standard_webhooks(self, secrets: &[Secret]) -> Option<Signed> {
        let (id, at) = (self.header("webhook-id")?, self.header("webhook-timestamp")?);
        self.check_time(at)?;
        let versions = self.header("webhook-signature")?.split(' ').take(SIGNATURES);
        let signatures = versions.filter_map(|version| STANDARD.decode(version.strip_prefix("v1,")?).ok());
        let keys = secrets.iter().flat_map(keys_of);
        let parts = [id.as_bytes(), b".", at.as_bytes(), b".", self.body];
        any_matches(keys, &parts, &signatures.collect::<Vec<_>>()).then(|| Signed { id: id.to_owned() })
    }

    /// `Stripe-Signature: t=<seconds>,v1=<hex>,v1=<hex>`, over time and body; the secret is taken as it is.
    fn stripe(self, secrets: &[Secret]) -> Option<Signed> {
        #[derive(Deserialize)]
        struct StripeEvent {
            id: Option<String>,
        }
        let header = self.header("stripe-signature")?;
        let members = header.split(',').filter_map(|member| member.trim().split_once('='));
        let at = members.clone().find(|(name, _)| *name == "t")?.1;
        self.check_time(at)?;
        let signatures = members.filter(|(name, _)| *name == "v1").take(SIGNATURES);
        let signatures: Vec<_> = signatures.filter_map(|(_, signature)| unhex(signature)).collect();
        let parts = [at.as_bytes(), b".", self.body];
        let event = || serde_json::from_slice::<StripeEvent>(self.body).ok().and_then(|event| event.id);
        any_matches(as_they_are(secrets), &parts, &signatures).then(|| self.signed(event()))
    }

    /// `X-Hub-Signature-256: sha256=<hex>`, over the body; there is no time in it.
    fn github(self, secrets: &[Secret]) -> Option<Signed> {
        let signature = unhex(self.header("x-hub-signature-256")?.strip_prefix("sha256=")?)?;
        any_matches(as_they_are(secrets), &[self.body], &[signature])
            .then(|| self.signed(self.header("x-github-delivery").map(str::to_owned)))
    }

    fn signed(self, id: Option<String>) -> Signed {
        Signed { id: id.unwrap_or_else(|| format!("sha256-{}", hex(&Sha256::digest(self.body)))) }
    }

    /// The value of a header that occurs once; two of a kind are ambiguous.
    fn header(self, name: &str) -> Option<&'a str> {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next()?;
        if values.next().is_some() {
            return None;
        }
        value.to_str().ok()
    }

    fn check_time(self, seconds: &str) -> Option<()> {
        let digits = !seconds.is_empty() && seconds.bytes().all(|byte| byte.is_ascii_digit());
        let at: i64 = seconds.parse().ok().filter(|_| digits)?;
        let apart = self.now.0.abs_diff(at.checked_mul(1_000)?);
        (apart <= u64::try_from(TOLERANCE.as_millis()).ok()?).then_some(())
    }
}

fn as_they_are(secrets: &[Secret]) -> impl Iterator<Item = Vec<u8>> {
    secrets.iter().map(|secret| secret.expose().as_bytes().to_vec())
}

/// Whether one of the signatures is the HMAC-SHA256 of the parts with one of the keys. Each comparison takes the same time
/// wherever they differ.
fn any_matches(keys: impl Iterator<Item = Vec<u8>>, parts: &[&[u8]], signatures: &[Vec<u8>]) -> bool {
    let mut matches = false;
    // An empty key would accept what anyone can compute.
    for key in keys.filter(|key| !key.is_empty()) {
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&key) else { continue };
        for part in parts {
            mac.update(part);
        }
        for signature in signatures {
            matches |= mac.clone().verify_slice(signature).is_ok();
        }
    }
    matches
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        let header = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        all.iter().map(header).collect()
    }

    fn secrets(all: &[&str]) -> Vec<Secret> {
        all.iter().map(|secret| Secret::new(*secret)).collect()
    }

    /// The example of the reference libraries of Standard Webhooks.
    const STANDARD_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const STANDARD_HEADERS: [(&str, &str); 3] = [
        ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
        ("webhook-timestamp", "1614265330"),
        ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
    ];
    const STANDARD_BODY: &[u8] = br#"{"test": 2432232314}"#;

    fn standard(all: &[(&'static str, &str)], body: &[u8], now: i64, secret: &[&str]) -> Option<Signed> {
        let headers = headers(all);
        let received = Received { headers: &headers, body, now: Time(now * 1_000) };
        received.verify(Scheme::StandardWebhooks, &secrets(secret))
    }

    #[test]
    fn standard_webhooks_are_verified_as_the_reference_signs() {
        let signed = Some(Signed { id: "msg_p5jXN8AQM9LWM0D4loKWxJek".to_owned() });
        let at = 1_614_265_330;
        let verify = |now, secret: &[&str]| standard(&STANDARD_HEADERS, STANDARD_BODY, now, secret);
        assert_eq!(verify(at, &[STANDARD_SECRET]), signed);
        assert_eq!(verify(at, &[&STANDARD_SECRET[6..]]), signed, "without the prefix");
        assert_eq!(verify(at, &["whsec_b3RoZXI=", STANDARD_SECRET]), signed, "one of several secrets");
        assert_eq!(verify(at + 300, &[STANDARD_SECRET]), signed);
        assert_eq!(verify(at - 300, &[STANDARD_SECRET]), signed);
        for now in [at + 301, at - 301] {
            assert_eq!(verify(now, &[STANDARD_SECRET]), None, "{now}");
        }
        for secret in [&["whsec_b3RoZXI="][..], &[], &[""], &["whsec_"], &["whsec_!"]] {
            assert_eq!(verify(at, secret), None, "{secret:?}");
        }
        assert_eq!(standard(&STANDARD_HEADERS, b"{}", at, &[STANDARD_SECRET]), None);
    }

    #[test]
    fn a_standard_webhook_may_have_several_signatures_but_one_of_each_header() {
        let [id, at, right] = STANDARD_HEADERS;
        let verify = |all: &[_]| standard(all, STANDARD_BODY, 1_614_265_330, &[STANDARD_SECRET]).is_some();
        let several = format!("v1,b3RoZXI= v1a,x {} v2,y", right.1);
        assert!(verify(&[id, at, ("webhook-signature", &several)]));
        for signature in ["", "v1", "v1,", "v1,!", "v2,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="] {
            assert!(!verify(&[id, at, ("webhook-signature", signature)]), "{signature}");
        }
        assert!(!verify(&[id, at]) && !verify(&[id, right]) && !verify(&[at, right]));
        assert!(!verify(&[("webhook-id", "msg_other"), at, right]));
        for at in ["1614265331", "+1614265330", "", "x", "99999999999999999999", " 1614265330"] {
            assert!(!verify(&[id, ("webhook-timestamp", at), right]), "{at}");
        }
        let mut two = headers(&[id, at, right]);
        two.append("webhook-id", HeaderValue::from_static("msg_p5jXN8AQM9LWM0D4loKWxJek"));
        let received = Received { headers: &two, body: STANDARD_BODY, now: Time(1_614_265_330_000) };
        assert_eq!(received.verify(Scheme::StandardWebhooks, &secrets(&[STANDARD_SECRET])), None);
    }

    #[test]
    fn stripe_is_verified_by_time_and_body() {
        // Stripe publishes no example with its secret; this signature was made with Python's hmac.
        const RIGHT: &str = "04904e80a80f3c65f0df3e8bf29a3daca4778371d8d66e834cd964c8fd65b24b";
        let body = br#"{"id": "evt_123", "type": "invoice.paid"}"#;
        let verify = |header: &str, body: &[u8], now: i64, secret: &str| {
            let headers = headers(&[("stripe-signature", header)]);
            let received = Received { headers: &headers, body, now: Time(now * 1_000) };
            received.verify(Scheme::Stripe, &secrets(&["whsec_old", secret]))
        };
        let header = format!("t=1492774577,v1={RIGHT},v0={RIGHT}");
        let signed = Some(Signed { id: "evt_123".to_owned() });
        assert_eq!(verify(&header, body, 1_492_774_577, "whsec_test"), signed);
        assert_eq!(verify(&header, body, 1_492_774_877, "whsec_test"), signed);
        assert_eq!(verify(&header, body, 1_492_774_878, "whsec_test"), None, "too old");
        assert_eq!(verify(&header, body, 1_492_774_577, "whsec_other"), None);
        assert_eq!(verify(&header, b"{}", 1_492_774_577, "whsec_test"), None);
        let two = format!("t=1492774577,v1={},v1={RIGHT}", "0".repeat(64));
        assert_eq!(verify(&two, body, 1_492_774_577, "whsec_test"), signed, "while a secret is replaced");
        for wrong in [
            "",
            "t=1492774577",
            &format!("v1={RIGHT}"),
            &format!("t=1492774577,v0={RIGHT}"),
            &format!("t=1492774577,v1={}", &RIGHT[2..]),
            &format!("t=1492774578,v1={RIGHT}"),
            &format!("t=,v1={RIGHT}"),
        ] {
            assert_eq!(verify(wrong, body, 1_492_774_577, "whsec_test"), None, "{wrong}");
        }
    }

    #[test]
    fn github_is_verified_as_its_page_shows() {
        // The example of GitHub's own page.
        const SECRET: &str = concat!("It's a Secret to Every", "body");
        const RIGHT: &str = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        let verify = |signature: &str, body: &[u8], secret: &str| {
            let headers = headers(&[("x-hub-signature-256", signature), ("x-github-delivery", "72d3162e")]);
            let received = Received { headers: &headers, body, now: Time(0) };
            received.verify(Scheme::Github, &secrets(&[secret]))
        };
        let signed = Some(Signed { id: "72d3162e".to_owned() });
        let unnamed = headers(&[("x-hub-signature-256", RIGHT)]);
        let unnamed = Received { headers: &unnamed, body: b"Hello, World!", now: Time(0) };
        let by_body = unnamed.verify(Scheme::Github, &secrets(&[SECRET])).unwrap().id;
        assert!(by_body.starts_with("sha256-dffd6021bb2bd5b0af67"), "{by_body}");
        assert_eq!(verify(RIGHT, b"Hello, World!", SECRET), signed);
        assert_eq!(verify(RIGHT, b"Hello, World!", "another secret"), None);
        assert_eq!(verify(RIGHT, b"Hello, World?", SECRET), None);
        for wrong in ["", "sha256=", &RIGHT[7..], &RIGHT.replace("sha256", "sha1"), &RIGHT[..70]] {
            assert_eq!(verify(wrong, b"Hello, World!", SECRET), None, "{wrong}");
        }
    }
}
