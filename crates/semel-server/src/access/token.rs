//! Tokens: `semel_<26 characters of the key's id>_<secret>`. Only the hash of the secret is ever stored.

use std::fmt::Write;

use axum::http::{HeaderMap, header};
use semel::id::ApiKeyId;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::config::{LONGEST_TOKEN, Secret};
use crate::http::Problem;

/// The secret has 256 bits.
const SECRET_BYTES: usize = 32;

/// The SHA-256 of a secret. A secret has 256 random bits, so that a slow hash would add nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hash([u8; 32]);

impl Hash {
    pub(crate) fn of(secret: &str) -> Self {
        Self(Sha256::digest(secret.as_bytes()).into())
    }

    /// As it is stored.
    pub(crate) fn text(&self) -> String {
        hex(&self.0)
    }

    /// Whether it equals the stored one; the comparison takes the same time wherever they differ.
    pub(crate) fn is(&self, stored: &str) -> bool {
        self.text().as_bytes().ct_eq(stored.as_bytes()).into()
    }
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a text takes everything");
        text
    })
}

/// The bytes of lower-case hexadecimal digits.
pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| <[u8; 2]>::try_from(pair).ok().and_then(|[a, b]| Some(digit(a)? << 4 | digit(b)?)))
        .collect()
}

/// Fills a secret with randomness.
pub(crate) fn fill(bytes: &mut [u8]) -> Result<(), Problem> {
    getrandom::fill(bytes).map_err(|error| {
        tracing::error!(%error, "there is no randomness");
        Problem::unavailable("the machine has no randomness to make a secret of; try again")
    })
}

/// A new token for a key, and the hash to store.
pub(super) fn make(id: ApiKeyId) -> Result<(Secret, Hash), Problem> {
    let mut bytes = [0; SECRET_BYTES];
    fill(&mut bytes)?;
    let secret = hex(&bytes);
    let id = id.to_string();
    let id = id.strip_prefix("key_").unwrap_or(&id);
    Ok((Secret::new(format!("semel_{id}_{secret}")), Hash::of(&secret)))
}

/// The id and the secret in a token.
pub(super) fn parse(token: &str) -> Option<(ApiKeyId, &str)> {
    let (id, secret) = token.strip_prefix("semel_")?.split_once('_')?;
    Some((format!("key_{id}").parse().ok()?, secret))
}

/// The token of a request: `Authorization: Bearer …` or `x-api-key`. Two that differ are none.
pub(super) fn of(headers: &HeaderMap) -> Option<&str> {
    let bearer = |text: &'_ str| -> Option<usize> {
        let (scheme, token) = text.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| text.len() - token.len())
    };
    let mut given = Vec::new();
    for value in headers.get_all(header::AUTHORIZATION) {
        let text = value.to_str().ok()?;
        given.push(text[bearer(text)?..].trim());
    }
    for value in headers.get_all("x-api-key") {
        given.push(value.to_str().ok()?.trim());
    }
    let token = given.first()?;
    (given.iter().all(|other| other == token) && !token.is_empty() && token.len() <= LONGEST_TOKEN)
        .then_some(token)
}

/// Whether a request brings this token.
pub(crate) fn has_token(headers: &HeaderMap, token: &Secret) -> bool {
    of(headers).is_some_and(|given| Hash::of(given).is(&Hash::of(token.expose()).text()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderName;
    use uuid::Uuid;

    #[test]
    fn a_token_is_read_as_it_was_made() {
        let id = ApiKeyId(Uuid::from_u128(7));
        let (token, hash) = make(id).unwrap();
        let (read, secret) = parse(token.expose()).unwrap();
        assert_eq!(read, id);
        assert!(hash.is(&Hash::of(secret).text()) && !hash.is(&Hash::of("other").text()) && !hash.is(""));
        assert!(!format!("{hash:?}{token:?}").contains(secret));
        for wrong in [
            "",
            "semel_",
            "semel_x_y",
            "other_00000000000000000000000007_s",
            "semel_00000000000000000000000007",
        ] {
            assert!(parse(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn hexadecimal_digits_are_read_as_they_are_written() {
        assert_eq!(unhex(&hex(&[0, 9, 10, 255])), Some(vec![0, 9, 10, 255]));
        for wrong in ["0", "0g", "0A", "+1", "é"] {
            assert_eq!(unhex(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_token_comes_in_one_of_two_headers() {
        let of = |headers: &[(&'static str, &str)]| {
            let headers: HeaderMap = headers
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()))
                .collect();
            super::of(&headers).map(str::to_owned)
        };
        assert_eq!(of(&[("authorization", "Bearer a")]).as_deref(), Some("a"));
        assert_eq!(of(&[("authorization", "bearer  a ")]).as_deref(), Some("a"));
        assert_eq!(of(&[("x-api-key", "a")]).as_deref(), Some("a"));
        assert_eq!(of(&[("x-api-key", "a"), ("authorization", "Bearer a")]).as_deref(), Some("a"));
        assert_eq!(of(&[("x-api-key", "a"), ("authorization", "Bearer b")]), None);
        assert_eq!(of(&[("authorization", "Basic a")]), None);
        assert_eq!(of(&[("authorization", "a")]), None);
        assert_eq!(of(&[("x-api-key", "")]), None);
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("x-api-key", &"a".repeat(LONGEST_TOKEN + 1))]), None);
    }
}
