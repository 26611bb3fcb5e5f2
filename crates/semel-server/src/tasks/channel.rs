//! `mail`, `sms`, `call`: messages to people. Their arguments are the same for every provider; the profile of the connection says how
//! they become its request, and `http` does the rest. A mail can also go to a mail server.

mod arguments;
mod call;
mod mail;
mod parts;
mod sms;
#[cfg(feature = "mail")]
pub(super) mod smtp;

#[cfg(feature = "mail")]
pub(super) use arguments::mail;
pub(super) use arguments::message;
pub(super) use call::KIND as CALL;
pub(super) use mail::KIND as MAIL;
pub(super) use sms::KIND as SMS;

use super::http::effect::perform;
use super::{Class, Executing, TaskCall};
use crate::connections::Channel;
use crate::definitions::template::Template;

/// The connection says what can be repeated.
fn class(_: &Template) -> Class {
    Class::ByConnection
}

fn execute(channel: Channel, call: TaskCall<'_>) -> Executing<'_> {
    Box::pin(perform(call, Some(channel)))
}
