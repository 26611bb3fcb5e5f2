use semel::clock::{Clock as _, SystemClock};
use semel::store::memory::MemoryStore;

use super::*;
use crate::definitions::check;

const WORKSPACE: WorkspaceId = WorkspaceId::DEFAULT;

fn catalog() -> Catalog {
    Catalog::new(Arc::new(MemoryStore::new(Arc::new(SystemClock::new()))))
}

/// A definition with one step, which waits this long.
fn text(name: &str, version: &str, wait: &str) -> String {
    format!("semel: 1\nname: {name}\n{version}\nsteps: [{{name: pause, wait: {wait}}}]\n")
}

fn new(text: &str, current: bool) -> NewDefinition {
    let clock = SystemClock::new();
    let pushed = Pusher { by: "test".to_owned(), at: clock.now(), call: clock.uuid() };
    NewDefinition { accepted: check::check(text).unwrap(), text: text.to_owned(), pushed, current }
}

async fn push(catalog: &Catalog, text: &str) -> Pushed {
    catalog.push(WORKSPACE, new(text, true)).await.unwrap()
}

async fn found(catalog: &Catalog, reference: &str) -> Option<String> {
    let found = catalog.find(WORKSPACE, reference).await.unwrap()?;
    Some(format!("{}@{}", found.name, found.label))
}

#[tokio::test]
async fn a_push_is_created_once_and_found_by_id_name_and_label() {
    let catalog = catalog();
    let first = push(&catalog, &text("a", "", "1s")).await;
    assert_eq!((first.verdict, &*first.named.version.label), (PushVerdict::Created, "1"));
    let again = push(&catalog, &text("a", "# the same", "1s")).await;
    assert_eq!((again.verdict, &again.named.version), (PushVerdict::Unchanged, &first.named.version));
    let second = push(&catalog, &text("a", "version: beta", "2s")).await;
    assert_eq!(second.previous, Some(first.named.version.clone()));
    let third = catalog.push(WORKSPACE, new(&text("a", "", "3s"), false)).await.unwrap();
    assert_eq!((&*third.named.version.label, third.previous), ("2", None));
    for (reference, wanted) in [
        ("a", Some("a@beta")),
        ("a@1", Some("a@1")),
        ("a@2", Some("a@2")),
        (first.named.version.id.as_str(), Some("a@1")),
        ("a@3", None),
        ("b", None),
        ("", None),
        ("def1_00000000000000000000000000", None),
    ] {
        assert_eq!(found(&catalog, reference).await.as_deref(), wanted, "{reference}");
    }
    let elsewhere = WorkspaceId(SystemClock::new().uuid());
    for reference in ["a", "a@1", first.named.version.id.as_str()] {
        assert!(catalog.find(elsewhere, reference).await.unwrap().is_none(), "{reference}");
        assert!(catalog.load(elsewhere, reference).await.unwrap().is_none(), "{reference}");
    }
}

#[tokio::test]
async fn a_label_is_given_once() {
    let catalog = catalog();
    push(&catalog, &text("a", "version: x", "1s")).await;
    let refused = catalog.push(WORKSPACE, new(&text("a", "version: x", "2s"), true)).await.unwrap_err();
    let PushRefused::Taken { holder, pointers } = refused else { panic!("{refused:?}") };
    assert_eq!((&*holder.label, pointers), ("x", vec!["/steps/0/wait".to_owned()]));
    assert_eq!(found(&catalog, "a").await.as_deref(), Some("a@x"));
}

#[tokio::test]
async fn use_goes_back_and_archive_hides_until_the_next_use_or_push() {
    let catalog = catalog();
    let first = push(&catalog, &text("a", "", "1s")).await;
    push(&catalog, &text("a", "", "2s")).await;
    let used = catalog.make_current(WORKSPACE, "a", "1").await.unwrap().unwrap();
    assert!(used.changed);
    assert_eq!(found(&catalog, "a").await.as_deref(), Some("a@1"));
    let by_id = catalog.make_current(WORKSPACE, "a", first.named.version.id.as_str()).await.unwrap().unwrap();
    assert!(!by_id.changed);
    assert!(catalog.make_current(WORKSPACE, "a", "9").await.unwrap().is_none());
    assert!(catalog.archive(WORKSPACE, "b").await.unwrap().is_none());
    for _ in 0..2 {
        catalog.archive(WORKSPACE, "a").await.unwrap().unwrap();
        assert!(catalog.find(WORKSPACE, "a").await.unwrap().unwrap().archived);
        push(&catalog, &text("a", "", "1s")).await;
        assert!(!catalog.find(WORKSPACE, "a").await.unwrap().unwrap().archived);
    }
}

#[tokio::test]
async fn what_is_loaded_is_the_canonical_document() {
    let catalog = catalog();
    // As canonical JSON these numbers are 1 and 100000000000000000000, which no document may spell.
    let text = "semel: 1\nname: a\nsteps: [{name: x, set: {one: 1.0, many: 1e20}}]\n";
    let pushed = push(&catalog, text).await;
    let id = pushed.named.version.id.as_str();
    assert!(catalog.known(WORKSPACE, id).is_none(), "nothing is kept of the text as pushed");
    let loaded = catalog.load(WORKSPACE, id).await.unwrap().unwrap();
    assert_eq!(loaded.steps[0].at.place.line, 1);
    let known = catalog.known(WORKSPACE, id).unwrap();
    assert!(Arc::ptr_eq(&loaded, &known));
}

/// Pointers of all steps of a list, and of those inside.
fn pointers(definition: &Definition) -> Vec<(String, String)> {
    let mut found = Vec::new();
    language::each_step(&definition.steps, "", &mut |step, _| {
        found.push((step.name.clone(), step.at.pointer.clone()));
    });
    found
}

#[test]
fn every_right_definition_is_understood_alike_from_its_canonical_document() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/definitions/right");
    let mut count = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let Ok(accepted) = check::check(&text) else { continue };
        let loaded = understood(&accepted.id, &accepted.canonical).unwrap();
        assert_eq!(pointers(&loaded), pointers(&accepted.definition));
        // The canonical document is checked without a problem, too, and has the same id.
        assert_eq!(check::check(&accepted.canonical).unwrap().id, accepted.id);
        assert!(
            understood(&accepted.id, &accepted.canonical.replace("semel", "semle")).is_err(),
            "damage is noticed"
        );
        count += 1;
    }
    assert!(count >= 10, "{count}");
}

#[tokio::test]
async fn names_are_listed_in_their_order_and_by_workspace() {
    let catalog = catalog();
    let elsewhere = WorkspaceId(SystemClock::new().uuid());
    for name in ["c", "a", "b"] {
        push(&catalog, &text(name, "", "1s")).await;
        catalog.push(elsewhere, new(&text(name, "", "1s"), true)).await.unwrap();
    }
    for workspace in [WORKSPACE, elsewhere] {
        let (page, more) = catalog.names(workspace, None, 2).await.unwrap();
        let names: Vec<_> = page.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((names, more), (vec!["a", "b"], true));
        let (page, more) = catalog.names(workspace, Some("b"), 2).await.unwrap();
        assert_eq!((page.len(), page[0].0.as_str(), more), (1, "c", false));
    }
}
