//! Mails through providers that lose their answers, by what the providers' pages say about a repeated request.
//!
//! `cargo run -p semel --features remote --example mail_once`

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::Client;
use semel::profiles::RESEND;
use semel::{Ctx, Engine, Fail, Result, Retry};

/// The way to the providers.
struct Mails {
    client: Client,
    base: String,
}

/// Resend remembers a key for a day: the step asks again with the same key for as long.
async fn welcome(ctx: Ctx, text: String) -> Result<String> {
    let mails = ctx.state::<Mails>();
    ctx.step("welcome")
        .retry(Retry::fixed(Duration::from_millis(1)))
        .profile(&RESEND)
        .run(async |attempt| {
            let post = mails.client.post(format!("{}/emails", mails.base));
            let request = post.header("Idempotency-Key", RESEND.key(&attempt)).body(text.clone());
            // No answer: the mail may have been sent.
            let answer = request.send().await.map_err(Fail::retryable)?;
            let (status, body) = (answer.status().as_u16(), answer.text().await.map_err(Fail::retryable)?);
            RESEND.answered(status, &body)?;
            Ok(body)
        })
        .await
}

/// A provider that takes no keys, and can be searched for a reference: after a lost answer it is asked first.
async fn receipt(ctx: Ctx, text: String) -> Result<String> {
    let mails = ctx.state::<Mails>();
    ctx.step("receipt")
        .retry(Retry::fixed(Duration::from_millis(1)))
        .reconcile(async |attempt| {
            let found = mails.client.get(format!("{}/messages/{}", mails.base, attempt.key())).send().await;
            let found = found.map_err(Fail::uncertain)?;
            Ok(if found.status().is_success() { Some(found.text().await?) } else { None })
        })
        .run(async |attempt| {
            let post = mails.client.post(format!("{}/messages/{}", mails.base, attempt.key()));
            let answer = post.body(text.clone()).send().await.map_err(Fail::uncertain)?;
            answer.text().await.map_err(Fail::uncertain)
        })
        .await
}

#[tokio::main]
async fn main() -> Result<()> {
    // The providers are on this machine, but a client wants to know how it would encrypt.
    drop(rustls::crypto::ring::default_provider().install_default());
    let provider = Provider::start()?;
    let mails = Mails { client: Client::new(), base: provider.base.clone() };
    let engine = Engine::builder().store("memory:").state(mails);
    let engine = engine.workflow("welcome", welcome).workflow("receipt", receipt).open().await?;

    let id = engine.start(welcome, "Welcome!".to_owned()).key("ann").await?.result().await?;
    println!("welcome       {id}");
    let id = engine.start(receipt, "Paid.".to_owned()).key("order-7").await?.result().await?;
    println!("receipt       {id}");
    for asked in provider.asked.lock().expect("no panics here").iter() {
        println!("asked         {asked}");
    }
    println!(
        "sent          {:?}",
        provider.sent.lock().expect("no panics here").iter().map(|mail| &mail.1).collect::<Vec<_>>()
    );
    Ok(())
}

/// A provider that does what it is asked, and whose first answer to each mail is lost.
#[derive(Clone, Default)]
struct Provider {
    base: String,
    /// Methods and paths of all requests; keys are left out.
    asked: Arc<Mutex<Vec<String>>>,
    /// Keys and texts of the mails that were sent.
    sent: Arc<Mutex<Vec<(String, String)>>>,
}

impl Provider {
    fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let provider = Self { base: format!("http://{}", listener.local_addr()?), ..Self::default() };
        let serving = provider.clone();
        std::thread::spawn(move || {
            // A caller that has gone away gets no answer.
            listener.incoming().flatten().for_each(|stream| drop(serving.serve(stream)));
        });
        Ok(provider)
    }

    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let mut words = line.split_whitespace().map(str::to_owned);
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (mut key, mut length) = (path.rsplit('/').next().unwrap_or_default().to_owned(), 0);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            match line.trim().split_once(": ") {
                Some(("idempotency-key", value)) => value.clone_into(&mut key),
                Some(("content-length", value)) => length = value.parse().unwrap_or_default(),
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let (_, folder) = path.split_once('/').unwrap_or_default();
        let place = folder.split('/').next().unwrap_or_default();
        self.asked.lock().expect("no panics here").push(format!("{method} /{place}"));
        let mut sent = self.sent.lock().expect("no panics here");
        let known = sent.iter().position(|(of, _)| *of == key);
        let answer = match (method.as_str(), known) {
            ("GET", None) => {
                "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned()
            }
            (_, Some(at)) => {
                let id = format!("mail {}", at + 1);
                format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{id}", id.len())
            }
            // It is sent, and the line breaks.
            (_, None) => {
                sent.push((key, String::from_utf8_lossy(&body).into_owned()));
                return Ok(());
            }
        };
        stream.write_all(answer.as_bytes())
    }
}
