//! From evaluated arguments to the request that is sent.

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use semel::{Fail, Result, fatal};
use serde_json::{Map, Value as Json};

use crate::connections::{Outgoing, Slot, SlotPart, form};

/// Maximum size of all headers of a request in bytes; servers refuse more.
const HEADERS: usize = 16 * 1024;
const METHODS: [(&str, Method); 6] = [
    ("get", Method::GET),
    ("head", Method::HEAD),
    ("post", Method::POST),
    ("put", Method::PUT),
    ("patch", Method::PATCH),
    ("delete", Method::DELETE),
];

/// The method and the path that the arguments say.
pub(super) fn method(args: &Json) -> Result<(Method, &str)> {
    let found = METHODS.iter().find_map(|(name, method)| Some((method.clone(), args.get(name)?)));
    let (method, path) = found.ok_or_else(|| wrong("the step names no method"))?;
    let path = path.as_str().ok_or_else(|| wrong("the path is no text"))?;
    Ok((method, path))
}

/// The request of these arguments. `key` is put where the profile wants it.
pub(super) fn request(base: Option<&Url>, args: &Json, key: Option<(&Slot, &str)>) -> Result<Outgoing> {
    let (method, path) = method(args)?;
    let base = match base {
        Some(base) => base.clone(),
        None => address(args)?,
    };
    let mut parts = RequestParts {
        url: below(&base, path)?,
        query: scalars(args.get("query"), "query")?,
        headers: headers(args.get("headers"))?,
        form: match args.get("form") {
            Some(form) => Some(scalars(Some(form), "form")?),
            None => None,
        },
        json: args.get("json").cloned(),
        text: args.get("text").and_then(Json::as_str).map(str::to_owned),
    };
    if let Some((slot, key)) = key {
        parts.put(&slot.part, key)?;
    }
    Ok(parts.build(method))
}

/// A search of a look-up.
pub(super) fn search(base: &Url, path: &str) -> Result<Outgoing> {
    let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
    let mut url = below(base, path)?;
    url.set_query(query);
    Ok(Outgoing { method: Method::GET, url, headers: HeaderMap::new(), body: None })
}

struct RequestParts {
    url: Url,
    query: Vec<(String, String)>,
    headers: HeaderMap,
    form: Option<Vec<(String, String)>>,
    json: Option<Json>,
    text: Option<String>,
}

impl RequestParts {
    fn put(&mut self, part: &SlotPart, key: &str) -> Result<()> {
        match part {
            SlotPart::Header(name) => {
                let value =
                    HeaderValue::from_str(key).map_err(|_| wrong("the key cannot be sent in a header"))?;
                self.headers.insert(name.clone(), value);
            }
            SlotPart::Query(name) => {
                self.query.retain(|(given, _)| given != name);
                self.query.push((name.clone(), key.to_owned()));
            }
            SlotPart::Form(name) if self.json.is_none() && self.text.is_none() => {
                let fields = self.form.get_or_insert_default();
                fields.retain(|(given, _)| given != name);
                fields.push((name.clone(), key.to_owned()));
            }
            SlotPart::Json(pointer) if self.form.is_none() && self.text.is_none() => {
                insert(self.json.get_or_insert_with(|| Json::Object(Map::new())), pointer, key)?;
            }
            SlotPart::Form(_) => {
                return Err(wrong("the profile of the connection puts its key into a form: use `form`"));
            }
            SlotPart::Json(_) => {
                return Err(wrong("the profile of the connection puts its key into JSON: use `json`"));
            }
        }
        Ok(())
    }

    fn build(mut self, method: Method) -> Outgoing {
        if !self.query.is_empty() {
            self.url.query_pairs_mut().extend_pairs(&self.query);
        }
        let (kind, body) = match (self.json, self.form, self.text) {
            (Some(json), ..) => ("application/json", Some(json.to_string().into_bytes())),
            (_, Some(fields), _) => ("application/x-www-form-urlencoded", Some(form(&fields).into_bytes())),
            (.., Some(text)) => ("text/plain; charset=utf-8", Some(text.into_bytes())),
            _ => ("", None),
        };
        if body.is_some() && !self.headers.contains_key(CONTENT_TYPE) {
            self.headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        Outgoing { method, url: self.url, headers: self.headers, body }
    }
}

/// Sets the value at a pointer of an object; objects on the way are made.
fn insert(json: &mut Json, pointer: &str, key: &str) -> Result<()> {
    let mut here = json;
    for part in pointer.split('/').skip(1) {
        let name = part.replace("~1", "/").replace("~0", "~");
        let Json::Object(members) = here else {
            return Err(wrong(format!(
                "the profile of the connection puts its key at {pointer} of the body, which is no object"
            )));
        };
        here = members.entry(name).or_insert_with(|| Json::Object(Map::new()));
    }
    *here = Json::String(key.to_owned());
    Ok(())
}

/// The address that the step itself gives.
fn address(args: &Json) -> Result<Url> {
    let text =
        args.get("url").and_then(Json::as_str).ok_or_else(|| wrong("the step has neither `on` nor `url`"))?;
    match Url::parse(text) {
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            Err(wrong("`url` has a password; credentials belong into a connection"))
        }
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() && url.query().is_none() => {
            Ok(url)
        }
        _ => Err(wrong("`url` is no address of HTTP without a query, such as `https://api.example.com`")),
    }
}

/// A path below an address. What an expression has put into it cannot lead out of the base address.
pub(in crate::tasks) fn below(base: &Url, path: &str) -> Result<Url> {
    let lower = path.to_ascii_lowercase().replace("%2e", ".");
    let leads_up = lower.split(['/', '\\']).any(|part| part == "." || part == "..");
    if !path.starts_with('/')
        || path.contains(['?', '#', '\\'])
        || path.chars().any(char::is_control)
        || leads_up
    {
        let shown: String = path.chars().take(80).collect();
        return Err(wrong(format!(
            "`{shown}` is no path: it begins with `/`, and has no `?`, `#`, `\\` and `..`"
        )));
    }
    let prefix = base.path().trim_end_matches('/');
    let mut url = base.clone();
    url.set_path(&format!("{prefix}{path}"));
    Ok(url)
}

fn headers(given: Option<&Json>) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    let mut size = 0;
    for (name, value) in given.and_then(Json::as_object).into_iter().flatten() {
        let header: HeaderName =
            name.parse().map_err(|_| wrong(format!("`{name}` is no name of a header")))?;
        let text = value.as_str().ok_or_else(|| wrong(format!("the header `{name}` is no text")))?;
        let value = HeaderValue::from_str(text)
            .map_err(|_| wrong(format!("the header `{name}` has characters that a header cannot have")))?;
        size += name.len() + text.len();
        headers.insert(header, value);
    }
    if size > HEADERS {
        return Err(wrong(format!("the headers have {size} bytes; at most {HEADERS} are sent")));
    }
    Ok(headers)
}

/// Names and values of a query or form.
fn scalars(given: Option<&Json>, what: &str) -> Result<Vec<(String, String)>> {
    let members = given.and_then(Json::as_object).into_iter().flatten();
    let text = |(name, value): (&String, &Json)| match value {
        Json::String(text) => Ok((name.clone(), text.clone())),
        Json::Number(_) | Json::Bool(_) => Ok((name.clone(), value.to_string())),
        _ => Err(wrong(format!("`{name}` of `{what}` is neither a text nor a number nor true or false"))),
    };
    members.map(text).collect()
}

/// A mistake in what was evaluated: no other attempt mends it, and nothing was sent.
fn wrong(message: impl Into<String>) -> Fail {
    fatal(message.into()).with_code("EXPRESSION")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn base() -> Url {
        Url::parse("https://api.example.com/v1/").unwrap()
    }

    #[test]
    fn a_path_stays_below_the_base_address() {
        let at = |path: &str| below(&base(), path).map(|url| url.to_string());
        assert_eq!(at("/charges").unwrap(), "https://api.example.com/v1/charges");
        assert_eq!(at("/a b/ü").unwrap(), "https://api.example.com/v1/a%20b/%C3%BC");
        assert_eq!(at("//evil.example/x").unwrap(), "https://api.example.com/v1//evil.example/x");
        for path in [
            "charges",
            "",
            "/../admin",
            "/a/..",
            "/%2e%2E/admin",
            "/a?b=1",
            "/a#b",
            "/a\\..\\b",
            "/a\nb",
            "https://evil",
        ] {
            assert!(at(path).is_err(), "{path:?}");
        }
    }

    #[test]
    fn the_key_goes_where_the_profile_wants_it() {
        let args = json!({"post": "/c", "json": {"amount": 7, "key": "author's"}, "query": {"a": "1 &", "n": 2, "t": true}});
        let slot = |part| Slot { part, uuid: false };
        let sent = |part: SlotPart, args: &Json| request(Some(&base()), args, Some((&slot(part), "e1k")));
        let header = sent(SlotPart::Header("idempotency-key".parse().unwrap()), &args).unwrap();
        assert_eq!(header.headers["idempotency-key"], "e1k");
        assert_eq!(header.url.as_str(), "https://api.example.com/v1/c?a=1+%26&n=2&t=true");
        let json = sent(SlotPart::Json("/Metadata/semel".to_owned()), &args).unwrap();
        let body: Json = serde_json::from_slice(&json.body.unwrap()).unwrap();
        assert_eq!(body, json!({"amount": 7, "key": "author's", "Metadata": {"semel": "e1k"}}));
        let query = sent(SlotPart::Query("a".to_owned()), &args).unwrap();
        assert_eq!(query.url.query(), Some("n=2&t=true&a=e1k"));
        let form = sent(SlotPart::Form("k".to_owned()), &json!({"post": "/c", "form": {"k": "x", "b": "ü"}}))
            .unwrap();
        assert_eq!(form.body.unwrap(), b"b=%C3%BC&k=e1k");
        assert_eq!(form.headers["content-type"], "application/x-www-form-urlencoded");
        for (part, args) in [
            (SlotPart::Form("k".to_owned()), &args),
            (SlotPart::Json("/k".to_owned()), &json!({"post": "/c", "form": {}})),
            (SlotPart::Json("/k/l".to_owned()), &json!({"post": "/c", "json": {"k": [1]}})),
        ] {
            assert_eq!(sent(part, args).unwrap_err().code(), Some("EXPRESSION"));
        }
    }

    #[test]
    fn what_cannot_be_sent_is_refused_before_it_is() {
        for args in [
            json!({"post": "/c", "headers": {"a": "b\r\nc: d"}}),
            json!({"post": "/c", "headers": {"a b": "c"}}),
            json!({"post": "/c", "headers": {"a": "x".repeat(HEADERS)}}),
            json!({"post": "/c", "query": {"a": [1]}}),
            json!({"post": 7}),
            json!({}),
        ] {
            assert_eq!(request(Some(&base()), &args, None).unwrap_err().code(), Some("EXPRESSION"), "{args}");
        }
        for url in ["ftp://a.example", "https://me:pw@a.example", "a.example", "https://a.example?x=1"] {
            let args = json!({"get": "/c", "url": url});
            assert_eq!(request(None, &args, None).unwrap_err().code(), Some("EXPRESSION"), "{url}");
        }
    }
}
