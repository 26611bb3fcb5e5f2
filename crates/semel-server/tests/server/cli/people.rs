//! Questions to people, public addresses of hooks, and connections.

use serde_json::Value;
use tempfile::TempDir;

use super::{Server, say, tests};

tests![
    an_approval_is_listed_shown_linked_and_decided,
    a_form_takes_an_answer_that_fits,
    an_address_is_created_listed_and_revoked,
    connections_are_checked_from_their_file,
];

/// Starts a definition with one step and waits until it asks; gives the id of what it asks.
fn asked(server: &Server, step: &str) -> String {
    let text = format!("semel: 1\nname: asks\nsteps:\n  - {{name: ask, {step}}}\n");
    server.say_with(&["definition", "push", "-"], &text).ends(0);
    server.say(&["start", "asks"]).ends(0);
    loop {
        let listed = server.say(&["approval", "ls", "-o", "json"]).ends(0).json();
        if let Some(id) = listed["approvals"][0]["id"].as_str() {
            return id.to_owned();
        }
    }
}

fn an_approval_is_listed_shown_linked_and_decided() {
    let server = Server::start();
    let id = asked(&server, "approval: {title: Order 7, content: {cents: 900}, by: [sales]}");
    let listed = server.say(&["approval", "ls", "--role", "sales"]).ends(0);
    assert!(listed.out.contains(&id) && listed.out.contains("Order 7"), "{listed:?}");
    assert_eq!(server.say(&["approval", "ls", "--role", "law"]).ends(0).out, "no open approvals\n");
    let shown = server.say(&["approval", "show", &id]).ends(0);
    assert!(shown.out.contains(r#"{"cents":900}"#) && shown.out.contains("sales"), "{shown:?}");
    let link = server.say(&["approval", "link", &id, "--to", "ada@example.com", "--expires", "1d"]).ends(0);
    assert!(link.out.contains("choice=rejected") && link.out.contains("ada%40example.com"), "{link:?}");
    server.say(&["approval", "decide", &id]).ends(2).tells("there is no decision");
    server.say(&["approval", "decide", &id, "edited"]).ends(2).tells("changed content");
    let edited = ["approval", "decide", &id, "edited", "--input", r#"{"cents": 800}"#, "--comment", "less"];
    let decided = server.say(&edited).ends(0);
    assert!(decided.out.contains("edited") && decided.out.contains("by local"), "{decided:?}");
    server.say(&edited).ends(0).tells("it was decided so before");
    server
        .say(&["approval", "decide", &id, "approved"])
        .ends(4)
        .tells("edited by local")
        .tells("approval show");
    server.say(&["approval", "show", "apr_01j0000000e00800000000007z"]).ends(3);
    assert!(server.say(&["approval", "rotate-links"]).ends(0).out.contains("invalid"));
}

fn a_form_takes_an_answer_that_fits() {
    let server = Server::start();
    let id = asked(&server, "human: {title: Size, form: {type: object, properties: {kg: {type: number}}}}");
    server.say(&["approval", "decide", &id, "--input", r#"{"kg": "x"}"#]).ends(4).tells("/kg");
    server.say(&["approval", "link", &id]).ends(2).tells("a form");
    let answered = server.say(&["approval", "decide", &id, "--input", r#"{"kg": 4}"#]).ends(0);
    assert!(answered.out.contains("answered"), "{answered:?}");
}

fn an_address_is_created_listed_and_revoked() {
    let server = Server::start();
    let made = ["hook", "address", "create", "order:7", "--call-id", "c1"];
    let created = server.say(&made).ends(0).tells("shown this once");
    assert!(created.out.contains(&format!("{}/in/", server.url)), "{created:?}");
    let again = server.say(&made).ends(0).tells("not shown again");
    assert!(!again.out.contains("/in/"), "{again:?}");
    let listed = server.say(&["hook", "address", "ls", "-o", "json"]).ends(0).json();
    let id = listed["addresses"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(listed["addresses"][0]["path"], Value::Null);
    let revoked = server.say(&["hook", "address", "revoke", &id]).ends(0);
    assert!(revoked.out.contains("revoked"), "{revoked:?}");
    server.say(&["hook", "address", "create", "a", "--verify", "stripe"]).ends(2);
    let unknown = ["hook", "address", "create", "a", "--verify", "stripe", "--connection", "none"];
    server.say(&unknown).ends(2).tells("sender-secret");
}

fn connections_are_checked_from_their_file() {
    let (folder, server) = (TempDir::new().unwrap(), Server::start());
    let path = folder.path().join("semel.toml");
    let text = format!("[connections.here]\nkind = 'http'\nbase = '{}'\n", server.url);
    let check = |text: &str, names: &[&str]| {
        std::fs::write(&path, text).unwrap();
        let all = [&["connection", "check", "--config", path.to_str().unwrap()][..], names].concat();
        say(&all)
    };
    let reached = check(&text, &["here"]).ends(0);
    assert!(reached.out.contains("reached"), "{reached:?}");
    check(&text, &["there"]).ends(3);
    let gone = format!("{text}[connections.gone]\nkind = 'http'\nbase = 'http://127.0.0.1:1'\n");
    let said = check(&gone, &["-o", "json"]).ends(5).json();
    assert_eq!(
        (&said["connections"][0]["state"], &said["connections"][1]["state"]),
        (&"wrong".into(), &"ok".into())
    );
    let wrong = format!("{text}profil = 'stripe'\n[connections.b]\nkind = 'htpp'\n");
    let told = check(&wrong, &[]).ends(2).tells("line 4").tells("`profile`");
    assert!(told.err.contains("line 6"), "{told:?}");
    assert_eq!(server.say(&["connection", "ls"]).ends(0).out, "no connections\n");
}
