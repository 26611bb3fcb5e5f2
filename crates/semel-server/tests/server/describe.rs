//! The description is the truth: every route is in it, every code has its page.

use std::collections::BTreeSet;
use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use semel::ErrorCode;
use semel::clock::SystemClock;
use semel::store::memory::MemoryStore;
use semel_server::app::App;
use semel_server::config::ClockMode;
use semel_server::http::{PAGES, document, router};
use serde_json::Value;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("describe::every_route_is_described_and_the_reverse", || {
            routes();
            Ok(())
        }),
        Trial::test("describe::every_operation_has_what_readers_need", || {
            operations();
            Ok(())
        }),
        Trial::test("describe::every_reference_leads_somewhere", references),
        Trial::test("describe::times_and_enums_are_described_as_such", formats),
        Trial::test("describe::every_code_has_its_page_and_the_reverse", pages),
        Trial::test("describe::the_documentation_lists_exactly_the_codes", table),
    ]
}

fn described() -> Value {
    serde_json::to_value(document(ClockMode::Machine)).expect("plain data")
}

fn routes() {
    let clock = Arc::new(SystemClock::new());
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let router = router(Arc::new(App::open(store, clock)));
    // The router has no list of its routes, but shows them.
    let shown = format!("{router:?}");
    let served: BTreeSet<_> =
        // The fallback is shown too.
        shown.split('"').filter(|text| text.len() > 1 && text.starts_with('/') && !text.contains("fallback")).collect();
    let document = described();
    let paths = document["paths"].as_object().expect("a map");
    let described: BTreeSet<_> = paths.keys().map(String::as_str).collect();
    assert!(served.len() > 10, "{shown}");
    assert_eq!(served.difference(&described).collect::<Vec<_>>(), Vec::<&&str>::new(), "not described");
    assert_eq!(described.difference(&served).collect::<Vec<_>>(), Vec::<&&str>::new(), "not served");
}

fn operations() {
    let document = described();
    assert_eq!(document["openapi"], "3.1.0");
    let mut ids = BTreeSet::new();
    for (path, item) in document["paths"].as_object().expect("a map") {
        for (method, operation) in item.as_object().expect("a map") {
            let place = format!("{method} {path}");
            let id = operation["operationId"].as_str().unwrap_or_default().to_owned();
            assert!(!id.is_empty() && ids.insert(id), "{place}: an id of its own");
            assert!(operation["summary"].is_string(), "{place}: a summary");
            let tag = &operation["tags"][0];
            let tags = document["tags"].as_array().expect("a list");
            assert!(tags.iter().any(|known| known["name"] == *tag), "{place}: a known tag");
            let open = operation["security"] == serde_json::json!([{}]);
            let statuses = operation["responses"].as_object().expect("a map");
            assert!(open || statuses.contains_key("401"), "{place}: what happens without a credential");
            if method == "post" && operation["requestBody"].is_object() {
                assert!(statuses.contains_key("413"), "{place}: a body may be too large");
                let example = &operation["requestBody"]["content"]["application/json"]["example"];
                // What workers say is for their libraries, not for people.
                assert!(*tag == "workers" || !example.is_null(), "{place}: an example");
            }
        }
    }
}

fn formats() -> Result<(), Failed> {
    let document = described();
    assert_eq!(document["servers"][0]["url"], "/");
    let schemas = document["components"]["schemas"].as_object().ok_or("schemas")?;
    let mut times = 0;
    for (name, schema) in schemas {
        for (member, about) in schema["properties"].as_object().into_iter().flatten() {
            // Workers speak in milliseconds, the place of a fork and the bound of a list are numbers.
            let text = about.to_string();
            if text.contains("schemas/Time") || ["ForkCall", "RunQuery"].contains(&name.as_str()) {
                continue;
            }
            if member.ends_with("At") || ["at", "deadline"].contains(&member.as_str()) {
                times += usize::from(member != "at" || name != "ForkRun");
                // The entry at which a run is forked is a number.
                assert!(about["format"] == "date-time" || name == "ForkRun", "{name}.{member}: {about}");
            }
        }
    }
    assert!(times > 15, "{times}");
    let names = |name: &str| schemas.get(name).map(|schema| schema["enum"].clone()).unwrap_or_default();
    assert_eq!(names("RunStatus").as_array().map(Vec::len), Some(8), "{}", names("RunStatus"));
    assert_eq!(names("EffectClass"), serde_json::json!(["keyed", "at-most-once", "reconcile", "tx"]));
    assert_eq!(
        names("ReceiptKind"),
        serde_json::json!(["start", "delivery", "result", "control", "refused"])
    );
    for name in ["FailureKind", "StartVerdict", "KeyScope", "RestartFrom"] {
        assert!(names(name).is_array(), "{name}");
    }
    let status = &schemas["RunView"]["properties"]["status"];
    assert_eq!(status["$ref"], "#/components/schemas/RunStatus", "{status}");
    Ok(())
}

fn references() -> Result<(), Failed> {
    fn walk<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(members) => {
                found.extend(members.get("$ref").and_then(Value::as_str));
                members.values().for_each(|value| walk(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| walk(value, found)),
            _ => {}
        }
    }
    let (document, mut found) = (described(), Vec::new());
    walk(&document, &mut found);
    assert!(found.len() > 20);
    for reference in found {
        let pointer = reference.strip_prefix('#').ok_or(format!("{reference} leads out of the document"))?;
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
    Ok(())
}

fn pages() -> Result<(), Failed> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors");
    let mut files = BTreeSet::new();
    for file in std::fs::read_dir(folder)? {
        files.insert(file?.file_name().to_string_lossy().replace(".md", ""));
    }
    let codes: BTreeSet<_> = ErrorCode::ALL.iter().map(ToString::to_string).collect();
    let served: BTreeSet<_> = PAGES.iter().map(|(code, _)| code.to_string()).collect();
    assert_eq!(files, codes, "docs/errors");
    assert_eq!(served, codes, "the pages in the binary");
    for (code, page) in PAGES {
        assert!(
            page.starts_with(&format!("# {code}\n\n{} (HTTP {}).", code.title(), code.status())),
            "{code}"
        );
        for part in ["## When", "## What to do", "## Example"] {
            assert!(page.contains(part), "{code}: {part}");
        }
        let (kind, title) =
            (format!("\"type\": \"/errors/{code}\""), format!("\"title\": {:?}", code.title()));
        assert!(page.contains(&kind) && page.contains(&title), "{code}: the example");
    }
    Ok(())
}

fn table() -> Result<(), Failed> {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/http.md");
    let page = std::fs::read_to_string(page)?;
    let listed: BTreeSet<_> = page.lines().filter(|line| line.contains("](errors/")).collect();
    let row = |code: &ErrorCode| format!("| `{code}` | {} | [page](errors/{code}.md) |", code.status());
    let codes: Vec<_> = ErrorCode::ALL.iter().map(row).collect();
    assert_eq!(listed, codes.iter().map(String::as_str).collect(), "docs/http.md");
    Ok(())
}
