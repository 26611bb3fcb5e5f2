//! TLS to PostgreSQL: a server of its own is given certificates, and is asked in every mode.

use std::path::Path;

use libtest_mimic::{Failed, Trial};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use semel::store::Store as _;
use semel::store::postgres::{PostgresOptions, PostgresStore};
use tokio_postgres::{Client, NoTls};

use crate::processes::on_its_own_server;
use crate::sqlite::start;

type Test = Result<(), Failed>;

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test("postgres::connections_are_encrypted_as_sslmode_says", || {
        on_its_own_server("encrypted")
    })]
}

/// Who may connect to the server once it encrypts: over TCP, clients that encrypt only.
const ACCESS: &str = "local all all trust\nhostssl all bound all scram-sha-256\nhostssl all all all trust\n";

/// Plays the test on the server that was started for it.
pub(crate) async fn talk() -> Test {
    let plain = ServerAccess::new("127.0.0.1", "")?;
    plain.with("sslmode=prefer").opens().await?;
    plain.with("sslmode=require").refused("the server does not encrypt: switch TLS on there").await?;

    let folder = tempfile::tempdir()?;
    let (ours, theirs) = (folder.path().join("ca.pem"), folder.path().join("other.pem"));
    let authority = authority(&ours)?;
    self::authority(&theirs)?;
    encrypt(&authority).await?;

    let (named, unnamed) = (ServerAccess::new("localhost", "")?, ServerAccess::new("127.0.0.1", "")?);
    let (ours, theirs) = (ours.display(), theirs.display());
    let full = named.with(&format!("sslmode=verify-full&sslrootcert={ours}"));
    full.opens().await?;
    full.encrypts_all().await?;
    let wrong = named.with(&format!("sslmode=verify-full&sslrootcert={theirs}"));
    wrong.refused("is not signed by an authority in").await?;
    let other_host = unnamed.with(&format!("sslmode=verify-full&sslrootcert={ours}"));
    other_host.refused("is for another name than the host in the URL").await?;
    unnamed.with(&format!("sslmode=verify-ca&sslrootcert={ours}")).opens().await?;
    unnamed.with(&format!("sslmode=verify-ca&sslrootcert={theirs}")).refused("set `sslrootcert`").await?;
    unnamed.with("sslmode=require").opens().await?;
    unnamed.with(&format!("sslmode=require&sslrootcert={theirs}")).refused("set `sslrootcert`").await?;
    unnamed.opens().await?;
    unnamed.with("sslmode=disable").refused("if the server takes encrypted connections only").await?;
    let missing = folder.path().join("none.pem");
    let missing = named.with(&format!("sslmode=verify-full&sslrootcert={}", missing.display()));
    missing.refused("give a PEM file").await?;
    let bound = ServerAccess::new("localhost", "bound:secret@")?;
    bound.with(&format!("sslmode=verify-full&sslrootcert={ours}&channel_binding=require")).opens().await
}

/// A way to ask the server.
struct ServerAccess(String);

impl ServerAccess {
    /// As the user whose name and password come before the host; the administrator if there is none.
    fn new(host: &str, user: &str) -> Result<Self, Failed> {
        let url = std::env::var("SEMEL_TEST_POSTGRES")?;
        let (_, place) = url.split_once("@127.0.0.1").ok_or("a server of its own listens there")?;
        let user = if user.is_empty() { "postgres@" } else { user };
        Ok(Self(format!("postgres://{user}{host}{place}")))
    }

    fn with(&self, parameters: &str) -> Self {
        Self(format!("{}?{parameters}", self.0))
    }

    async fn store(&self) -> semel::error::Result<PostgresStore> {
        PostgresStore::open(PostgresOptions::new(self.0.clone())).await
    }

    async fn opens(&self) -> Test {
        let store = self.store().await.map_err(|error| format!("{}: {error}", self.0))?;
        start(&store, "key", None).await?;
        Ok(store.close().await?)
    }

    async fn refused(&self, hint: &str) -> Test {
        let error = self.store().await.err().ok_or_else(|| format!("{} opens", self.0))?.to_string();
        assert!(error.contains(hint), "{}: {error}", self.0);
        Ok(())
    }

    /// The pool, the queues and the connection that listens.
    async fn encrypts_all(&self) -> Test {
        let store = self.store().await?;
        start(&store, "key", None).await?;
        let connections = "SELECT count(*), count(*) FILTER (WHERE s.ssl), count(*) FILTER (WHERE a.query LIKE 'LISTEN %') \
             FROM pg_stat_activity a JOIN pg_stat_ssl s USING (pid) WHERE a.application_name = 'semel'";
        let row = administrator().await?.query_one(connections, &[]).await?;
        let (all, encrypted, listening): (i64, i64, i64) =
            (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        assert!(all > 1 && all == encrypted && listening == 1, "{encrypted} of {all}, {listening} listen");
        Ok(store.close().await?)
    }
}

/// Makes an authority, and writes its certificate.
fn authority(file: &Path) -> Result<Issuer<'static, KeyPair>, Failed> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate()?;
    std::fs::write(file, params.self_signed(&key)?.pem())?;
    Ok(Issuer::new(params, key))
}

/// A connection over the local socket, which is never encrypted.
async fn administrator() -> Result<Client, Failed> {
    let (client, connection) =
        tokio_postgres::connect(&std::env::var("SEMEL_TEST_POSTGRES_SOCKET")?, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Gives the server a certificate for `localhost`, and refuses clients over TCP that do not encrypt. The server writes the
/// files itself: they have to be its user's.
async fn encrypt(authority: &Issuer<'_, KeyPair>) -> Test {
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec!["localhost".to_owned()])?.signed_by(&key, authority)?;
    let client = administrator().await?;
    for (file, text) in [
        ("server.crt", certificate.pem()),
        ("server.key", key.serialize_pem()),
        ("pg_hba.conf", ACCESS.to_owned()),
    ] {
        let write = format!(
            "COPY (SELECT unnest(string_to_array('{}', chr(10)))) TO PROGRAM 'umask 077; cat > {file}'",
            text.replace("\r\n", "\n")
        );
        client.batch_execute(&write).await?;
    }
    client.batch_execute("CREATE ROLE bound LOGIN SUPERUSER PASSWORD 'secret'").await?;
    client.batch_execute("ALTER SYSTEM SET ssl = on").await?;
    drop(client);
    let ctl = std::env::var("SEMEL_TEST_POSTGRES_CTL")?;
    for action in ["stop", "start"] {
        assert!(tokio::process::Command::new(&ctl).arg(action).status().await?.success(), "{action}");
    }
    Ok(())
}
