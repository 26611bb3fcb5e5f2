//! TLS: a client that is given the server's certificate speaks with it, one that is not does not.

use libtest_mimic::{Failed, Trial};
use semel::remote::{Options, Remote};
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
    let remote = Remote::open(known).await?;
    assert_eq!(remote.list(Query::all(semel::id::WorkspaceId::DEFAULT, 10)).await?.runs, []);
    let stranger = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?.cert.pem();
    let other = Options { ca: Some(stranger.into_bytes()), token: None, ..Options::new(url.clone()) };
    assert!(Remote::open(other).await.is_err(), "another certificate");
    let empty = Options { ca: Some(Vec::new()), token: None, ..Options::new(url) };
    assert_eq!(Remote::open(empty).await.err().map(|error| error.code()), Some("VALIDATION_ERROR"));
    drop(remote);
    stop.order();
    serving.await??;
    Ok(())
}
