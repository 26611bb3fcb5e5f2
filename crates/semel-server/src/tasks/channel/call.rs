//! `call`: a telephone call in which a text is spoken, through a provider.

use super::sms::check_to;
use super::{class, execute};
use crate::connections::Channel;
use crate::definitions::shape::{Field, Shape};
use crate::tasks::Kind;

pub(in crate::tasks) static KIND: Kind = Kind {
    name: "call",
    about: "Places a telephone call and speaks a text. Its value is `{id, status, headers, body}`, as soon as the provider has accepted it.",
    args: Shape::Object(&[
        Field::required("on", Shape::Name, "Connection of the provider."),
        Field::new("from", Shape::Text, "Number that is shown. By default that of the connection."),
        Field::required("to", Shape::Text, "Number to call, such as `+41791234567`."),
        Field::required("text", Shape::Text, "Text to speak."),
        Field::new("language", Shape::Text, "Language of the text, such as `de-CH`."),
        Field::new("voice", Shape::Text, "Voice, by the name that the provider gives it."),
    ]),
    on: &["http"],
    tries: true,
    class,
    check: check_to,
    execute: |call| execute(Channel::Call, call),
};
