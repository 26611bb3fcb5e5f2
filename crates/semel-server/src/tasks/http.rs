//! `http`: a call of an HTTP API.
//!
//! Reads are keyed steps. What writes can do about a crash or a lost answer follows from the profile of the connection: see
//! [`effect`]. [`request`] makes what is sent.

pub(super) mod effect;
pub(super) mod request;
pub(super) mod result;

use super::{Checks, Class, Executing, Kind, TaskCall};
use crate::definitions::shape::{Field, Shape};
use crate::definitions::template::Template;

/// The members that name method and path.
const METHODS: [&str; 6] = ["get", "head", "post", "put", "patch", "delete"];
/// The members that are the body of a request.
const BODIES: [&str; 3] = ["json", "form", "text"];
/// Headers that the connection or the engine sets.
const RESERVED: [&str; 7] = [
    "authorization",
    "cookie",
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "proxy-authorization",
];
const PATH: &str = "Path below the base address, with this method.";

pub(super) static KIND: Kind = Kind {
    name: "http",
    about: "Calls an HTTP API. Its value is `{status, headers, body}`.",
    args: Shape::Object(&[
        Field::new("on", Shape::Name, "Connection that has the base address and the credentials."),
        Field::new("url", Shape::Text, "Base address without a connection: public, and without credentials."),
        Field::new("get", Shape::Text, PATH),
        Field::new("head", Shape::Text, PATH),
        Field::new("post", Shape::Text, PATH),
        Field::new("put", Shape::Text, PATH),
        Field::new("patch", Shape::Text, PATH),
        Field::new("delete", Shape::Text, PATH),
        Field::new("query", Shape::Map(&Shape::Scalar), "Parameters of the query; encoded by the server."),
        Field::new("headers", Shape::Map(&Shape::Text), "Headers of the request."),
        Field::new("json", Shape::Any, "Body of the request, sent as JSON."),
        Field::new("form", Shape::Map(&Shape::Scalar), "Body of the request, sent as a form."),
        Field::new("text", Shape::Text, "Body of the request, sent as plain text."),
    ]),
    on: &["http"],
    tries: true,
    class,
    check,
    execute,
};

/// Reads can be repeated. What else can be is known by the connection's profile, and without a connection by nothing.
fn class(args: &Template) -> Class {
    if args.get("get").or_else(|| args.get("head")).is_some() {
        return Class::Keyed;
    }
    if args.get("on").is_some() { Class::ByConnection } else { Class::AtMostOnce }
}

fn execute(call: TaskCall<'_>) -> Executing<'_> {
    Box::pin(effect::perform(call, None))
}

fn check(args: &Template, checks: &mut Checks<'_>) {
    checks.exactly_one(args, &["on", "url"]);
    if let Some((method, path)) = checks.exactly_one(args, &METHODS) {
        check_path(path, checks);
        check_body(args, method, checks);
    }
    if let Some(url) = args.get("url") {
        check_url(url, checks);
    }
    check_headers(args, checks);
}

fn check_path(path: &Template, checks: &mut Checks<'_>) {
    let Some(text) = path.text() else { return };
    if !text.starts_with('/') {
        let hint = "the base address is in the connection, or in `url`";
        checks.refuse(&path.at, format!("`{text}` is not a path: it does not begin with `/`"), hint);
    } else if text.contains(['?', '#']) {
        checks.refuse(
            &path.at,
            "the path has a query",
            "write parameters in `query`, where they are encoded",
        );
    }
}

fn check_body(args: &Template, method: &str, checks: &mut Checks<'_>) {
    let given: Vec<_> = BODIES.into_iter().filter_map(|name| Some((name, args.get(name)?))).collect();
    if let [(first, _), (second, body), ..] = given[..] {
        let hint = format!("a request has one body: one of {}", BODIES.join(", "));
        checks.refuse(&body.at, format!("`{first}` and `{second}` exclude each other"), hint);
    }
    if let (Some((name, body)), "get" | "head") = (given.first(), method) {
        let hint = "write parameters in `query`, or use `post`";
        checks.refuse(&body.at, format!("a request with `{method}` has no body, and here is `{name}`"), hint);
    }
}

fn check_url(url: &Template, checks: &mut Checks<'_>) {
    let Some(text) = url.text() else { return };
    match reqwest::Url::parse(text) {
        Ok(parsed) if matches!(parsed.scheme(), "http" | "https") && parsed.has_host() => {
            if !parsed.username().is_empty() || parsed.password().is_some() {
                checks.refuse(
                    &url.at,
                    "the address has a password",
                    "credentials belong into a connection (`on`)",
                );
            }
        }
        _ => checks.refuse(
            &url.at,
            format!("`{text}` is no address"),
            "write one such as https://api.example.com",
        ),
    }
}

fn check_headers(args: &Template, checks: &mut Checks<'_>) {
    let Some(crate::definitions::template::Filled::Object(headers)) =
        args.get("headers").map(|headers| &headers.value)
    else {
        return;
    };
    for (name, value) in headers {
        if RESERVED.contains(&name.to_ascii_lowercase().as_str()) {
            let hint = "the connection in the server's configuration sets it; a definition holds no secrets";
            checks.refuse(&value.at, format!("the header `{name}` cannot be set here"), hint);
        } else if reqwest::header::HeaderName::from_bytes(name.as_bytes()).is_err() {
            checks.refuse(&value.at, format!("`{name}` is no name of a header"), "letters, digits and `-`");
        }
    }
}
