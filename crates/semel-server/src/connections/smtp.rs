//! Connections of the kind `smtp`: a mail server that relays what it is given.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use lettre::Address;
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{AsyncSmtpConnection, Certificate, TlsParameters};
use lettre::transport::smtp::commands::{Data, Mail, Rcpt};
use lettre::transport::smtp::extension::ClientId;
use lettre::transport::smtp::response::Response;
use toml::Value;

use super::kind::{Checked, Checking, ConnectionKind, Environment, Settings, Target, TargetCheck};
use super::mail_address::{MailAddress, is_domain};
use super::members::Members;
use super::secret::{Redactor, SecretPlace};

pub(super) static KIND: ConnectionKind = ConnectionKind { name: "smtp", read };

/// The mechanisms of authentication, the preferred one first.
const MECHANISMS: [Mechanism; 2] = [Mechanism::Plain, Mechanism::Login];

/// How a connection to a mail server is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SmtpTls {
    /// From its first byte on.
    Implicit,
    /// After the command `STARTTLS`; a server without it is refused.
    StartTls,
    /// Without any encryption at all.
    Off,
}

/// A mail server, as it is configured.
pub struct SmtpTarget {
    host: String,
    port: u16,
    /// The encryption, and whether it begins at once.
    tls: Option<(TlsParameters, bool)>,
    credentials: Option<Credentials>,
    /// Sender of mails whose step says none.
    pub from: MailAddress,
    /// What follows the `@` in each `Message-ID`.
    pub domain: String,
    /// Whether the operator vouches that the receiving side drops a second mail of the same `Message-ID`.
    pub drops_repetitions: bool,
    redactor: Redactor,
}

impl fmt::Debug for SmtpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SmtpTarget({}:{})", self.host, self.port)
    }
}

/// What the configuration says about a mail server.
#[derive(Debug)]
struct SmtpSettings {
    host: String,
    port: u16,
    tls: SmtpTls,
    user: Option<String>,
    password: Option<SecretPlace>,
    from: MailAddress,
    domain: String,
    drops_repetitions: bool,
    ca_file: Option<PathBuf>,
}

fn read(members: &mut Members<'_>) -> Option<Box<dyn Settings>> {
    let host = members.needed("host", "the name of the mail server").map(str::to_owned);
    let tls = match members.text("tls") {
        None | Some("starttls") => SmtpTls::StartTls,
        Some("implicit") => SmtpTls::Implicit,
        Some("off") => SmtpTls::Off,
        Some(other) => {
            members.refuse("tls", format!("`{other}` is not one of `starttls`, `implicit` and `off`"));
            SmtpTls::StartTls
        }
    };
    let usual = match tls {
        SmtpTls::StartTls => 587,
        SmtpTls::Implicit => 465,
        SmtpTls::Off => 25,
    };
    let port = members.number("port", 1, 65_535).and_then(|port| u16::try_from(port).ok()).unwrap_or(usual);
    let user = members.text("user").map(str::to_owned);
    let password = password(members);
    if user.is_some() != password.is_some() {
        members.refuse("password", "`user` and `password` belong together: give both, or neither");
    }
    let is_near = host.as_deref().is_some_and(|host| matches!(host, "localhost" | "127.0.0.1" | "::1"));
    if tls == SmtpTls::Off && password.is_some() && !is_near {
        members.refuse("tls", "the password would be sent without encryption; use `starttls` or `implicit`");
    }
    let from = address(members);
    let domain = domain(members, from.as_ref());
    let drops_repetitions = match members.text("repeat") {
        None => false,
        Some("message-id") => true,
        Some(other) => {
            let why = "leave it out if repeated mails are delivered twice";
            members.refuse("repeat", format!("`{other}` is not `message-id`; {why}"));
            false
        }
    };
    let ca_file = members.text("ca-file").map(PathBuf::from);
    let (host, from) = (host?, from?);
    Some(Box::new(SmtpSettings { host, port, tls, user, password, from, domain, drops_repetitions, ca_file }))
}

fn password(members: &mut Members<'_>) -> Option<SecretPlace> {
    let value: &Value = members.get("password")?;
    match SecretPlace::read(value) {
        Ok(place) => Some(place),
        Err(why) => {
            members.refuse("password", why);
            None
        }
    }
}

fn address(members: &mut Members<'_>) -> Option<MailAddress> {
    match MailAddress::read(members.needed("from", "the sender, such as `Shop <shop@example.com>`")?) {
        Ok(from) => Some(from),
        Err(why) => {
            members.refuse("from", why);
            None
        }
    }
}

fn domain(members: &mut Members<'_>, from: Option<&MailAddress>) -> String {
    let domain = members.text("message-id-domain");
    if let Some(wrong) = domain.filter(|domain| !is_domain(domain)) {
        let message = format!("`{wrong}` is no domain; give one such as `example.com`");
        members.refuse("message-id-domain", message);
    }
    let usual = from.map(MailAddress::domain).unwrap_or_default();
    domain.unwrap_or(usual).to_owned()
}

impl Settings for SmtpSettings {
    fn open(self: Box<Self>, environment: Environment<'_>) -> Result<Box<dyn Target>, Vec<(String, String)>> {
        let (mut redactor, mut problems) = (Redactor::default(), Vec::new());
        let password = self.password.map(|place| place.fetch(environment)).transpose();
        let password = password.map_err(|why| problems.push(("password".to_owned(), why))).ok().flatten();
        let credentials = self.user.zip(password).map(|(user, password)| {
            redactor.hide(password.expose());
            // As it is sent.
            redactor.hide(&format!("\0{user}\0{}", password.expose()));
            Credentials::new(user, password.expose().to_owned())
        });
        let tls = match self.tls {
            SmtpTls::Off => Ok(None),
            mode => parameters(&self.host, self.ca_file).map(|tls| Some((tls, mode == SmtpTls::Implicit))),
        };
        let tls = tls.map_err(|why| problems.push(("ca-file".to_owned(), why))).ok().flatten();
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Box::new(SmtpTarget {
            host: self.host,
            port: self.port,
            tls,
            credentials,
            from: self.from,
            domain: self.domain,
            drops_repetitions: self.drops_repetitions,
            redactor,
        }))
    }
}

fn parameters(host: &str, ca_file: Option<PathBuf>) -> Result<TlsParameters, String> {
    let mut building = TlsParameters::builder(host.to_owned());
    if let Some(path) = ca_file {
        let refuse = |why: &dyn fmt::Display| format!("the file {} cannot be used: {why}", path.display());
        let text = std::fs::read(&path).map_err(|error| refuse(&error))?;
        building =
            building.add_root_certificate(Certificate::from_pem(&text).map_err(|error| refuse(&error))?);
    }
    building.build().map_err(|error| format!("encryption cannot be set up: {error}"))
}

impl Target for SmtpTarget {
    fn kind(&self) -> &'static str {
        KIND.name
    }

    fn class(&self) -> &'static str {
        if self.drops_repetitions { "keyed" } else { "at-most-once" }
    }

    fn summary(&self) -> String {
        if self.drops_repetitions { "message-id".to_owned() } else { "nothing".to_owned() }
    }

    fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    fn check<'a>(&'a self, check: TargetCheck<'a>) -> Checking<'a> {
        Box::pin(async move {
            let greeting = async {
                let mut connection = self.connect().await?;
                connection.quit().await.map(drop)
            };
            match tokio::time::timeout(check.timeout, greeting).await {
                Ok(Ok(())) => Checked::fine("reached, and the credentials are accepted"),
                Ok(Err(error)) => Checked::wrong(self.redactor.text(&error.to_string())),
                Err(_) => Checked::wrong(format!("there was no answer within {:?}", check.timeout)),
            }
        })
    }
}

/// A mail that is ready to be sent: the same bytes on every attempt.
#[derive(Clone, Debug)]
pub struct Letter {
    /// Sender address of the envelope.
    pub from: Address,
    /// Addresses of all recipients.
    pub to: Vec<Address>,
    /// Headers and body, as they are sent.
    pub bytes: Vec<u8>,
}

/// Why a mail was not accepted.
#[derive(Debug)]
pub struct NotAccepted {
    /// Whether the server was ready for a mail: its refusal is then about this mail.
    pub is_about_mail: bool,
    /// What the server or the network said.
    pub error: lettre::transport::smtp::Error,
}

impl SmtpTarget {
    /// Connects, and says who we are.
    async fn connect(&self) -> Result<AsyncSmtpConnection, lettre::transport::smtp::Error> {
        let hello = ClientId::Domain(self.domain.clone());
        let (implicit, upgrade) = match &self.tls {
            Some((tls, true)) => (Some(tls.clone()), None),
            Some((tls, false)) => (None, Some(tls.clone())),
            None => (None, None),
        };
        let address = (self.host.as_str(), self.port);
        let mut connection =
            AsyncSmtpConnection::connect_tokio1(address, None, &hello, implicit, None).await?;
        if let Some(tls) = upgrade {
            connection.starttls(tls, &hello).await?;
        }
        if let Some(credentials) = &self.credentials {
            connection.auth(&MECHANISMS, credentials).await?;
        }
        Ok(connection)
    }

    /// Hands a mail over. `may_be_sent` becomes true when all of it was sent but its last line, the dot: a server that has not got
    /// that must not deliver the mail, and what happens afterwards is unknown until it answers.
    pub async fn hand_over(
        &self,
        letter: &Letter,
        may_be_sent: &AtomicBool,
    ) -> Result<Response, NotAccepted> {
        let refused = |is_about_mail| move |error| NotAccepted { is_about_mail, error };
        let mut connection = self.connect().await.map_err(refused(false))?;
        connection.command(Mail::new(Some(letter.from.clone()), Vec::new())).await.map_err(refused(true))?;
        for to in &letter.to {
            connection.command(Rcpt::new(to.clone(), Vec::new())).await.map_err(refused(true))?;
        }
        connection.command(Data).await.map_err(refused(true))?;
        // The connection asks for the next part when the one before is written, and writes the dot when there is none.
        let mut parts = std::iter::once(letter.bytes.as_slice());
        let parts = std::iter::from_fn(|| {
            let part = parts.next();
            may_be_sent.store(part.is_none(), Ordering::SeqCst);
            part
        });
        let accepted = connection.message_iter(parts).await.map_err(refused(true))?;
        // It is accepted, whatever becomes of the farewell.
        if let Err(error) = connection.quit().await {
            tracing::debug!(%error, "a mail server did not take its leave");
        }
        Ok(accepted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::members::ConnectionProblem;

    fn read_text(text: &str) -> (Option<Box<dyn Settings>>, Vec<ConnectionProblem>) {
        let table: toml::Table = toml::from_str(text).unwrap();
        let mut members = Members::new("connections.post", &table);
        let settings = read(&mut members);
        (settings, members.finish())
    }

    #[test]
    fn a_mail_server_is_described_by_its_members() {
        let text = "host = 'mail.example.com'\nuser = 'shop'\npassword = { env = 'PW' }\nfrom = 'Shop <shop@example.com>'\nrepeat = 'message-id'";
        let (settings, problems) = read_text(text);
        assert_eq!(problems, []);
        let environment = |name: &str| (name == "PW").then(|| "canary-secret".to_owned());
        let target = settings.unwrap().open(&environment).unwrap();
        assert_eq!((target.kind(), target.class(), &*target.summary()), ("smtp", "keyed", "message-id"));
        assert_eq!(target.redactor().text("535 canary-secret"), "535 ***");
        assert_eq!(format!("{target:?}"), "SmtpTarget(mail.example.com:587)");
        let plain = "host = 'localhost'\ntls = 'off'\nfrom = 'shop@example.com'";
        let target = read_text(plain).0.unwrap().open(&environment).unwrap();
        assert_eq!((target.class(), &*target.summary()), ("at-most-once", "nothing"));
    }

    #[test]
    fn what_is_wrong_with_a_mail_server_is_told_by_its_member() {
        let from = "\nfrom = 'shop@example.com'";
        for (text, member, said) in [
            ("from = 'shop@example.com'".to_owned(), "host", "missing"),
            ("host = 'a'".to_owned(), "from", "missing"),
            ("host = 'a'\nfrom = 'shop'".to_owned(), "from", "no address"),
            (format!("host = 'a'\ntls = 'ssl'{from}"), "tls", "`implicit`"),
            (format!("host = 'a'\nport = 0{from}"), "port", "65535"),
            (format!("host = 'a'\nuser = 'b'{from}"), "password", "belong together"),
            (format!("host = 'a'\nuser = 'b'\npassword = 'c'{from}"), "password", "env"),
            (
                format!("host = 'a'\ntls = 'off'\nuser = 'b'\npassword = {{ env = 'C' }}{from}"),
                "tls",
                "without encryption",
            ),
            (format!("host = 'a'\nmessage-id-domain = 'a b'{from}"), "message-id-domain", "no domain"),
            (format!("host = 'a'\nrepeat = 'key'{from}"), "repeat", "`message-id`"),
            (format!("host = 'a'\nhostt = 'b'{from}"), "hostt", "`host`"),
        ] {
            let (_, problems) = read_text(&text);
            let member = format!("connections.post.{member}");
            let found =
                |problem: &ConnectionProblem| problem.member == member && problem.message.contains(said);
            assert!(problems.iter().any(found), "{text}: {problems:?}");
        }
    }
}
