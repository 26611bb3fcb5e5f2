//! Which page has made a browser send a request. A request of another site's page is not answered if it changes something: the
//! browser would send the session's cookie with it.

use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri, header};

use crate::http::Problem;

/// Origin of a request, as far as its headers say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Site {
    /// A page of this server.
    Own,
    /// Another page, or the address bar.
    Foreign,
    /// No browser that says it: a program.
    Unsaid,
}

impl Site {
    /// The origin of a request. `Sec-Fetch-Site` is what the browser says by itself; on plain HTTP it says `Origin` only.
    pub(crate) fn of(uri: &Uri, headers: &HeaderMap) -> Self {
        if let Some(site) = headers.get("sec-fetch-site") {
            return if site == "same-origin" { Self::Own } else { Self::Foreign };
        }
        let Some(origin) = headers.get(header::ORIGIN) else { return Self::Unsaid };
        let place = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        let own = host_of(uri, headers)
            .is_some_and(|host| place.is_some_and(|(_, place)| place.eq_ignore_ascii_case(host.as_str())));
        if own { Self::Own } else { Self::Foreign }
    }

    /// Refuses a request that a page of another site has made, and one of which that is not known.
    pub(crate) fn must_be_own(self) -> Result<(), Problem> {
        match self {
            Self::Own => Ok(()),
            Self::Foreign | Self::Unsaid => Err(Problem::forbidden(
                "only a page of this server may send this: open the console and repeat it there, or call the API with an API key",
            )),
        }
    }

    /// Refuses a request that a page of another site has made.
    pub(crate) fn must_not_be_foreign(self) -> Result<(), Problem> {
        if self == Self::Unsaid { Ok(()) } else { self.must_be_own() }
    }
}

/// The host that a request names. HTTP/2 has it in the address, HTTP/1 in a header.
pub(crate) fn host_of(uri: &Uri, headers: &HeaderMap) -> Option<Authority> {
    match (uri.authority(), headers.get(header::HOST)) {
        (Some(authority), _) => Some(authority.clone()),
        (None, host) => host.and_then(|host| Authority::try_from(host.as_bytes()).ok()),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderName;

    use super::*;

    fn site(headers: &[(&'static str, &str)]) -> Site {
        let mut all: HeaderMap = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()))
            .collect();
        all.insert(header::HOST, "semel.example:7700".parse().unwrap());
        Site::of(&Uri::from_static("/w/shop/runs"), &all)
    }

    #[test]
    fn only_pages_of_this_server_are_its_own() {
        assert_eq!(site(&[("sec-fetch-site", "same-origin")]), Site::Own);
        assert_eq!(site(&[("origin", "https://semel.example:7700")]), Site::Own);
        for foreign in ["cross-site", "same-site", "none", ""] {
            let headers = [("sec-fetch-site", foreign), ("origin", "https://semel.example:7700")];
            assert_eq!(site(&headers), Site::Foreign, "{foreign}");
        }
        for foreign in ["https://semel.example", "https://evil.example", "null", "semel.example:7700"] {
            assert_eq!(site(&[("origin", foreign)]), Site::Foreign, "{foreign}");
        }
        assert_eq!(site(&[]), Site::Unsaid);
    }

    #[test]
    fn a_form_must_come_from_our_own_page_and_a_program_may_say_nothing() {
        assert!(Site::Own.must_be_own().is_ok() && Site::Own.must_not_be_foreign().is_ok());
        assert!(Site::Unsaid.must_be_own().is_err() && Site::Unsaid.must_not_be_foreign().is_ok());
        assert!(Site::Foreign.must_be_own().is_err() && Site::Foreign.must_not_be_foreign().is_err());
    }
}
