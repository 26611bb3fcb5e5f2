//! What an answer means: whether the effect took place, certainly did not take place, or may have taken place.

use std::time::Duration;

use jiff::Timestamp;
use semel::clock::Time;
use semel::rules::json::Payload;
use semel::{Fail, Result, fatal};
use serde::Serialize;
use serde_json::json;

use crate::connections::{By, CallFailed, HttpAnswer, KeyProfile, Profile};
pub(in crate::tasks) use crate::tasks::tries::TryEnd as Tried;

/// Maximum size of a body that a failure carries, in bytes.
const FAILURE_BODY: usize = 4 * 1024;

/// Says what an answer to a write, or its absence, means.
pub(in crate::tasks) fn judge(
    what: &str,
    profile: &Profile,
    called: Result<HttpAnswer, CallFailed>,
    now: Time,
) -> Tried {
    let answer = match called {
        Ok(answer) => answer,
        Err(failed) => return without_answer(what, &failed),
    };
    if let By::Key(key) = &profile.by
        && let Some(tried) = by_key(what, key, &answer, now)
    {
        return tried;
    }
    by_status(what, profile, answer, now)
}

/// What it means that there is no answer.
fn without_answer(what: &str, failed: &CallFailed) -> Tried {
    let message = format!("{what}: {}", failed.message());
    let retryable = |code: &str| Fail::retryable(&message).with_code(code);
    match failed {
        CallFailed::Unreachable(_) => {
            Tried::NotNow { fail: retryable("CONNECTION"), pause: None, is_at_work: false }
        }
        CallFailed::Refused(_) => {
            Tried::Refused { fail: fatal(&message).with_code("CONNECTION"), is_about_effect: false }
        }
        CallFailed::Unknown(_) => Tried::Unknown { fail: retryable("HTTP"), is_final: false },
        CallFailed::TimedOut(_) => Tried::Unknown { fail: retryable("TIMEOUT"), is_final: false },
    }
}

/// What only the profile knows.
fn by_key(what: &str, key: &KeyProfile, answer: &HttpAnswer, now: Time) -> Option<Tried> {
    let is = |marks: &[crate::connections::AnswerMark]| {
        marks.iter().any(|mark| mark.is(answer.status, &answer.body))
    };
    if is(&key.other) {
        let message = format!("{what}: its key was used with another request before ({})", answer.status);
        let fail = fatal(message).with_code("PAYLOAD_CHANGED").with_data(&data(answer));
        return Some(Tried::Refused { fail, is_about_effect: true });
    }
    if is(&key.busy) {
        let message = format!("{what}: the first request is still at work ({})", answer.status);
        let fail = Fail::retryable(message).with_code("HTTP").with_data(&data(answer));
        return Some(Tried::NotNow { fail, pause: retry_after(answer, now), is_at_work: true });
    }
    if is(&key.repeated) {
        return Some(Tried::Done(answer.clone()));
    }
    (answer.replayed && answer.status >= 500).then(|| {
        let message =
            format!("{what}: the answer with status {} is kept for every repetition", answer.status);
        Tried::Unknown {
            fail: Fail::retryable(message).with_code("HTTP").with_data(&data(answer)),
            is_final: true,
        }
    })
}

fn by_status(what: &str, profile: &Profile, answer: HttpAnswer, now: Time) -> Tried {
    let status = answer.status;
    let message = format!("{what} was answered with status {status}");
    let pause = retry_after(&answer, now);
    let retryable =
        |answer: &HttpAnswer| Fail::retryable(&message).with_code("HTTP").with_data(&data(answer));
    match status {
        200..=299 | 303 => Tried::Done(answer),
        408 | 425 | 429 => Tried::NotNow { fail: retryable(&answer), pause, is_at_work: false },
        503 if pause.is_some() => Tried::NotNow { fail: retryable(&answer), pause, is_at_work: false },
        // The request may have been carried out before its answer led elsewhere.
        302 => Tried::Unknown { fail: retryable(&answer), is_final: false },
        300..=499 => {
            // These are answered before a key is looked up (who calls, and where), or because of an earlier request (409). A side
            // that knows no keys says nothing about earlier requests.
            let is_silent = matches!(status, 300..=399 | 401 | 403 | 404 | 405 | 407 | 409);
            let is_about_effect = matches!(profile.by, By::Key(_)) && !is_silent;
            let fail = fatal(&message).with_code("HTTP").with_data(&data(&answer));
            Tried::Refused { fail, is_about_effect }
        }
        _ => Tried::Unknown { fail: retryable(&answer), is_final: false },
    }
}

/// How long an answer asks to wait: seconds, or a date.
pub(in crate::tasks) fn retry_after(answer: &HttpAnswer, now: Time) -> Option<Duration> {
    let text = answer.header("retry-after")?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let at: Timestamp = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    Some(Duration::from_millis((at.as_millisecond() - now.0).max(0).unsigned_abs()))
}

/// What `catch` can read of a refused call.
pub(in crate::tasks) fn data(answer: &HttpAnswer) -> serde_json::Value {
    let mut body = answer.body.as_str();
    if body.len() > FAILURE_BODY {
        let mut end = FAILURE_BODY;
        while !body.is_char_boundary(end) {
            end -= 1;
        }
        body = &body[..end];
    }
    let body = match (&answer.json, body.len() == answer.body.len()) {
        (Some(json), true) => json!(json),
        _ => json!(body),
    };
    json!({ "status": answer.status, "body": body })
}

/// The value of a step: status, headers and body; of a message also the id that it has there.
pub(in crate::tasks) fn value(answer: &HttpAnswer, id: Option<serde_json::Value>) -> Result<Payload> {
    #[derive(Serialize)]
    struct Value<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<serde_json::Value>,
        status: u16,
        headers: serde_json::Map<String, serde_json::Value>,
        body: ShownBody<'a>,
    }
    #[derive(Serialize)]
    #[serde(untagged)]
    enum ShownBody<'a> {
        Json(&'a Payload),
        Text(&'a str),
    }
    if !answer.is_whole {
        let most = crate::connections::ANSWER;
        return Err(fatal(format!("the answer has more than {most} bytes; ask for less of it"))
            .with_code("TOO_LARGE"));
    }
    let body = answer.json.as_ref().map_or(ShownBody::Text(&answer.body), ShownBody::Json);
    let headers = answer.headers.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
    let value = Value { id, status: answer.status, headers, body };
    Payload::of(&value).map_err(|refused| fatal(refused).with_code("TOO_LARGE"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, headers: &[(&str, &str)], body: &str) -> HttpAnswer {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let json = Payload::parse(body).ok();
        HttpAnswer { status, headers, replayed: false, body: body.to_owned(), json, is_whole: true }
    }

    fn kind(profile: &Profile, answer: HttpAnswer) -> String {
        match judge("a", profile, Ok(answer), Time(0)) {
            Tried::Done(_) => "done".to_owned(),
            Tried::Refused { fail, is_about_effect } => format!("{} {is_about_effect}", fail.code().unwrap()),
            Tried::NotNow { pause, is_at_work, .. } => {
                format!("later {:?} {is_at_work}", pause.map(|p| p.as_secs()))
            }
            Tried::Unknown { is_final, .. } => format!("unknown {is_final}"),
        }
    }

    /// The profile of a side that recognises keys, and says nothing more about its answers.
    fn by_key() -> Profile {
        let table = toml::from_str("by = 'key'\nheader = 'Idempotency-Key'\nwindow = 'for-ever'").unwrap();
        Profile::read("profile", &toml::Value::Table(table)).unwrap()
    }

    #[test]
    fn a_status_says_whether_something_took_place() {
        for (status, headers, meant) in [
            (200, &[][..], "done"),
            (202, &[], "done"),
            (303, &[], "done"),
            (301, &[], "HTTP false"),
            (302, &[], "unknown false"),
            (400, &[], "HTTP true"),
            (401, &[], "HTTP false"),
            (402, &[], "HTTP true"),
            (404, &[], "HTTP false"),
            (409, &[], "HTTP false"),
            (422, &[], "HTTP true"),
            (429, &[], "later None false"),
            (429, &[("retry-after", "7")], "later Some(7) false"),
            (429, &[("retry-after", "Thu, 01 Jan 1970 00:01:00 GMT")], "later Some(60) false"),
            (503, &[], "unknown false"),
            (503, &[("retry-after", "7")], "later Some(7) false"),
            (500, &[("retry-after", "7")], "unknown false"),
            (504, &[], "unknown false"),
        ] {
            assert_eq!(kind(&by_key(), answer(status, headers, "")), meant, "{status} {headers:?}");
            let without = meant.replace("true", "false");
            assert_eq!(
                kind(&Profile::default(), answer(status, headers, "")),
                without,
                "{status} without keys"
            );
        }
    }

    #[test]
    fn a_failure_carries_the_status_and_a_bounded_body() {
        let Tried::Refused { fail, .. } =
            by_status("a", &Profile::default(), answer(402, &[], r#"{"error":"declined"}"#), Time(0))
        else {
            panic!("402 is refused")
        };
        assert_eq!(fail.data().unwrap().text(), r#"{"body":{"error":"declined"},"status":402}"#);
        let long = data(&answer(400, &[], &"ü".repeat(FAILURE_BODY)));
        assert_eq!(long["body"].as_str().unwrap().len(), FAILURE_BODY);
    }

    #[test]
    fn a_value_keeps_every_digit_and_the_chosen_headers() {
        let answer =
            answer(200, &[("content-type", "application/json")], r#"{"n":0.1000000000000000055511}"#);
        assert_eq!(
            value(&answer, None).unwrap().text(),
            r#"{"status":200,"headers":{"content-type":"application/json"},"body":{"n":0.1000000000000000055511}}"#
        );
        let text = HttpAnswer { json: None, body: "hello".to_owned(), ..answer };
        assert!(value(&text, None).unwrap().text().ends_with(r#""body":"hello"}"#));
        assert_eq!(
            value(&HttpAnswer { is_whole: false, ..text }, None).unwrap_err().code(),
            Some("TOO_LARGE")
        );
    }
}
