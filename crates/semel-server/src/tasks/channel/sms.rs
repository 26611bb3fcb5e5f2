//! `sms`: a text message to a telephone, through a provider.

use super::arguments::check_number;
use super::{class, execute};
use crate::connections::Channel;
use crate::definitions::shape::{Field, Shape};
use crate::definitions::template::Template;
use crate::tasks::{Checks, Kind};

pub(in crate::tasks) static KIND: Kind = Kind {
    name: "sms",
    about: "Sends a text message to a telephone. Its value is `{id, status, headers, body}`.",
    args: Shape::Object(&[
        Field::required("on", Shape::Name, "Connection of the provider."),
        Field::new("from", Shape::Text, "Number or name of the sender. By default that of the connection."),
        Field::required("to", Shape::Text, "Number of the receiver, such as `+41791234567`."),
        Field::required("text", Shape::Text, "Text of the message."),
    ]),
    on: &["http"],
    tries: true,
    class,
    check: check_to,
    execute: |call| execute(Channel::Sms, call),
};

/// Checks the number, if it is known already.
pub(super) fn check_to(args: &Template, checks: &mut Checks<'_>) {
    let to = args.get("to").and_then(|to| Some((to, to.text()?)));
    if let Some((to, Err(why))) = to.map(|(to, text)| (to, check_number(text))) {
        checks.refuse(&to.at, why, "write it as E.164 has it: `+`, country, number, and nothing else");
    }
}
