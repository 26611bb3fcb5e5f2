//! From evaluated arguments to a message: everything is checked before anything is sent.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use semel::{Fail, Result, fatal};
use serde_json::{Value as Json, json};

use super::parts::{AttachedFile, MailParts};
use crate::connections::{Channel, MailAddress};

/// Maximum number of receivers of a mail, copies included.
const RECEIVERS: usize = 100;
/// Maximum number of further headers.
const HEADERS: usize = 50;
/// Maximum number of attached files.
const FILES: usize = 20;
/// Maximum length of a line that becomes a header, by RFC 5322.
const LINE: usize = 998;
/// Maximum length of a text message or of a spoken text, in characters. Providers accept less, and say so.
const SHORT_TEXT: usize = 10_000;
/// Headers that other arguments, the connection or the form of the mail set.
const RESERVED: [&str; 15] = [
    "from",
    "sender",
    "to",
    "cc",
    "bcc",
    "reply-to",
    "subject",
    "date",
    "message-id",
    "mime-version",
    "return-path",
    "received",
    "dkim-signature",
    "idempotencykey",
    "resend-idempotency-key",
];

/// The message of evaluated arguments, as a mapping reads it. `from` is the sender of the connection.
pub(in crate::tasks) fn message(channel: Channel, args: &Json, from: Option<&str>) -> Result<Json> {
    match channel {
        Channel::Mail => Ok(mail(args, from)?.json()),
        Channel::Sms => Ok(json!({"from": sender(args, from)?, "to": number(args)?, "text": short(args)?})),
        Channel::Call => {
            let text = short(args)?;
            Ok(json!({
                "from": sender(args, from)?,
                "to": number(args)?,
                "text": text,
                "text_xml": xml(&text),
                "language": word(args, "language")?,
                "voice": word(args, "voice")?,
            }))
        }
    }
}

/// The mail of evaluated arguments.
pub(in crate::tasks) fn mail(args: &Json, from: Option<&str>) -> Result<MailParts> {
    let from = text(args, "from")?.or_else(|| from.map(str::to_owned));
    let from = from.ok_or_else(|| wrong("the mail has no sender: give `from`, here or in the connection"))?;
    let parts = MailParts {
        from: MailAddress::read(&from).map_err(wrong)?,
        to: addresses(args, "to")?,
        cc: addresses(args, "cc")?,
        bcc: addresses(args, "bcc")?,
        reply_to: addresses(args, "reply-to")?,
        subject: text(args, "subject")?.unwrap_or_default(),
        text: text(args, "text")?,
        html: text(args, "html")?,
        headers: headers(args)?,
        attachments: attachments(args)?,
    };
    check_line("the subject", &parts.subject).map_err(wrong)?;
    let receivers = parts.to.len() + parts.cc.len() + parts.bcc.len();
    if parts.to.is_empty() {
        return Err(wrong("the mail has no receiver: `to` is empty"));
    }
    if receivers > RECEIVERS {
        return Err(wrong(format!("the mail has {receivers} receivers; at most {RECEIVERS} are accepted")));
    }
    if parts.text.is_none() && parts.html.is_none() {
        return Err(wrong("the mail has no body: give `text`, `html` or both"));
    }
    Ok(parts)
}

/// Checks a text that becomes a header.
pub(super) fn check_line(what: &str, text: &str) -> std::result::Result<(), String> {
    if text.chars().any(char::is_control) {
        return Err(format!("{what} has a line break or another control character"));
    }
    if text.len() > LINE {
        return Err(format!("{what} has {} bytes; at most {LINE} are accepted", text.len()));
    }
    Ok(())
}

/// Checks a further header.
pub(super) fn check_header(name: &str, value: &str) -> std::result::Result<(), String> {
    let lower = name.to_ascii_lowercase();
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if name.is_empty() || name.len() > 70 || !name.chars().all(is_token) {
        return Err(format!("`{}` is no name of a header", name.escape_debug()));
    }
    if RESERVED.contains(&&*lower) || lower.starts_with("content-") {
        return Err(format!("the header `{name}` cannot be set here"));
    }
    check_line(&format!("the header `{name}`"), value)
}

/// Checks the number of a telephone.
pub(super) fn check_number(text: &str) -> std::result::Result<(), String> {
    let digits = text.strip_prefix('+').unwrap_or_default();
    let is_number = (7..=15).contains(&digits.len())
        && digits.chars().all(|c| c.is_ascii_digit())
        && !digits.starts_with('0');
    let shown: String = text.chars().take(40).collect();
    if is_number { Ok(()) } else { Err(format!("`{}` is no number of a telephone", shown.escape_debug())) }
}

/// A text; none if it is absent or null.
fn text(args: &Json, name: &str) -> Result<Option<String>> {
    match args.get(name) {
        None | Some(Json::Null) => Ok(None),
        Some(Json::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(wrong(format!("`{name}` is no text"))),
    }
}

/// One address, or a list of them.
fn addresses(args: &Json, name: &str) -> Result<Vec<MailAddress>> {
    let read = |value: &Json| match value {
        Json::String(text) => MailAddress::read(text).map_err(wrong),
        _ => Err(wrong(format!("`{name}` is neither an address nor a list of addresses"))),
    };
    match args.get(name) {
        None | Some(Json::Null) => Ok(Vec::new()),
        Some(Json::Array(items)) => items.iter().map(read).collect(),
        Some(value) => Ok(vec![read(value)?]),
    }
}

fn headers(args: &Json) -> Result<Vec<(String, String)>> {
    let members = args.get("headers").and_then(Json::as_object);
    let mut headers = Vec::new();
    for (name, value) in members.into_iter().flatten() {
        let value = value.as_str().ok_or_else(|| wrong(format!("the header `{name}` is no text")))?;
        check_header(name, value).map_err(wrong)?;
        headers.push((name.clone(), value.to_owned()));
    }
    if headers.len() > HEADERS {
        return Err(wrong(format!("the mail has {} headers; at most {HEADERS} are accepted", headers.len())));
    }
    Ok(headers)
}

fn attachments(args: &Json) -> Result<Vec<AttachedFile>> {
    let files = args.get("attachments").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    if files.len() > FILES {
        return Err(wrong(format!("the mail has {} files; at most {FILES} are accepted", files.len())));
    }
    files.iter().map(attachment).collect()
}

fn attachment(file: &Json) -> Result<AttachedFile> {
    let name = text(file, "name")?.unwrap_or_default();
    check_line("the name of a file", &name).map_err(wrong)?;
    if name.is_empty() || name.contains(['/', '\\']) {
        return Err(wrong(format!("`{name}` is no name of a file")));
    }
    let kind = text(file, "type")?.unwrap_or_else(|| "application/octet-stream".to_owned());
    let is_part = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || "!#$&^_.+-".contains(c))
    };
    if !kind.split_once('/').is_some_and(|(a, b)| is_part(a) && is_part(b)) {
        return Err(wrong(format!(
            "`{}` is no type of a file, such as `application/pdf`",
            kind.escape_debug()
        )));
    }
    let content = match (text(file, "text")?, text(file, "base64")?) {
        (Some(text), None) => text.into_bytes(),
        (None, Some(coded)) => STANDARD_NO_PAD
            .decode(coded.trim_end_matches('='))
            .map_err(|_| wrong(format!("the content of `{name}` is no base64")))?,
        _ => return Err(wrong(format!("the file `{name}` has one content: `text` or `base64`"))),
    };
    Ok(AttachedFile { name, kind, content })
}

/// The number of the receiver.
fn number(args: &Json) -> Result<String> {
    let to = text(args, "to")?.unwrap_or_default();
    check_number(&to).map_err(wrong)?;
    Ok(to)
}

/// A number, a short code or a name: which of them is possible is known to the provider.
fn sender(args: &Json, from: Option<&str>) -> Result<Option<String>> {
    let from = text(args, "from")?.or_else(|| from.map(str::to_owned));
    if let Some(from) = &from {
        let fits = (1..=64).contains(&from.chars().count()) && !from.chars().any(char::is_control);
        if !fits {
            return Err(wrong(format!(
                "`{}` is no sender: a number or a name is expected",
                from.escape_debug()
            )));
        }
    }
    Ok(from)
}

fn short(args: &Json) -> Result<String> {
    let text = text(args, "text")?.unwrap_or_default();
    match text.chars().count() {
        0 => Err(wrong("the text is empty")),
        length if length > SHORT_TEXT => {
            Err(wrong(format!("the text has {length} characters; at most {SHORT_TEXT} are accepted")))
        }
        _ => Ok(text),
    }
}

/// The name of a language or voice.
fn word(args: &Json, name: &str) -> Result<Option<String>> {
    let word = text(args, name)?;
    let is_word = |word: &String| {
        (1..=100).contains(&word.len())
            && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:".contains(c))
    };
    match word {
        Some(word) if !is_word(&word) => {
            Err(wrong(format!("`{name}` is no name: letters, digits, `-`, `_`, `.` and `:`")))
        }
        word => Ok(word),
    }
}

/// A text as the content of an XML element.
fn xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A mistake in what was evaluated: no other attempt mends it, and nothing was sent.
fn wrong(message: impl Into<String>) -> Fail {
    fatal(message.into()).with_code("EXPRESSION")
}

#[cfg(test)]
mod tests {
    use semel::rules::entry::FailureKind;

    use super::*;

    #[test]
    fn a_mail_is_the_same_for_every_provider() {
        let args = json!({
            "to": "Ann <ann@example.com>", "cc": ["ben@example.com"], "subject": "Hi",
            "text": "Hello", "headers": {"X-Order": "7"},
            "attachments": [{"name": "a.txt", "type": "text/plain", "text": "abc"}],
        });
        let message = message(Channel::Mail, &args, Some("shop@example.com")).unwrap();
        assert_eq!(message["from"], json!({"email": "shop@example.com", "name": null}));
        assert_eq!(message["to_text"], json!(["Ann <ann@example.com>"]));
        assert_eq!(message["cc"], json!([{"email": "ben@example.com", "name": null}]));
        assert_eq!((&message["bcc"], &message["html"]), (&Json::Null, &Json::Null));
        assert_eq!(
            message["attachments"],
            json!([{"name": "a.txt", "type": "text/plain", "content": "YWJj"}])
        );
    }

    #[test]
    fn a_message_that_cannot_be_sent_is_refused_before_it_is() {
        let base = json!({"to": "a@example.com", "from": "b@example.com", "subject": "s", "text": "t"});
        let with = |change: Json| {
            let mut args = base.clone();
            args.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            args
        };
        let many: Vec<_> = (0..101).map(|n| format!("a{n}@example.com")).collect();
        assert!(mail(&base, None).is_ok());
        for change in [
            json!({"to": []}),
            json!({"to": "a@example.com\r\nBcc: e@example.com"}),
            json!({"to": 7}),
            json!({"to": many}),
            json!({"from": null}),
            json!({"subject": "a\nb"}),
            json!({"subject": "x".repeat(999)}),
            json!({"text": null}),
            json!({"headers": {"X-A": "b\r\nc"}}),
            json!({"headers": {"X A": "b"}}),
            json!({"headers": {"Message-ID": "<a@b>"}}),
            json!({"headers": {"Content-Type": "text/plain"}}),
            json!({"attachments": [{"name": "a"}]}),
            json!({"attachments": [{"name": "a", "base64": "!"}]}),
            json!({"attachments": [{"name": "a\"\n", "text": "b"}]}),
            json!({"attachments": [{"name": "../a", "text": "b"}]}),
            json!({"attachments": [{"name": "a", "type": "text/plain; x=\"\r\n", "text": "b"}]}),
        ] {
            let refused = mail(&with(change.clone()), None).unwrap_err();
            assert_eq!(
                (refused.code(), refused.kind()),
                (Some("EXPRESSION"), FailureKind::Fatal),
                "{change}"
            );
        }
        for to in ["0791234567", "+0791234567", "+41 79 123", "+417912345678901234", "+41", "+41791234567\n"]
        {
            let args = json!({"to": to, "text": "t"});
            assert!(message(Channel::Sms, &args, None).is_err(), "{to}");
        }
        for args in [
            json!({"to": "+41791234567", "text": ""}),
            json!({"to": "+41791234567", "text": "t", "language": "de\"/>"}),
            json!({"to": "+41791234567", "text": "t", "from": "a\nb"}),
        ] {
            assert!(message(Channel::Call, &args, None).is_err(), "{args}");
        }
        let call = message(Channel::Call, &json!({"to": "+41791234567", "text": "1 < 2 & 3"}), None).unwrap();
        assert_eq!(call["text_xml"], "1 &lt; 2 &amp; 3");
    }
}
