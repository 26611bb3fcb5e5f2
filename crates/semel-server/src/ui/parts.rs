//! Small parts of pages: icons, times, states, values.

use std::fmt;

use askama::filters::HtmlSafe;
use semel::rules::attention::Attention;
use semel::rules::status::Status;

use super::assets;
use super::words::took;
use crate::api::RunView;
use crate::http::escaped;

/// How much of a value is in a page, in bytes. The rest is loaded when it is asked for.
const SHOWN: usize = 64 * 1024;

/// A text that is markup already. It is made here only, of escaped texts.
#[derive(Clone, Debug, Default)]
pub(super) struct Markup(String);

impl Markup {
    /// Markup that a module has made of fixed texts and of escaped ones.
    pub(super) fn made(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for Markup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl HtmlSafe for Markup {}

/// An icon of the set.
pub(super) fn icon(name: &str) -> Markup {
    Markup(format!(
        r#"<svg class="i" aria-hidden="true"><use href="{}#{name}"/></svg>"#,
        assets::address("icons.svg")
    ))
}

/// A point in time: the script shows it in the reader's zone.
pub(super) fn when(at: &str) -> Markup {
    let at = escaped(at);
    let plain = at.replace('T', " ").replace('Z', "");
    Markup(format!(r#"<time datetime="{at}" title="{plain} UTC">{plain}</time>"#))
}

/// The age of a point in time, which ticks.
pub(super) fn age(at: &str, now: i64) -> Markup {
    let words = super::words::millis(at).map(|at| took(now.saturating_sub(at))).unwrap_or_default();
    Markup(format!(r#"<time data-age datetime="{}">{words}</time>"#, escaped(at)))
}

/// Class, icon and word of a state.
struct StateMark(&'static str, &'static str, &'static str);

fn state(run: &RunView) -> StateMark {
    match run.status {
        Status::Pending => StateMark("pending", "pending", "Pending"),
        Status::Running => StateMark("running", "running", "Running"),
        Status::Waiting => StateMark("waiting", "waiting", "Waiting"),
        Status::Paused if in_doubt(run) => StateMark("doubt", "doubt", "In doubt"),
        Status::Paused => StateMark("paused", "paused", "Paused"),
        Status::Completed => StateMark("completed", "completed", "Completed"),
        Status::Failed => StateMark("failed", "failed", "Failed"),
        Status::Cancelled => StateMark("cancelled", "cancelled", "Cancelled"),
        Status::TimedOut => StateMark("timedout", "timedout", "Timed out"),
    }
}

/// Whether a run is paused because of a step in doubt.
pub(super) fn in_doubt(run: &RunView) -> bool {
    run.paused_for == Some(Attention::InDoubt)
}

/// The state of a run: shape, word and colour.
pub(super) fn mark(run: &RunView) -> Markup {
    marked(&state(run), "")
}

/// The same on a ground of its colour.
pub(super) fn pill(run: &RunView) -> Markup {
    marked(&state(run), " pill")
}

fn marked(StateMark(class, name, word): &StateMark, more: &str) -> Markup {
    Markup(format!(r#"<span class="st {class}{more}">{}{word}</span>"#, icon(name)))
}

/// A JSON value as its text, for the viewer; a long one is only referred to.
pub(super) struct Shown {
    /// The text, or its beginning.
    pub(super) text: String,
    /// Size of the whole in words.
    pub(super) size: String,
    /// Whether `text` is not the whole.
    pub(super) cut: bool,
}

/// A value for a page.
pub(super) fn shown(text: &str) -> Shown {
    let cut = text.len() > SHOWN;
    let end = (0..=SHOWN.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    Shown { text: text[..end].to_owned(), size: super::words::bytes(text.len()), cut }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_shown_from_its_text() {
        let whole = shown(r#"{"a": 9007199254740993}"#);
        assert!(whole.text.contains("9007199254740993") && !whole.cut);
        let long = shown(&"é".repeat(SHOWN));
        assert!(long.cut && long.text.len() <= SHOWN && long.size == "128 KB");
    }

    #[test]
    fn times_are_no_markup() {
        assert!(!when("\"><script>").to_string().contains("<script>"));
        assert!(age("2026-01-01T00:00:00.000Z", 1_767_225_607_000).to_string().contains(">7 s<"));
    }
}
