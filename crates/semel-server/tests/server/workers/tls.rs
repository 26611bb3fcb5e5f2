//! TLS: a client that is given the server's certificate speaks with it, one that is not does not.

use libtest_mimic::{Failed, Trial};
use semel::remote::{Options, RemoteStore};
use semel::store::{Query, Store as _};
use semel_server::config::{Auth, Config, StoreAddress, Tls};
use semel_server::serve::Server;

use super::test;

pub(super) fn trials() -> Vec<Trial> {
    vec![test("a_worker_speaks_tls_and_knows_its_server", a_worker_speaks_tls_and_knows_its_server)]
}

async fn a_worker_speaks_tls_and_knows_its_server() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
    let tls = Tls { cert: folder.path().join("cert.pem"), key: folder.path().join("key.pem") };
    std::fs::write(&tls.cert, made.cert.pem())?;
    std::fs::write(&tls.key, made.signing_key.serialize_pem())?;
    let config = Config {
        listen: "127.0.0.1:0".parse()?,
        store: StoreAddress::new("memory:".to_owned()),
        auth: Auth::None,
        tls: Some(tls),
        ..Config::default()
    };
    let server = Server::open(&config).await?;
    let (stop, port) = (server.stop(), server.address().ok_or("a port")?.port());
    let serving = tokio::spawn(server.run());
    let url = format!("https://localhost:{port}");
    let known = Options { ca: Some(made.cert.pem().into_bytes()), token: None, ..Options::new(url.clone()) };
    let remote = RemoteStore::open(known).await?;
    assert_eq!(remote.list(Query::all(semel::id::WorkspaceId::DEFAULT, 10)).await?.runs, []);
    let stranger = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?.cert.pem();
    let other = Options { ca: Some(stranger.into_bytes()), token: None, ..Options::new(url.clone()) };
    let refused = RemoteStore::open(other).await.err().ok_or("another certificate")?.to_string();
    assert!(
        refused.contains("certificate of the server is not trusted: it is not signed by a trusted authority"),
        "{refused}"
    );
    let empty = Options { ca: Some(Vec::new()), token: None, ..Options::new(url.clone()) };
    assert_eq!(RemoteStore::open(empty).await.err().map(|error| error.code()), Some("VALIDATION_ERROR"));
    let listed = commanded(&["run", "ls", "--url", &url]).await?;
    let said = String::from_utf8(listed.stderr)?;
    assert_eq!(listed.status.code(), Some(5), "{said}");
    assert!(said.contains("is not trusted: its issuer is unknown") && said.contains("--ca-file"), "{said}");
    assert!(!said.contains("is the server running"), "{said}");
    let path = config.tls.as_ref().map(|tls| tls.cert.display().to_string()).ok_or("it was set")?;
    let listed = commanded(&["run", "ls", "--url", &url, "--ca-file", &path]).await?;
    assert_eq!(listed.status.code(), Some(0), "{}", String::from_utf8(listed.stderr)?);
    let known = Options { ca_file: Some(path.into()), token: None, ..Options::new(url.clone()) };
    assert!(RemoteStore::open(known).await.is_ok());
    for (path, code) in [("/nowhere.pem", 3), ("/dev/null", 2)] {
        let refused = commanded(&["run", "ls", "--url", &url, "--ca-file", path]).await?;
        assert_eq!(refused.status.code(), Some(code), "{path}");
    }
    drop(remote);
    stop.order();
    serving.await??;
    Ok(())
}

/// A command of the binary.
async fn commanded(arguments: &[&str]) -> std::io::Result<std::process::Output> {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_semel"));
    command.args(arguments).env_remove("SEMEL_TOKEN").env_remove("SEMEL_CA_FILE").output().await
}
