//! Commands on stores.

use std::sync::Arc;

use semel::store::Store as _;
use semel::store::postgres::{PostgresOptions, PostgresStore};
use tempfile::TempDir;

use super::{Server, say, tests};
use crate::world::runtime;

tests![
    a_store_is_made_and_migrated,
    a_store_moves_from_sqlite_to_postgres_and_back,
    an_import_is_refused_where_it_does_not_belong,
    a_damaged_store_is_found_out,
    a_store_in_use_is_not_touched,
];

/// A store with some runs, and the folder that it is in.
fn filled() -> (TempDir, String) {
    let mut server = Server::start();
    let start = ["start", "order", "--key", "k", "--deliver-token", "t", "--deliver-payload", "[1,\n 2]"];
    server.say(&start).ends(0);
    server.say(&start).ends(0);
    for n in 0..3 {
        server.run(&format!("k{n}"));
    }
    server.kill();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("copy.db");
    let from = server.file();
    std::fs::copy(&from, &file).unwrap();
    // What was killed has its last writes in the log beside it.
    std::fs::copy(format!("{from}-wal"), format!("{}-wal", file.display())).unwrap();
    (folder, format!("sqlite:{}", file.display()))
}

fn path(folder: &TempDir, name: &str) -> String {
    folder.path().join(name).to_str().unwrap().to_owned()
}

/// An empty schema, as an address.
fn postgres() -> String {
    static SCHEMAS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let number = SCHEMAS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let schema = format!("cli_{}_{number}", std::process::id());
    let url = std::env::var("SEMEL_TEST_POSTGRES").expect("main has seen to it that there is a server");
    let options = PostgresOptions { schema: Some(schema.clone()), ..PostgresOptions::new(url.clone()) };
    runtime().block_on(async {
        let store = Arc::new(PostgresStore::open(options).await.unwrap());
        store.close().await.unwrap();
    });
    let mark = if url.contains('?') { '&' } else { '?' };
    format!("{url}{mark}schema={schema}")
}

fn a_store_is_made_and_migrated() {
    let folder = TempDir::new().unwrap();
    let store = path(&folder, "new.db");
    say(&["store", "check", "--store", &store]).ends(3).tells("semel store migrate");
    let made = say(&["store", "migrate", "--store", &store, "-o", "json"]).ends(0).json();
    assert!(made["schemaVersion"].as_u64().is_some_and(|version| version >= 1), "{made}");
    assert!(say(&["store", "check", "--store", &store]).ends(0).out.contains("findings  0"));
    say(&["store", "migrate", "--store", "mysql://x/y"]).ends(2).tells("sqlite:path");
    say(&["store", "migrate", "--store", "memory:"]).ends(2);
    say(&["store", "migrate"]).ends(2).tells("--store");
    let secret =
        say(&["store", "check", "--store", "postgres://u:hush@127.0.0.1:1/db?connect_timeout=1"]).ends(5);
    assert!(!format!("{secret:?}").contains("hush"), "{secret:?}");
}

fn a_store_moves_from_sqlite_to_postgres_and_back() {
    let (folder, old) = filled();
    let (first, second, third) = (path(&folder, "1.ndjson"), path(&folder, "2.ndjson"), path(&folder, "out"));
    let exported = say(&["store", "export", "--store", &old, &first, "-o", "json"]).ends(0).json();
    let lines = exported["lines"].as_u64();
    assert!(lines >= Some(4), "{exported}");
    let database = postgres();
    let imported = say(&["store", "import", "--store", &database, &first, "-o", "json"]).ends(0).json();
    assert_eq!((imported["imported"].as_u64(), imported["absorbed"].as_u64()), (lines, Some(0)));
    assert_eq!(say(&["store", "check", "--store", &database, "-o", "json"]).ends(0).json()["runs"], 4);
    say(&["store", "export", "--store", &database, &second]).ends(0);
    assert_eq!(std::fs::read(&first).unwrap(), std::fs::read(&second).unwrap());
    // Back again, by a folder, and to stdout.
    let new = path(&folder, "new.db");
    std::fs::create_dir(&third).unwrap();
    say(&["store", "export", "--store", &database, &third]).ends(0);
    say(&["store", "import", "--store", &new, &third]).ends(0);
    let printed = say(&["store", "export", "--store", &new, "-"]).ends(0);
    assert_eq!(printed.out.as_bytes(), std::fs::read(&first).unwrap());
    let workspace = "ws_00000000000000000000000000";
    let one = say(&["store", "export", "--store", &new, "-", "--workspace", workspace]).ends(0);
    assert_eq!(one.out.lines().count(), 4 + 2, "the runs of the workspace, between two lines: {one:?}");
}

fn an_import_is_refused_where_it_does_not_belong() {
    let (folder, old) = filled();
    let (file, new) = (path(&folder, "a.ndjson"), path(&folder, "new.db"));
    say(&["store", "export", "--store", &old, &file]).ends(0);
    say(&["store", "export", "--store", &old, &file]).ends(4).tells("is there already");
    let text = std::fs::read_to_string(&file).unwrap();
    let broken = path(&folder, "broken.ndjson");
    let cut: Vec<_> = text.lines().take(3).collect();
    let lines = text.lines().count() as u64 - 2;
    for (content, told) in [
        (cut.join("\n"), "incomplete"),
        (text.replace("\"version\":", "\"version\":1"), "entries"),
        (text.replace("\"format\":1", "\"format\":9"), "newer Semel"),
        ("{\"a\":1}\n".to_owned(), "line 1"),
        (text.replace(&format!("{{\"end\":{lines}}}"), "{\"end\":1}"), "last line"),
    ] {
        std::fs::write(&broken, content).unwrap();
        say(&["store", "import", "--store", &new, &broken]).ends(4).tells(told);
        assert!(!std::path::Path::new(&new).exists(), "nothing was made");
    }
    say(&["store", "import", "--store", &new, "/nowhere"]).ends(3);
    say(&["store", "import", "--store", &new, &file]).ends(0);
    say(&["store", "import", "--store", &new, &file]).ends(4).tells("not empty");
    let again = say(&["store", "import", "--store", &new, &file, "--continue", "-o", "json"]).ends(0).json();
    assert_eq!((again["imported"].as_u64(), again["absorbed"].as_u64()), (Some(0), Some(lines)));
}

fn a_damaged_store_is_found_out() {
    let (folder, store) = filled();
    assert_eq!(
        say(&["store", "check", "--store", &store, "-o", "json"]).ends(0).json()["findings"],
        serde_json::json!([])
    );
    let file = path(&folder, "copy.db");
    let mut bytes = std::fs::read(&file).unwrap();
    let (was, is) = (b"\"workflow\":\"order\"", b"\"workflow\":\"odder\"");
    let at = bytes.windows(was.len()).position(|part| part == was).expect("the entries are text");
    bytes[at..at + is.len()].copy_from_slice(is);
    std::fs::write(&file, bytes).unwrap();
    let found = say(&["store", "check", "--store", &store]).ends(1).tells("do not fit together");
    assert!(found.out.contains("created with other names"), "{found:?}");
    assert_eq!(say(&["store", "check", "--store", &store, "-o", "ndjson"]).ends(1).out.lines().count(), 1);
}

fn a_store_in_use_is_not_touched() {
    let server = Server::start();
    for command in ["migrate", "check"] {
        say(&["store", command, "--store", &server.file()]).ends(5).tells("open in another process");
    }
    let said = say(&["store", "export", "--store", &server.file(), "-"]).ends(5);
    assert_eq!(said.out, "");
}
