//! Profiles: what providers' own pages say about a repeated request, for steps that call them with any HTTP client.
//!
//! [`Step::profile`](crate::sdk::Step::profile) gives a step the class that follows from it. The profiles of a server's connections are
//! the same, and say more: how a mail becomes the provider's request, and what a look-up asks.
//!
//! ```
//! use semel::profiles::{Profile, RESEND};
//! use semel::{Ctx, Fail, Result};
//!
//! # struct Answer { status: u16, body: String }
//! # async fn post(_path: &str, _header: &str, _key: &str, _json: String) -> std::result::Result<Answer, std::io::Error> {
//! #     Ok(Answer { status: 200, body: r#"{"id":"49a3"}"#.to_owned() })
//! # }
//! async fn welcome(ctx: Ctx, email: String) -> Result<String> {
//!     ctx.step("welcome")
//!         .profile(&RESEND)
//!         .run(async |attempt| {
//!             let key = RESEND.key(&attempt);
//!             let mail = format!(r#"{{"from":"shop@example.com","to":"{email}","subject":"Hi","text":"Welcome"}}"#);
//!             // No answer: it may have been sent. The step asks again with the same key while Resend remembers it.
//!             let answer = post("/emails", "Idempotency-Key", &key, mail).await.map_err(Fail::retryable)?;
//!             RESEND.answered(answer.status, &answer.body)?;
//!             Ok(answer.body)
//!         })
//!         .await
//! }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<()> {
//! # let engine = semel::Engine::builder().store("memory:").workflow("welcome", welcome).open().await?;
//! # let run = engine.start(welcome, "ann@example.com".to_owned()).await?;
//! # assert!(run.result().await?.contains("49a3"));
//! # Ok(())
//! # }
//! ```

use std::time::Duration;

use crate::error::failure_code;
use crate::fail::{Fail, FailExt as _, Result, fatal};
use crate::sdk::Attempt;

/// Pause after an answer that says that nothing took place now.
const NOT_NOW: Duration = Duration::from_secs(5);

/// What a provider can do about a repeated request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Name of the provider.
    pub name: &'static str,
    /// What the provider does with a repeated request.
    pub repeats: Repeats,
    /// Answers that say that the first request is still at work: a status, and a word of the body (none if empty).
    pub busy: &'static [(u16, &'static str)],
    /// Answers that say that the key was used with another request.
    pub other: &'static [(u16, &'static str)],
    /// Answers that refuse a repetition, and so say that the first request was carried out.
    pub repeated: &'static [(u16, &'static str)],
    /// Address of the page that says so.
    pub page: &'static str,
    /// Month in which the page was read.
    pub read: &'static str,
}

/// What a provider does with a repeated request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeats {
    /// The provider recognises it by its key, and answers as it did the first time.
    Key {
        /// Where the request carries the key.
        place: KeyPlace,
        /// How long the provider remembers it.
        window: Duration,
    },
    /// It is carried out once more: such a step is at most once.
    Nothing,
}

/// Where a provider looks for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPlace {
    /// In the header with this name.
    Header(&'static str),
    /// In the JSON body at this pointer, as a UUID.
    BodyUuid(&'static str),
}

const fn keyed(place: KeyPlace, window: Duration) -> Repeats {
    Repeats::Key { place, window }
}

const HEADER: KeyPlace = KeyPlace::Header("Idempotency-Key");

const fn at_most_once(name: &'static str, page: &'static str) -> Profile {
    Profile { name, repeats: Repeats::Nothing, busy: &[], other: &[], repeated: &[], page, read: "2026-11" }
}

/// Brevo: a UUID in the body, for 15 minutes; a repetition is refused as a duplicate.
pub const BREVO: Profile = Profile {
    name: "brevo",
    repeats: keyed(KeyPlace::BodyUuid("/headers/idempotencyKey"), Duration::from_mins(15)),
    busy: &[],
    other: &[],
    repeated: &[(400, "duplicate"), (409, "duplicate")],
    page: "https://developers.brevo.com/docs/heterogenous-versions-batch-emails",
    read: "2026-11",
};
/// Resend: a key for 24 hours.
pub const RESEND: Profile = Profile {
    name: "resend",
    repeats: keyed(HEADER, Duration::from_hours(24)),
    busy: &[(409, "concurrent_idempotent_requests")],
    other: &[(409, "invalid_idempotent_request")],
    repeated: &[],
    page: "https://resend.com/docs/dashboard/emails/idempotency-keys",
    read: "2026-11",
};
/// Sinch, voice v2: a key for 10 minutes.
pub const SINCH: Profile = Profile {
    name: "sinch",
    repeats: keyed(HEADER, Duration::from_mins(10)),
    busy: &[(409, "idempotency-conflict")],
    other: &[],
    repeated: &[],
    page: "https://developers.sinch.com/docs/errors/registry/idempotency-conflict",
    read: "2026-11",
};
/// `SparkPost`: a key for 24 hours.
pub const SPARKPOST: Profile = Profile {
    name: "sparkpost",
    repeats: keyed(HEADER, Duration::from_hours(24)),
    busy: &[(409, "1601")],
    other: &[(409, "1600")],
    repeated: &[],
    page: "https://developers.sparkpost.com/api/transmissions/",
    read: "2026-11",
};
/// Stripe, API v1: a key for 24 hours. Errors are replayed too, so that a step whose first answer was a 500 ends in doubt.
pub const STRIPE: Profile = Profile {
    name: "stripe",
    repeats: keyed(HEADER, Duration::from_hours(24)),
    busy: &[(409, "")],
    other: &[(400, "idempotency_error")],
    repeated: &[],
    page: "https://docs.stripe.com/api/idempotent_requests",
    read: "2026-11",
};
/// Telnyx: a key for 24 hours, on endpoints whose reference names the header; that of messages was not seen to name it.
pub const TELNYX: Profile = Profile {
    name: "telnyx",
    repeats: keyed(HEADER, Duration::from_hours(24)),
    busy: &[],
    other: &[],
    repeated: &[],
    page: "https://developers.telnyx.com/docs/development/api-fundamentals/idempotency",
    read: "2026-11",
};
/// Mailgun: every request is carried out.
pub const MAILGUN: Profile = at_most_once(
    "mailgun",
    "https://documentation.mailgun.com/docs/mailgun/api-reference/send/mailgun/messages",
);
/// `SendGrid`: every request is carried out.
pub const SENDGRID: Profile =
    at_most_once("sendgrid", "https://www.twilio.com/docs/sendgrid/api-reference/mail-send/mail-send");
/// Twilio, SMS and voice: every request is carried out.
pub const TWILIO: Profile = at_most_once("twilio", "https://www.twilio.com/docs/api/errors/20500");
/// Vonage: every request is carried out.
pub const VONAGE: Profile = at_most_once("vonage", "https://developer.vonage.com/en/api/messages");

/// All profiles of this module.
pub const ALL: [&Profile; 10] =
    [&BREVO, &MAILGUN, &RESEND, &SENDGRID, &SINCH, &SPARKPOST, &STRIPE, &TELNYX, &TWILIO, &VONAGE];

/// Time after the first try at which a key is no longer sent: before the window ends, as clocks differ and requests take time.
pub fn last_send(window: Duration) -> Duration {
    window * 9 / 10
}

impl Profile {
    /// The key of a try, in the form that the provider takes. Where it is put, [`Repeats::Key`] says.
    pub fn key(&self, attempt: &Attempt) -> String {
        match self.repeats {
            Repeats::Key { place: KeyPlace::BodyUuid(_), .. } => attempt.key_uuid().to_string(),
            _ => attempt.key().to_owned(),
        }
    }

    /// What an answer says about the effect: it took place, or the error of a try whose end is known or not. A body that has not to
    /// be read may be given as an empty text.
    ///
    /// ```
    /// # use semel::profiles::RESEND;
    /// assert!(RESEND.answered(200, "").is_ok());
    /// assert_eq!(RESEND.answered(409, "invalid_idempotent_request").unwrap_err().code(), Some("PAYLOAD_CHANGED"));
    /// assert_eq!(RESEND.answered(503, "").unwrap_err().code(), Some("HTTP"));
    /// ```
    pub fn answered(&self, status: u16, body: &str) -> Result<()> {
        let is = |marks: &[(u16, &str)]| {
            marks.iter().any(|(marked, word)| *marked == status && body.to_ascii_lowercase().contains(word))
        };
        let said = |what: &str| format!("{}: {what} ({status})", self.name);
        if (200..300).contains(&status) || is(self.repeated) {
            return Ok(());
        }
        if is(self.other) {
            let what = "the key was used with another request before";
            return Err(fatal(said(what)).with_code(failure_code::PAYLOAD_CHANGED));
        }
        if is(self.busy) || matches!(status, 408 | 425 | 429) {
            return Err(Fail::retryable(said("not now")).with_code(failure_code::HTTP)).retry_after(NOT_NOW);
        }
        match status {
            400..=499 => Err(fatal(said("it was refused")).with_code(failure_code::HTTP)),
            _ => Err(Fail::retryable(said("its outcome is not known")).with_code(failure_code::HTTP)),
        }
    }
}
