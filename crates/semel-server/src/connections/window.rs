//! How long another system remembers a key: a finite time is part of the class of a step.

use std::fmt;
use std::time::Duration;

use toml::Value;

use super::members::Members;

/// How long the other side remembers a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window(Option<Duration>);

impl Window {
    /// A window of this length.
    pub fn of(length: Duration) -> Self {
        Self(Some(length))
    }

    /// Reads the member `window`: a duration, or `for-ever`. `question` says what is asked if it is missing.
    pub(super) fn read(members: &mut Members<'_>, question: &str) -> Option<Self> {
        match members.get("window") {
            None => {
                members.refuse("window", format!("it is missing; {question} Give `24h`, or `for-ever`"));
                None
            }
            Some(Value::String(text)) if text == "for-ever" => Some(Self(None)),
            Some(_) => members.duration("window").map(Self::of),
        }
    }

    /// Its length; none if it never ends.
    pub fn length(self) -> Option<Duration> {
        self.0
    }

    /// Time after the first try at which the key is no longer sent: before the window ends, as clocks differ and requests take time.
    pub fn last_send(self) -> Option<Duration> {
        self.0.map(semel::profiles::last_send)
    }

    /// Class of a step that writes, for lists.
    pub fn class(self) -> &'static str {
        match self.0 {
            None => "keyed",
            Some(_) => "keyed-in-window",
        }
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(window) = self.0 else { return f.write_str("for ever") };
        let seconds = window.as_secs();
        match (seconds.is_multiple_of(3600), seconds.is_multiple_of(60)) {
            _ if seconds == 0 => write!(f, "{}ms", window.as_millis()),
            (true, _) => write!(f, "{}h", seconds / 3600),
            (_, true) => write!(f, "{}m", seconds / 60),
            _ => write!(f, "{seconds}s"),
        }
    }
}
