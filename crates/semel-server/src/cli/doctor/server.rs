//! The server: whether it is there, knows us, is of our version, and has our time.

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use semel::clock::{Clock as _, SystemClock};
use serde::Deserialize;

use super::{Exit, Found};
use crate::cli::client::{Call, Client, Server};
use crate::cli::exit::Failure;

/// So far apart two clocks may be, in seconds: the header `Date` has whole ones, and the answer takes a while.
const APART: i64 = 2;

pub(super) async fn look(server: &Server) -> Vec<Found> {
    let client = match Client::new(server) {
        Ok(client) => client,
        Err(failure) => {
            let fix = "give one like http://127.0.0.1:7700 with --url or SEMEL_URL";
            return vec![Found::wrong("address", failure.exit, failure.to_string(), fix)];
        }
    };
    let mut found = Vec::new();
    match client.call(&Call::get(["", "healthz"])).await {
        Ok(answer) => {
            found.push(Found::fine("address", format!("{} answers", client.base())));
            found.extend(answer.date.as_deref().and_then(clocks));
        }
        Err(failure) => {
            let fix = "start a server with `semel dev`, or say where it is with --url or SEMEL_URL";
            found.push(Found::wrong("address", failure.exit, first_line(&failure), fix));
            return found;
        }
    }
    found.push(match client.call(&Call::get(["", "readyz"])).await {
        Ok(_) => Found::fine("ready", "it takes work"),
        Err(failure) => {
            let fix = "look at the server's log; its store may be gone, or it is stopping";
            Found::wrong("ready", failure.exit, first_line(&failure), fix)
        }
    });
    found.push(token(&client).await);
    found.push(version(&client).await);
    found
}

fn first_line(failure: &Failure) -> String {
    failure.to_string().lines().next().unwrap_or_default().to_owned()
}

async fn token(client: &Client) -> Found {
    match client.call(&Call::get(["workflow-runs"]).query("limit", Some(1))).await {
        Ok(_) => Found::fine("token", "it may read runs"),
        Err(failure) if failure.exit == Exit::Auth => {
            let fix = "give a token with --token or SEMEL_TOKEN; `semel token create` makes one";
            Found::wrong("token", Exit::Auth, first_line(&failure), fix)
        }
        Err(failure) => Found::wrong(
            "token",
            failure.exit,
            first_line(&failure),
            "is it a Semel server, of this version?",
        ),
    }
}

/// What is read of the description of all routes.
#[derive(Deserialize)]
struct Description {
    info: Info,
}

#[derive(Deserialize)]
struct Info {
    version: String,
}

async fn version(client: &Client) -> Found {
    let ours = env!("CARGO_PKG_VERSION");
    let theirs = match client.call(&Call::get(["openapi.json"])).await {
        Ok(answer) => answer.read::<Description>(),
        Err(failure) => Err(failure),
    };
    match theirs {
        Ok(Description { info }) if info.version == ours => {
            Found::fine("version", format!("{ours}, as this command"))
        }
        Ok(Description { info }) => {
            let what = format!("the server has {}, this command {ours}", info.version);
            Found::look("version", what, "use the same version on both sides")
        }
        Err(failure) => {
            Found::look("version", first_line(&failure), "is it a Semel server, of this version?")
        }
    }
}

/// The server's clock against ours, if it says its time.
fn clocks(date: &str) -> Option<Found> {
    let theirs = DateTimeParser::new().parse_timestamp(date).ok()?;
    let ours = Timestamp::from_millisecond(SystemClock::new().now().0).ok()?;
    let apart = ours.as_second() - theirs.as_second();
    Some(if apart.abs() <= APART {
        Found::fine("clocks", "the server's time is this machine's")
    } else {
        let fix = "set both clocks by NTP; times that this command shows as `ago` are off";
        Found::look("clocks", format!("the server's clock is {} s off", -apart), fix)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_are_apart_are_noticed() {
        assert_eq!(clocks("Tue, 14 Nov 2023 22:13:20 GMT").unwrap().state.word(), "look");
        let now = Timestamp::from_millisecond(SystemClock::new().now().0).unwrap();
        let now = now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        assert_eq!(clocks(&now).unwrap().state.word(), "ok");
        assert!(clocks("now").is_none());
    }
}
