//! A mail through a mail server: its bytes, and what the server's answer means.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use lettre::Message;
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Attachment, Mailbox, MultiPart, SinglePart};
use semel::clock::Time;
use semel::sabotage::{self, Bug};
use semel::{Attempt, Fail, Result, fatal};
use serde_json::json;

use super::parts::MailParts;
use crate::connections::{HttpAnswer, Letter, MailAddress, NotAccepted, SmtpTarget, Target as _};
use crate::tasks::connection::missing;
use crate::tasks::http::result::Tried;

/// The value of `Message-ID`: the effect key, so that it is the same on every attempt.
pub(in crate::tasks) fn message_id(smtp: &SmtpTarget, attempt: &Attempt) -> String {
    let key = attempt.key();
    match sabotage::commits(Bug::MessageIdPerTry) {
        true => format!("<{key}.{}.{}@{}>", attempt.fence(), attempt.number(), smtp.domain),
        false => format!("<{key}@{}>", smtp.domain),
    }
}

/// The bytes of a mail. They depend on nothing but the arguments, the id and the recorded time.
pub(in crate::tasks) fn letter(mail: &MailParts, id: &str, at: Time) -> Result<Letter> {
    let date = SystemTime::UNIX_EPOCH + Duration::from_secs(at.0.div_euclid(1000).max(0).unsigned_abs());
    let mut building =
        Message::builder().message_id(Some(id.to_owned())).date(date).from(mailbox(&mail.from)?);
    for to in &mail.to {
        building = building.to(mailbox(to)?);
    }
    for cc in &mail.cc {
        building = building.cc(mailbox(cc)?);
    }
    for bcc in &mail.bcc {
        building = building.bcc(mailbox(bcc)?);
    }
    for reply_to in &mail.reply_to {
        building = building.reply_to(mailbox(reply_to)?);
    }
    building = building.subject(mail.subject.clone());
    for (name, value) in &mail.headers {
        let name = HeaderName::new_from_ascii(name.clone()).map_err(unfit)?;
        building = building.raw_header(HeaderValue::new(name, value.clone()));
    }
    let message = match body(mail, id)? {
        MailBody::Single(part) => building.singlepart(part),
        MailBody::Multi(part) => building.multipart(part),
    };
    let message = message.map_err(unfit)?;
    let from = message.envelope().from().cloned().ok_or_else(|| unfit("it has no sender"))?;
    Ok(Letter { from, to: message.envelope().to().to_vec(), bytes: message.formatted() })
}

enum MailBody {
    Single(SinglePart),
    Multi(MultiPart),
}

/// The body. Boundaries are made of the id: lettre would draw them.
fn body(mail: &MailParts, id: &str) -> Result<MailBody> {
    let boundary = |kind: &str| {
        let key: String = id.chars().filter(char::is_ascii_alphanumeric).take(40).collect();
        format!("semel-{kind}-{key}")
    };
    let content = match (&mail.text, &mail.html) {
        (Some(text), Some(html)) => MailBody::Multi(
            MultiPart::alternative()
                .boundary(boundary("body"))
                .singlepart(SinglePart::plain(text.clone()))
                .singlepart(SinglePart::html(html.clone())),
        ),
        (None, Some(html)) => MailBody::Single(SinglePart::html(html.clone())),
        (text, None) => MailBody::Single(SinglePart::plain(text.clone().unwrap_or_default())),
    };
    if mail.attachments.is_empty() {
        return Ok(content);
    }
    let mixed = MultiPart::mixed().boundary(boundary("files"));
    let mut mixed = match content {
        MailBody::Single(part) => mixed.singlepart(part),
        MailBody::Multi(part) => mixed.multipart(part),
    };
    for file in &mail.attachments {
        let kind = ContentType::parse(&file.kind).map_err(unfit)?;
        mixed = mixed.singlepart(Attachment::new(file.name.clone()).body(file.content.clone(), kind));
    }
    Ok(MailBody::Multi(mixed))
}

fn mailbox(address: &MailAddress) -> Result<Mailbox> {
    Ok(Mailbox::new(address.name.clone(), address.email.parse().map_err(unfit)?))
}

fn unfit(why: impl std::fmt::Display) -> Fail {
    fatal(format!("the mail cannot be written: {why}")).with_code("EXPRESSION")
}

/// Sends a mail within a time. Before the last dot was sent nothing took place, whatever happens.
pub(in crate::tasks) async fn send(
    attempt: &Attempt,
    what: &str,
    smtp: &SmtpTarget,
    letter: &Letter,
    limit: Duration,
) -> Tried {
    let may_be_sent = AtomicBool::new(false);
    let _outside = attempt.outside();
    let elapsed = attempt.clock().until(attempt.clock().now().after(limit));
    let ended = tokio::select! {
        ended = smtp.hand_over(letter, &may_be_sent) => Some(ended),
        () = elapsed => None,
    };
    let may_be_sent = may_be_sent.load(Ordering::SeqCst);
    match ended {
        Some(Ok(reply)) => {
            let text = smtp.redactor().text(&reply.message().collect::<Vec<_>>().join("\n"));
            let status = u16::from(reply.code());
            Tried::Done(HttpAnswer {
                status,
                headers: Vec::new(),
                replayed: false,
                body: text,
                json: None,
                is_whole: true,
            })
        }
        Some(Err(refused)) => judge(what, smtp, &refused, may_be_sent),
        None => {
            let fail =
                Fail::retryable(format!("{what}: there was no answer within {limit:?}")).with_code("TIMEOUT");
            unanswered(fail, may_be_sent)
        }
    }
}

/// What a refusal, or a connection that broke off, means.
fn judge(what: &str, smtp: &SmtpTarget, refused: &NotAccepted, may_be_sent: bool) -> Tried {
    let said = smtp.redactor().text(&refused.error.to_string());
    let message = format!("{what}: {said}");
    let Some(code) = refused.error.status() else {
        let code = if refused.is_about_mail { "SMTP" } else { "CONNECTION" };
        return unanswered(Fail::retryable(message).with_code(code), may_be_sent);
    };
    let data = json!({"status": u16::from(code), "body": said});
    if !refused.is_about_mail {
        return Tried::NotNow { fail: missing(message).with_data(&data), pause: None, is_at_work: false };
    }
    match refused.error.is_permanent() {
        true => {
            Tried::Refused { fail: fatal(message).with_code("SMTP").with_data(&data), is_about_effect: false }
        }
        false => {
            let fail = Fail::retryable(message).with_code("SMTP").with_data(&data);
            Tried::NotNow { fail, pause: None, is_at_work: false }
        }
    }
}

fn unanswered(fail: Fail, may_be_sent: bool) -> Tried {
    match may_be_sent {
        true => Tried::Unknown { fail, is_final: false },
        false => Tried::NotNow { fail, pause: None, is_at_work: false },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value as Json;

    use super::*;
    use crate::tasks::channel::arguments::mail;

    fn bytes(args: &Json) -> String {
        let mail = mail(args, Some("Shop <shop@example.com>")).unwrap();
        let letter = letter(&mail, "<e1key@example.com>", Time(1_700_000_000_000)).unwrap();
        String::from_utf8(letter.bytes).unwrap()
    }

    #[test]
    fn the_bytes_of_a_mail_are_the_same_on_every_attempt() {
        let args = json!({
            "to": ["Änn <ann@example.com>", "\"Ben, Jr.\" <ben@example.com>"], "bcc": "eve@example.com",
            "reply-to": "help@example.com", "subject": "Grüße", "text": "Hello\n.\nBye", "html": "<p>Hello</p>",
            "headers": {"X-Order": "7 ü"},
            "attachments": [{"name": "ü.pdf", "type": "application/pdf", "base64": "JVBERg=="}],
        });
        let first = bytes(&args);
        assert_eq!(first, bytes(&args));
        assert!(first.contains("Message-ID: <e1key@example.com>\r\n"), "{first}");
        assert!(first.contains("Date: Tue, 14 Nov 2023 22:13:20 +0000\r\n"), "{first}");
        assert!(!first.contains("eve@example.com"), "no header names blind copies");
        assert!(first.is_ascii() && !first.replace("\r\n", "").contains(['\r', '\n']), "{first:?}");
        assert!(first.contains("semel-body-e1keyexamplecom") && first.contains("semel-files-"), "{first}");
        let plain = bytes(&json!({"to": "a@example.com", "subject": "s", "text": "t"}));
        assert!(plain.ends_with("\r\n\r\nt\r\n"), "{plain:?}");
    }
}
