//! A development server has no authentication, so web pages must be kept out: a page on the internet can make a
//! browser call `127.0.0.1`, and with a name that it lets point there (DNS rebinding) it could even read the answer.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::access::site::host_of;
use crate::http::Problem;

/// Passes a request that names this machine as its host and that no foreign web page has made.
pub(super) async fn check(State(origins): State<Arc<[String]>>, request: Request, next: Next) -> Response {
    match refuse(request.uri(), request.headers(), &origins) {
        None => next.run(request).await,
        Some(detail) => Problem::forbidden(detail).into_response(),
    }
}

fn refuse(uri: &Uri, headers: &HeaderMap, origins: &[String]) -> Option<&'static str> {
    const HOST: &str = "this server has no authentication and accepts only the host names of this machine: call it as 127.0.0.1 or localhost";
    const ORIGIN: &str = "this server has no authentication and refuses web pages of other origins: add the origin to `cors.origins`";
    let Some(host) = host_of(uri, headers).filter(|host| is_local(host.host())) else { return Some(HOST) };
    // The page of a link names no origin when it is sent; its signature is the credential.
    let origin = headers.get(header::ORIGIN).filter(|_| !uri.path().starts_with("/approvals/"))?;
    let known = |origin: &str| {
        let own =
            origin.split_once("://").is_some_and(|(_, place)| place.eq_ignore_ascii_case(host.as_str()));
        own || origins.iter().any(|known| known == origin)
    };
    (!origin.to_str().is_ok_and(known)).then_some(ORIGIN)
}

fn is_local(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    let address = host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    address || host == "localhost" || host.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_refused(host: &str, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        refuse(&Uri::from_static("/"), &headers, &["https://app.example.com".to_owned()]).is_some()
    }

    #[test]
    fn only_names_of_this_machine_are_answered() {
        for host in
            ["localhost", "localhost:7700", "127.0.0.1:7700", "127.1.2.3", "[::1]:7700", "a.localhost"]
        {
            assert!(!is_refused(host, None), "{host}");
        }
        for host in ["example.com", "localhost.example.com", "10.0.0.1:7700", "127.0.0.1.nip.io", "[::2]", ""]
        {
            assert!(is_refused(host, None), "{host}");
        }
    }

    #[test]
    fn only_pages_of_this_server_or_of_the_list_are_answered() {
        assert!(!is_refused("localhost:7700", Some("http://localhost:7700")));
        assert!(!is_refused("localhost:7700", Some("https://app.example.com")));
        for origin in ["http://localhost:3000", "http://evil.example", "null", "https://app.example.com.evil"]
        {
            assert!(is_refused("localhost:7700", Some(origin)), "{origin}");
        }
        let headers = HeaderMap::from_iter([
            (header::HOST, "localhost:7700".parse().unwrap()),
            (header::ORIGIN, "null".parse().unwrap()),
        ]);
        assert!(refuse(&Uri::from_static("/approvals/apr_1"), &headers, &[]).is_none());
        assert!(refuse(&Uri::from_static("/api/v1/approvals/apr_1/decide"), &headers, &[]).is_some());
    }

    #[test]
    fn a_request_without_a_host_is_refused() {
        assert!(refuse(&Uri::from_static("/"), &HeaderMap::new(), &[]).is_some());
        assert!(refuse(&Uri::from_static("http://localhost/"), &HeaderMap::new(), &[]).is_none());
    }
}
