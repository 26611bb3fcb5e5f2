//! Addresses: parts of paths and queries, and what forms send.

use axum::extract::{FromRequest, Request};

use super::desk::PageRefusal;
use crate::http::{self, Problem};

/// Maximum size of a form in bytes: a value of 2 MiB, percent-encoded.
const LONGEST_FORM: usize = 8 * 1024 * 1024;

/// A part of a path or of a query, percent-encoded.
pub(super) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            byte => {
                out.push('%');
                for digit in [byte >> 4, byte & 15] {
                    out.push(char::from_digit(u32::from(digit), 16).expect("four bits").to_ascii_uppercase());
                }
            }
        }
    }
    out
}

/// A query of these pairs, with its question mark; empty if there are none.
pub(super) fn query<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let pairs: Vec<_> =
        pairs.into_iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

/// The pairs of a query or of a form, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    /// The fields of a query.
    pub(super) fn of_query(text: Option<&str>) -> Self {
        Self(http::fields(text.unwrap_or_default()))
    }

    /// The first field of this name, without the space around it; none if it is empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(field, _)| field == name);
        found.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    }

    /// All values of a name.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// The field as a number.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, PageRefusal> {
        let number = self.get(name).map(str::parse).transpose();
        number.map_err(|_| Problem::validation(format!("`{name}` is a number")).into())
    }

    /// The id under which a form may be sent again.
    pub(super) fn call(&self) -> &str {
        self.get("call").unwrap_or_default()
    }
}

/// The query of a page.
impl<S: Send + Sync> axum::extract::FromRequestParts<S> for Fields {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut axum::http::request::Parts,
        _: &S,
    ) -> Result<Self, std::convert::Infallible> {
        Ok(Self::of_query(parts.uri.query()))
    }
}

/// What a form has sent.
pub(super) struct SentForm(pub(super) Fields);

impl<S: Send + Sync> FromRequest<S> for SentForm {
    type Rejection = PageRefusal;

    async fn from_request(request: Request, _: &S) -> Result<Self, PageRefusal> {
        if !http::is_form(request.headers()) {
            return Err(Problem::validation("send the form of the page; programs call /api/v1").into());
        }
        let text = http::read_text(request, LONGEST_FORM).await?;
        Ok(Self(Fields(http::fields(&text))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_read_back() {
        for text in ["a b", "left/pack[item-3]", "ä€\u{202e}x", "?&=#%+", "\"><script>"] {
            let fields = Fields::of_query(Some(&format!("x={}", encoded(text))));
            assert_eq!(fields.get("x"), Some(text));
        }
        assert_eq!(query([("a", "1&2"), ("b", "")]), "?a=1%262&b=");
        assert_eq!(query([]), "");
    }
}
