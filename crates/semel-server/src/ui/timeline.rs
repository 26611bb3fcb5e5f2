//! The timeline of a run: a scale on which rests are short, and a bar for everything that the run did. Positions are attributes of
//! the drawing, in per cent; no style is in a page.

use std::fmt::Write as _;

use semel::rules::entry::Class;

use super::assets;
use super::parts::Markup;
use super::words::{millis, took};
use crate::api::{ClaimSpan, DuplicatesView, SpanKind, SpanList, SpanStatus, SpanView};
use crate::http::escaped;

/// Width of a collapsed rest, in per cent.
const REST: f64 = 8.0;
/// Maximum number of rests that are collapsed, the longest ones.
const RESTS: usize = 6;
/// Width of the shortest bar, in per cent.
const THIN: f64 = 0.35;
/// Maximum number of claims that are drawn, the last ones.
const CLAIMS: usize = 60;

/// Times and their places.
pub(super) struct Scale {
    /// Milliseconds since 1970, and per cent, both rising.
    points: Vec<(i64, f64)>,
    rests: Vec<(i64, i64)>,
}

/// A number of milliseconds for a place on the screen.
#[expect(clippy::cast_precision_loss, reason = "a place needs four digits")]
fn approx(ms: i64) -> f64 {
    ms as f64
}

impl Scale {
    /// A scale between two times, on which the longest rests are short.
    pub(super) fn new((from, to): (i64, i64), mut rests: Vec<(i64, i64)>) -> Self {
        let to = to.max(from + 1);
        rests.retain(|(begin, end)| *begin >= from && *end <= to && (end - begin) * 10 > to - from);
        rests.sort_by_key(|(begin, end)| begin - end);
        rests.truncate(RESTS);
        rests.sort_unstable();
        let resting: i64 = rests.iter().map(|(begin, end)| end - begin).sum();
        let busy = (to - from - resting).max(1);
        let room = 100.0 - REST * approx(rests.len() as i64);
        let mut points = vec![(from, 0.0)];
        let (mut at, mut x) = (from, 0.0);
        for (begin, end) in &rests {
            x += approx(begin - at) / approx(busy) * room;
            points.push((*begin, x));
            x += REST;
            points.push((*end, x));
            at = *end;
        }
        points.push((to, 100.0));
        Self { points, rests }
    }

    /// The place of a time.
    pub(super) fn x(&self, at: i64) -> f64 {
        let after = self.points.partition_point(|(time, _)| *time <= at);
        match (after.checked_sub(1).map(|before| self.points[before]), self.points.get(after)) {
            (None, _) => 0.0,
            (Some((_, x)), None) => x.min(100.0),
            (Some((time, x)), Some((next, to))) => x + approx(at - time) / approx(next - time) * (to - x),
        }
    }

    /// As the script reads it: `milliseconds,per cent;…`.
    pub(super) fn text(&self) -> String {
        let points: Vec<_> = self.points.iter().map(|(at, x)| format!("{at},{x:.3}")).collect();
        points.join(";")
    }

    /// Marks and words of the axis.
    fn axis(&self, ends: &str) -> Markup {
        let mut out =
            String::from(r#"<svg class="row ax" aria-hidden="true"><text x="0.6%" y="17">0 s</text>"#);
        for (begin, end) in &self.rests {
            let (x, words) = (f64::midpoint(self.x(*begin), self.x(*end)), took(end - begin));
            put(
                &mut out,
                format_args!(r#"<text x="{x:.2}%" y="17" text-anchor="middle">{words} idle</text>"#),
            );
        }
        put(&mut out, format_args!(r#"<text x="99.4%" y="17" text-anchor="end">{ends}</text></svg>"#));
        Markup::made(out)
    }
}

/// Adds to a drawing.
fn put(out: &mut String, part: std::fmt::Arguments<'_>) {
    out.write_fmt(part).expect("a text takes everything");
}

/// A row of the timeline.
pub(super) struct SpanRow {
    pub(super) place: usize,
    pub(super) name: String,
    pub(super) icon: Markup,
    /// Address of the page with this step beside the timeline.
    pub(super) to: String,
    pub(super) selected: bool,
    pub(super) nested: bool,
    pub(super) bar: Markup,
    /// The state in a word, for readers who do not see the bar.
    pub(super) state: &'static str,
    pub(super) took: String,
}

/// The timeline of a run.
pub(super) struct Timeline {
    pub(super) axis: Markup,
    pub(super) scale: String,
    pub(super) drivers: Markup,
    pub(super) claims: String,
    pub(super) duplicates: Markup,
    pub(super) calls: String,
    pub(super) rows: Vec<SpanRow>,
    pub(super) total: usize,
    /// Whether there are more spans than rows.
    pub(super) more: bool,
}

/// What a timeline is drawn of.
pub(super) struct RunDrawing<'a> {
    pub(super) list: &'a SpanList,
    pub(super) duplicates: &'a [DuplicatesView],
    /// Creation of the run.
    pub(super) from: i64,
    /// End of the run, or now.
    pub(super) to: i64,
    pub(super) ended: bool,
    /// Whether rests are drawn at their length.
    pub(super) exact: bool,
    /// Address of the page, to which a step is added.
    pub(super) page: String,
    pub(super) selected: Option<(&'a str, u32)>,
}

impl RunDrawing<'_> {
    /// The timeline.
    pub(super) fn draw(&self) -> Timeline {
        let scale = self.scale();
        let back = self.background(&scale);
        let list = self.list;
        let calls: u64 = self.duplicates.iter().map(|kind| kind.count).sum();
        Timeline {
            axis: scale.axis(if self.ended { "end" } else { "now" }),
            scale: scale.text(),
            drivers: self.drivers(&scale, &back),
            claims: super::words::count(list.claims.len() as u64, "claim", "claims"),
            duplicates: self.calls(&scale, &back),
            calls: super::words::count(calls, "call", "calls"),
            rows: list.spans.iter().map(|span| self.row(span, &scale, &back)).collect(),
            total: list.totals.all,
            more: list.next.is_some(),
        }
    }

    fn scale(&self) -> Scale {
        let pair = |from: &str, to: &str| Some((millis(from)?, millis(to)?));
        let mut rests: Vec<_> = self.list.idle.iter().filter_map(|idle| pair(&idle.from, &idle.to)).collect();
        let let_go = self.list.claims.last().and_then(|claim| millis(claim.ended_at.as_deref()?));
        if let (false, Some(since)) = (self.ended, let_go) {
            rests.push((since, self.to));
        }
        Scale::new((self.from, self.to), if self.exact { Vec::new() } else { rests })
    }

    /// What is behind every row: rests, and the lines of takeovers.
    fn background(&self, scale: &Scale) -> String {
        let mut out = String::new();
        for (begin, end) in &scale.rests {
            let (x, to) = (scale.x(*begin), scale.x(*end));
            put(
                &mut out,
                format_args!(
                    r#"<rect x="{x:.2}%" y="0" width="{:.2}%" height="30" class="hatch-gap"/>"#,
                    to - x
                ),
            );
        }
        for (_, claim) in self.takeovers() {
            let x = scale.x(millis(&claim.started_at).unwrap_or(self.from));
            put(&mut out, format_args!(r#"<line x1="{x:.2}%" x2="{x:.2}%" y1="0" y2="30" class="take"/>"#));
        }
        out
    }

    /// Claims that have taken the run from another node.
    fn takeovers(&self) -> impl Iterator<Item = (&ClaimSpan, &ClaimSpan)> {
        let claims = &self.list.claims[self.list.claims.len().saturating_sub(CLAIMS)..];
        claims.windows(2).filter(|pair| pair[0].lost).map(|pair| (&pair[0], &pair[1]))
    }

    fn drivers(&self, scale: &Scale, back: &str) -> Markup {
        let mut out = format!(r#"<svg class="row" aria-hidden="true">{back}"#);
        let claims = &self.list.claims[self.list.claims.len().saturating_sub(CLAIMS)..];
        for claim in claims {
            let from = millis(&claim.started_at).unwrap_or(self.from);
            let to = claim.ended_at.as_deref().and_then(millis).unwrap_or(self.to);
            let class = if claim.lost { "ghost" } else { "f-run" };
            rect(&mut out, (scale.x(from), scale.x(to)), class);
        }
        for (_, claim) in self.takeovers() {
            let x = scale.x(millis(&claim.started_at).unwrap_or(self.from));
            put(
                &mut out,
                format_args!(
                    r#"<svg x="{x:.2}%" overflow="visible"><rect x="-14" y="-6" width="28" height="14" rx="4" class="fchip"/><text x="0" y="4.5" text-anchor="middle" class="ft">{}</text></svg>"#,
                    claim.fence
                ),
            );
        }
        out.push_str("</svg>");
        Markup::made(out)
    }

    fn calls(&self, scale: &Scale, back: &str) -> Markup {
        let mut out = format!(r#"<svg class="row" aria-hidden="true">{back}"#);
        for one in self.duplicates.iter().flat_map(|kind| &kind.recent) {
            let x = scale.x(millis(&one.at).unwrap_or(self.from));
            put(
                &mut out,
                format_args!(
                    r#"<svg x="{x:.2}%" overflow="visible"><svg x="-8" y="7" width="16" height="16" class="i dup"><use href="{}#dup"/></svg></svg>"#,
                    assets::address("icons.svg")
                ),
            );
        }
        out.push_str("</svg>");
        Markup::made(out)
    }

    fn row(&self, span: &SpanView, scale: &Scale, back: &str) -> SpanRow {
        let place = |at: &str| scale.x(millis(at).unwrap_or(self.from));
        let end = span.ended_at.as_deref().map_or(100.0, place);
        let mut bar = format!(r#"<svg class="row" aria-hidden="true">{back}"#);
        match span.attempts.as_slice() {
            [] => rect(&mut bar, (place(&span.started_at), end), class_of(span)),
            attempts => {
                let mut before: Option<f64> = None;
                for attempt in attempts {
                    let from = place(&attempt.started_at);
                    let to = attempt.ended_at.as_deref().map_or(100.0, place);
                    if let Some(before) = before {
                        put(
                            &mut bar,
                            format_args!(
                                r#"<line x1="{before:.2}%" x2="{from:.2}%" y1="15" y2="15" class="wl"/>"#
                            ),
                        );
                    }
                    let class = match (attempt.lost, &attempt.error) {
                        (true, _) => "ghost",
                        (_, Some(_)) => "f-bad",
                        _ => class_of(span),
                    };
                    rect(&mut bar, (from, to), class);
                    before = Some(to);
                }
            }
        }
        bar.push_str("</svg>");
        let mark = if self.page.contains('?') { '&' } else { '?' };
        let to = format!("{}{mark}step={}&tick={}", self.page, super::query::encoded(&span.path), span.tick);
        SpanRow {
            place: span.place,
            name: name_of(span),
            icon: super::icon(icon_of(span)),
            to,
            selected: self.selected == Some((span.path.as_str(), span.tick)),
            nested: span.path.contains('/'),
            bar: Markup::made(bar),
            state: state_of(span.status),
            took: duration(span, self.to),
        }
    }
}

fn rect(out: &mut String, (from, to): (f64, f64), class: &str) {
    let width = (to - from).max(THIN);
    let from = from.min(100.0 - width);
    put(
        out,
        format_args!(
            r#"<rect x="{from:.2}%" y="9" width="{width:.2}%" height="12" rx="2.5" class="{}"/>"#,
            escaped(class)
        ),
    );
}

/// Path with its visit, or the token of a hook.
fn name_of(span: &SpanView) -> String {
    let name = span.token.as_ref().filter(|_| span.kind == SpanKind::Hook).unwrap_or(&span.path);
    if span.tick > 1 { format!("{name} ({})", span.tick) } else { name.clone() }
}

/// Fill of a bar.
fn class_of(span: &SpanView) -> &'static str {
    match (span.status, span.kind) {
        (SpanStatus::InDoubt, _) => "hatch-doubt",
        (SpanStatus::Failed, _) => "f-bad",
        (SpanStatus::Skipped, _) => "f-mute",
        (_, SpanKind::Timer | SpanKind::Hook) => "f-waitl",
        (SpanStatus::Completed, _) => "f-ok",
        (SpanStatus::Open | SpanStatus::Retrying, _) => "f-run",
    }
}

/// The icon of a span: how its effect is protected, or what it waits for.
pub(super) fn icon_of(span: &SpanView) -> &'static str {
    match span.kind {
        SpanKind::Timer => "clock",
        SpanKind::Hook => "hook",
        SpanKind::Child => "child",
        SpanKind::Step => step_icon(span.class),
    }
}

/// The icon of a step by the class of its effect.
pub(super) fn step_icon(class: Option<Class>) -> &'static str {
    match class {
        Some(Class::AtMostOnce) => "amo",
        Some(Class::Reconcile) => "reconcile",
        Some(Class::Tx) => "tx",
        Some(Class::Keyed) | None => "key",
    }
}

/// The state of a span in a word.
pub(super) fn state_of(status: SpanStatus) -> &'static str {
    match status {
        SpanStatus::Open => "open",
        SpanStatus::Retrying => "waits for its next attempt",
        SpanStatus::Completed => "completed",
        SpanStatus::Failed => "failed",
        SpanStatus::Skipped => "skipped",
        SpanStatus::InDoubt => "in doubt",
    }
}

fn duration(span: &SpanView, now: i64) -> String {
    match span.attempts.len() {
        0 | 1 => super::words::between(&span.started_at, span.ended_at.as_deref(), now),
        many => super::words::count(many as u64, "attempt", "attempts"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_rest_is_short_on_the_scale() {
        let scale = Scale::new((0, 1_000_000), vec![(1_000, 999_000), (500, 600)]);
        assert!((scale.x(1_000) - 46.0).abs() < 0.01 && (scale.x(999_000) - 54.0).abs() < 0.01);
        assert!((scale.x(0), scale.x(1_000_000)) == (0.0, 100.0) && scale.x(-5) == 0.0);
        assert_eq!(scale.rests, [(1_000, 999_000)]);
    }

    #[test]
    fn a_scale_rises() {
        let scale = Scale::new((100, 900), vec![(200, 500), (500, 800)]);
        let places: Vec<_> = (0..=1_000).step_by(10).map(|at| scale.x(at)).collect();
        assert!(places.windows(2).all(|pair| pair[0] <= pair[1]), "{places:?}");
        let exact = Scale::new((100, 900), Vec::new());
        assert!((exact.x(500) - 50.0).abs() < 0.01);
        assert_eq!(exact.text(), "100,0.000;900,100.000");
    }
}
