//! `mail`: a mail, through a mail server or a provider.

use super::arguments::{check_header, check_line};
use super::{class, execute};
use crate::connections::{Channel, MailAddress};
use crate::definitions::shape::{Field, Shape};
use crate::definitions::template::{Filled, Template};
use crate::tasks::{Checks, Kind};

/// One address, or a list of them.
const ADDRESSES: Shape = Shape::TextOr(&Shape::Text, &Shape::List(&Shape::Text));
const ATTACHMENT: Shape = Shape::Object(&[
    Field::required("name", Shape::Text, "Name of the file, as the receiver sees it."),
    Field::new(
        "type",
        Shape::Text,
        "Type of the file, such as `application/pdf`. By default `application/octet-stream`.",
    ),
    Field::new("text", Shape::Text, "Content of the file, as text."),
    Field::new("base64", Shape::Text, "Content of the file, as base64."),
]);

pub(in crate::tasks) static KIND: Kind = Kind {
    name: "mail",
    about: "Sends a mail. Its value is `{id, status, headers, body}`.",
    args: Shape::Object(&[
        Field::required("on", Shape::Name, "Connection of the mail server or of the provider."),
        Field::new(
            "from",
            Shape::Text,
            "Sender, such as `Shop <shop@example.com>`. By default that of the connection.",
        ),
        Field::required("to", ADDRESSES, "Receivers: an address, or a list."),
        Field::new("cc", ADDRESSES, "Receivers of a copy, in the header `Cc`."),
        Field::new("bcc", ADDRESSES, "Receivers of a copy, who are in no header."),
        Field::new("reply-to", ADDRESSES, "Where answers go."),
        Field::required("subject", Shape::Text, "Subject of the mail: one line."),
        Field::new("text", Shape::Text, "Body as plain text."),
        Field::new("html", Shape::Text, "Body as HTML."),
        Field::new("headers", Shape::Map(&Shape::Text), "Further headers."),
        Field::new("attachments", Shape::List(&ATTACHMENT), "Files that are sent along."),
    ]),
    on: &["smtp", "http"],
    tries: true,
    class,
    check,
    execute: |call| execute(Channel::Mail, call),
};

/// Checks what is known already: texts without `{{ }}`.
fn check(args: &Template, checks: &mut Checks<'_>) {
    for name in ["from", "to", "cc", "bcc", "reply-to"] {
        args.get(name).into_iter().for_each(|address| check_addresses(address, checks));
    }
    if let Some(subject) = args.get("subject")
        && let Some(Err(why)) = subject.text().map(|text| check_line("the subject", text))
    {
        checks.refuse(&subject.at, why, "a header is one line");
    }
    if args.get("text").or_else(|| args.get("html")).is_none() {
        checks.refuse(&args.at, "the mail has no body", "give `text`, `html` or both");
    }
    if let Some(Filled::Object(headers)) = args.get("headers").map(|headers| &headers.value) {
        for (name, value) in headers {
            if let Err(why) = check_header(name, value.text().unwrap_or_default()) {
                checks.refuse(&value.at, why, "a further header is one such as `X-Order`");
            }
        }
    }
    if let Some(Filled::List(files)) = args.get("attachments").map(|files| &files.value) {
        for file in files {
            checks.exactly_one(file, &["text", "base64"]);
        }
    }
}

fn check_addresses(value: &Template, checks: &mut Checks<'_>) {
    if let Filled::List(items) = &value.value {
        for item in items {
            check_addresses(item, checks);
        }
    } else if let Some(Err(why)) = value.text().map(MailAddress::read) {
        checks.refuse(&value.at, why, "several receivers are a list");
    }
}
