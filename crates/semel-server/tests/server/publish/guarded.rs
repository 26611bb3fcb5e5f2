//! Brokers that want credentials. Each test has one of its own.

use std::process::{Child, Command, Stdio};

use async_nats::ConnectOptions;
use async_nats::jetstream::{self, stream::Config as StreamConfig};
use semel::Engine;
use semel::rules::entry::Outcome;
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpStream;

use super::place::{connections, outside};
use super::{TESTED, program};

/// A broker that wants these credentials, and the member of its connection that gives them.
struct GuardedBroker {
    kind: &'static str,
    /// Arguments of its program.
    wants: [&'static str; 4],
    /// Members of the connection before the secret.
    user: &'static str,
    /// Member that has the secret.
    secret: &'static str,
}

const BROKERS: [GuardedBroker; 3] = [
    GuardedBroker {
        kind: "nats",
        wants: ["--user", "shop", "--pass", PASSWORD],
        user: "user = 'shop'",
        secret: "password",
    },
    GuardedBroker {
        kind: "nats",
        wants: ["--auth", PASSWORD, "--name", "guarded"],
        user: "",
        secret: "token",
    },
    GuardedBroker {
        kind: "redis",
        wants: ["--requirepass", PASSWORD, "--appendonly", "yes"],
        user: "window = '24h'",
        secret: "password",
    },
];
const PASSWORD: &str = "open-sesame";

/// A process that ends with this value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended by itself, or is not needed any more.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl GuardedBroker {
    async fn start(&self, folder: &TempDir, port: u16) -> Running {
        let (port, folder) = (port.to_string(), folder.path());
        let mut command = match self.kind {
            "nats" => {
                let mut command = Command::new("nats-server");
                command
                    .args(["--addr", "127.0.0.1", "--port", &port, "--jetstream", "--store_dir"])
                    .arg(folder);
                command
            }
            _ => {
                let mut command = Command::new("redis-server");
                command.args(["--bind", "127.0.0.1", "--port", &port, "--dir"]).arg(folder);
                command
            }
        };
        let child = command.args(self.wants).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let running = Running(child.expect("the scripts have installed it"));
        while TcpStream::connect(format!("127.0.0.1:{port}")).await.is_err() {
            tokio::task::yield_now().await;
        }
        running
    }

    /// Makes the stream that the step publishes to; one of Redis is made by its first message.
    async fn make_stream(&self, port: u16) {
        if self.kind == "redis" {
            return;
        }
        let options = match self.secret {
            "token" => ConnectOptions::with_token(PASSWORD.to_owned()),
            _ => ConnectOptions::with_user_and_password("shop".to_owned(), PASSWORD.to_owned()),
        };
        let client =
            options.connect(format!("nats://127.0.0.1:{port}")).await.expect("the credentials are right");
        let subjects = vec!["guarded.>".to_owned()];
        let config = StreamConfig { name: "guarded".to_owned(), subjects, ..StreamConfig::default() };
        jetstream::new(client).create_stream(config).await.expect("a stream can be made");
    }
}

/// With the right credentials a check is fine and a message arrives; with wrong ones neither, and the secret is not told.
pub(super) fn credentials_are_needed() {
    for broker in BROKERS {
        let folder = TempDir::new().unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let secret = folder.path().join("secret");
        outside(async {
            let _running = broker.start(&folder, port).await;
            broker.make_stream(port).await;
            for (given, is_right) in [(PASSWORD, true), ("open-barley", false)] {
                std::fs::write(&secret, given).unwrap();
                let GuardedBroker { kind, user, secret: member, .. } = &broker;
                let config = format!(
                    "[connections.events]\nkind = '{kind}'\nurl = '{kind}://127.0.0.1:{port}'\ntimeout = '5s'\n{user}\n\
                     {member} = {{ file = '{}' }}\n",
                    secret.display()
                );
                let known = connections(&config);
                let checked = known.all().next().unwrap().clone().look(&known, false).await;
                assert_eq!(checked.is_fine, is_right, "{kind} {member}: {checked:?}");
                assert!(!checked.found.contains(given), "the secret is told: {checked:?}");
                let place = if *kind == "nats" { "subject: guarded.orders" } else { "stream: guarded" };
                let steps = format!(
                    "  - {{name: one, retry: {{attempts: 1}}, publish: {{on: events, {place}, data: 7}}}}\n"
                );
                let engine = Engine::builder()
                    .store("memory:")
                    .state(known)
                    .programs(program(&steps))
                    .open()
                    .await
                    .unwrap();
                let outcome = engine.start(TESTED, json!({})).await.unwrap().outcome().await.unwrap();
                assert_eq!(
                    matches!(outcome, Outcome::Completed(_)),
                    is_right,
                    "{kind} {member}: {outcome:?}"
                );
                assert!(!format!("{outcome:?}").contains(given), "the secret is told: {outcome:?}");
            }
        });
    }
}
