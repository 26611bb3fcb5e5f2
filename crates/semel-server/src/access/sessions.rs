//! Sessions of people at the console. A person signs in with API keys, one for each workspace, and a name for the ledgers. The
//! browser keeps a random secret; the store keeps its hash, and never the token of an API key.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, header};
use semel::clock::Time;
use semel::id::ApiKeyId;
use semel::store::Store;
use serde::{Deserialize, Serialize};

use super::token::{self, Hash};
use super::{Access, Caller, hex};
use crate::app::App;
use crate::http::Problem;
use crate::records::{self, RecordKind, Versioned};

/// Name of the cookie. With this prefix a browser keeps it for this host and for HTTPS only.
const COOKIE: &str = "__Host-semel";
/// How long a session is valid after its last use.
const IDLE: Duration = Duration::from_hours(12);
/// How long a session is valid after it began.
const LONGEST: Duration = Duration::from_hours(7 * 24);
/// How old the recorded last use is at most, so that a page costs no write.
const NOTED: Duration = Duration::from_mins(5);
/// The secret of the cookie has 256 bits.
const SECRET_BYTES: usize = 32;
/// Maximum number of workspaces of a session.
const MOST: usize = 20;
/// Maximum length of a person's name, in characters.
const LONGEST_NAME: usize = 100;

/// A session; its id among records is the hash of its secret.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UserSession {
    /// Name of the person, as ledgers show it.
    pub(crate) name: String,
    /// One API key for each workspace, the last one that signed in first.
    pub(crate) memberships: Vec<Membership>,
    pub(crate) created_at: Time,
    /// Time of the last use, as far as it was written.
    pub(crate) seen_at: Time,
}

/// The API key by which a session may enter a workspace.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Membership {
    pub(crate) key: ApiKeyId,
    /// Name of the workspace.
    pub(crate) workspace: String,
}

impl RecordKind for UserSession {
    const KIND: &'static str = "session";
}

impl UserSession {
    /// The time from which it is refused, unless it is used before.
    pub(crate) fn expires_at(&self) -> Time {
        self.created_at.after(LONGEST).min(self.seen_at.after(IDLE))
    }

    fn lasts(&self, now: Time) -> Duration {
        let left = self.expires_at().0.saturating_sub(now.0);
        Duration::from_millis(left.max(0).unsigned_abs())
    }
}

/// The session of a request, if its cookie is that of a valid one.
pub(crate) async fn find(app: &App, headers: &HeaderMap) -> Result<Option<UserSession>, Problem> {
    let Some(id) = id_of(headers) else { return Ok(None) };
    let now = app.clock.now();
    let Some(found) = records::find::<UserSession>(&*app.store, &id).await? else {
        app.access.admit_unknown(now)?;
        return Ok(None);
    };
    if found.body.expires_at() <= now {
        return Ok(None);
    }
    if found.body.seen_at.after(NOTED) <= now {
        return note_use(&*app.store, found, now).await.map(Some);
    }
    Ok(Some(found.body))
}

/// Writes down that a session is in use, so that it does not end.
async fn note_use(
    store: &dyn Store,
    found: Versioned<UserSession>,
    now: Time,
) -> Result<UserSession, Problem> {
    let seen = UserSession { seen_at: now, ..found.body };
    match records::keep(store, &found.id, &seen, found.version, Some(seen.lasts(now))).await {
        // Another request has written the same.
        Ok(_) | Err(semel::Error::RecordChanged { .. }) => Ok(seen),
        Err(error) => Err(error.into()),
    }
}

/// Begins a session with an API key, or adds its workspace to the one of the request. The secret is always a new one.
pub(crate) async fn open(
    app: &App,
    headers: &HeaderMap,
    (key, name): (&str, &str),
) -> Result<(UserSession, HeaderValue), Problem> {
    let Access::Keys(keys) = &app.access else {
        return Err(Problem::validation(
            "this server has no login: every caller on this machine may do everything",
        ));
    };
    let name = checked(name)?;
    let now = app.clock.now();
    let (id, workspace) = keys.sign_in(&*app.store, key, now).await?;
    let before = find(app, headers).await?;
    let others = before.map(|session| session.memberships).unwrap_or_default();
    let mut memberships = vec![Membership { key: id, workspace: workspace.clone() }];
    memberships.extend(others.into_iter().filter(|other| other.workspace != workspace));
    memberships.truncate(MOST);
    let session = UserSession { name, memberships, created_at: now, seen_at: now };
    let mut secret = [0; SECRET_BYTES];
    token::fill(&mut secret)?;
    let secret = hex(&secret);
    let hash = Hash::of(&secret).text();
    records::keep(&*app.store, &hash, &session, 0, Some(session.lasts(now))).await?;
    end(app, headers).await?;
    Ok((session, cookie(&secret, LONGEST)))
}

/// Ends the session of a request. Gives the cookie that makes the browser forget it.
pub(crate) async fn close(app: &App, headers: &HeaderMap) -> Result<HeaderValue, Problem> {
    end(app, headers).await?;
    Ok(cookie("", Duration::ZERO))
}

async fn end(app: &App, headers: &HeaderMap) -> Result<(), Problem> {
    let Some(id) = id_of(headers) else { return Ok(()) };
    let Some(found) = records::find::<UserSession>(&*app.store, &id).await? else { return Ok(()) };
    match records::keep(&*app.store, &id, &found.body, found.version, Some(Duration::ZERO)).await {
        Ok(_) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The person of a session as a caller in one of its workspaces. Refused as an unknown key is, if the API key of that
/// workspace was revoked or has expired.
pub(crate) async fn caller(
    app: &App,
    session: &UserSession,
    workspace: &str,
) -> Result<Option<Caller>, Problem> {
    let Access::Keys(keys) = &app.access else { return Ok(None) };
    let Some(member) = session.memberships.iter().find(|member| member.workspace == workspace) else {
        return Ok(None);
    };
    let caller = keys.member(&*app.store, member.key, app.clock.now()).await?;
    Ok(caller.map(|caller| caller.of_person(&session.name)))
}

fn checked(name: &str) -> Result<String, Problem> {
    let name = name.trim();
    if name.is_empty() || name.chars().count() > LONGEST_NAME || name.chars().any(char::is_control) {
        return Err(Problem::validation(format!(
            "`name` has 1 to {LONGEST_NAME} characters, none of them a control: it is shown in ledgers"
        )));
    }
    Ok(name.to_owned())
}

fn cookie(secret: &str, lasts: Duration) -> HeaderValue {
    let text =
        format!("{COOKIE}={secret}; Path=/; Max-Age={}; Secure; HttpOnly; SameSite=Strict", lasts.as_secs());
    HeaderValue::from_str(&text).expect("a secret is hexadecimal digits")
}

/// The id of the record that the cookie of these headers leads to.
fn id_of(headers: &HeaderMap) -> Option<String> {
    let all = headers.get_all(header::COOKIE);
    let mut pairs = all.iter().filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(';'));
    let secret = pairs.find_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('='))?;
    (secret.len() == 2 * SECRET_BYTES).then(|| Hash::of(secret).text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_found_among_others() {
        let secret = "a".repeat(64);
        let id = |text: String| {
            id_of(&HeaderMap::from_iter([(header::COOKIE, HeaderValue::from_str(&text).unwrap())]))
        };
        assert_eq!(id(format!("x=1; {COOKIE}={secret}; y=2")), Some(Hash::of(&secret).text()));
        for other in [format!("{COOKIE}=short"), format!("{COOKIE}x={secret}"), format!("x={secret}")] {
            assert_eq!(id(other), None);
        }
    }

    #[test]
    fn a_session_ends_after_half_a_day_without_use_and_after_a_week_in_any_case() {
        let hours = |count: i64| Time(count * 3_600_000);
        let session = |seen: i64| UserSession {
            name: "Ada".to_owned(),
            memberships: Vec::new(),
            created_at: Time(0),
            seen_at: hours(seen),
        };
        assert_eq!(session(0).expires_at(), hours(12));
        assert_eq!(session(100).expires_at(), hours(112));
        assert_eq!(session(167).expires_at(), hours(168));
    }
}
