//! Bodies of the type `application/x-www-form-urlencoded`.

use axum::http::{HeaderMap, header};
use reqwest::Url;

/// Whether the headers say that the body is a form.
pub(crate) fn is_form(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/x-www-form-urlencoded")
}

/// The fields of a form, in their order. Bytes that are no UTF-8 become replacement characters.
pub(crate) fn fields(body: &str) -> Vec<(String, String)> {
    // A query has the same encoding, and the parser of addresses is here already.
    let mut url = Url::parse("http://form/").expect("a fixed address");
    url.set_query(Some(body.trim()));
    url.query_pairs().into_owned().collect()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn fields_are_decoded() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            fields("a=1+2&b=%26%23%C3%A9&a=#&c"),
            [pair("a", "1 2"), pair("b", "&#é"), pair("a", "#"), pair("c", "")]
        );
        assert_eq!(fields(""), []);
    }

    #[test]
    fn a_form_is_known_by_its_content_type() {
        let is = |kind: &str| {
            is_form(&HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_str(kind).unwrap())]))
        };
        assert!(
            is("application/x-www-form-urlencoded") && is("Application/X-WWW-form-urlencoded; charset=utf-8")
        );
        assert!(!is("application/json") && !is_form(&HeaderMap::new()));
    }
}
