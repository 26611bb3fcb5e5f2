//! Checks of the server: reachable, token accepted, same version, same time.

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use semel::clock::{Clock as _, SystemClock};
use serde::Deserialize;

use super::{Exit, Found};
use crate::cli::client::{ApiCall, Client, ServerArgs};
use crate::cli::exit::Failure;

/// Accepted difference between the two clocks, in seconds: the header `Date` has whole seconds, and the answer takes
/// time.
const APART: i64 = 2;

pub(super) async fn look(server: &ServerArgs) -> Vec<Found> {
    let client = match Client::new(server) {
        Ok(client) => client,
        Err(failure) => {
            let fix = "give one like http://127.0.0.1:7700 with --url or SEMEL_URL";
            return vec![Found::wrong("address", failure.exit, failure.to_string(), fix)];
        }
    };
    let mut found = Vec::new();
    match client.call(&ApiCall::get(["", "healthz"])).await {
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
    found.push(match client.call(&ApiCall::get(["", "readyz"])).await {
        Ok(_) => Found::fine("ready", "it takes work"),
        Err(failure) => {
            let fix = "see the log of the server; its store may be unavailable, or it is stopping";
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
    match client.call(&ApiCall::get(["workflow-runs"]).query("limit", Some(1))).await {
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

/// The part of the OpenAPI document that is read.
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
    let theirs = match client.call(&ApiCall::get(["openapi.json"])).await {
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

/// Compares the server's clock with ours, if the answer has a `Date` header.
fn clocks(date: &str) -> Option<Found> {
    let theirs = DateTimeParser::new().parse_timestamp(date).ok()?;
    let ours = Timestamp::from_millisecond(SystemClock::new().now().0).ok()?;
    let apart = ours.as_second() - theirs.as_second();
    Some(if apart.abs() <= APART {
        Found::fine("clocks", "the clocks of server and machine agree")
    } else {
        let fix = "set both clocks by NTP; the ages that this command shows are wrong";
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
