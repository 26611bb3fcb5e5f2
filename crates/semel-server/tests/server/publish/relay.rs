//! A line to a broker that loses or holds what the test says.
//!
//! Other than the proxy of the proof it looks at what is said: it acts on the request that puts a message there, and not on those
//! around it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::place::{Broker, outside};

/// How the line disturbs a request and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The line breaks before the request arrives.
    LoseRequest,
    /// The request arrives, and the line breaks before its answer does.
    LoseAnswer,
    /// The request does not arrive before it is let go.
    HoldRequest,
    /// The request arrives, and its answer not before it is let go.
    HoldAnswer,
}

/// A line to a broker.
#[derive(Clone)]
pub(crate) struct Relay {
    address: SocketAddr,
    broker: Broker,
    shared: Arc<Shared>,
}

struct Shared {
    /// How many requests meet trouble, and which.
    troubles: Mutex<(usize, Trouble)>,
    /// How many requests have met trouble.
    met: watch::Sender<usize>,
    /// Whether what is held may go on.
    let_go: watch::Sender<bool>,
    /// How many requests that were held have been answered.
    answered: watch::Sender<usize>,
}

impl Relay {
    /// A line on which this number of requests fail.
    pub(crate) fn to(broker: Broker, troubles: usize, trouble: Trouble) -> Self {
        let shared = Arc::new(Shared {
            troubles: Mutex::new((troubles, trouble)),
            met: watch::Sender::new(0),
            let_go: watch::Sender::new(false),
            answered: watch::Sender::new(0),
        });
        let told = shared.clone();
        let address = outside(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            let address = listener.local_addr().expect("it is bound");
            tokio::spawn(async move {
                while let Ok((near, _)) = listener.accept().await {
                    tokio::spawn(carry(near, broker, told.clone()));
                }
            });
            address
        });
        Self { address, broker, shared }
    }

    pub(crate) fn url(&self) -> String {
        self.broker.url_at(self.address)
    }

    /// How many requests have met trouble.
    pub(crate) fn met(&self) -> usize {
        *self.shared.met.borrow()
    }

    /// Waits until this number of requests have failed.
    pub(crate) async fn until_met(&self, requests: usize) {
        self.shared.met.subscribe().wait_for(|met| *met >= requests).await.expect("the line is there");
    }

    /// Lets go what is held, and waits until the broker has answered it.
    pub(crate) async fn let_go(&self) {
        self.shared.let_go.send_replace(true);
        self.shared.answered.subscribe().wait_for(|answered| *answered > 0).await.expect("the line is there");
    }
}

/// One connection. What puts a message into a stream is told by these words.
async fn carry(mut near: TcpStream, broker: Broker, shared: Arc<Shared>) {
    let words: &[u8] = match broker {
        Broker::Nats => b"HPUB ",
        Broker::Redis => b"EVAL",
    };
    let Ok(mut far) = TcpStream::connect(broker.address()).await else { return };
    let (mut asked, mut answer) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    loop {
        tokio::select! {
            read = near.read(&mut asked) => {
                let Ok(read @ 1..) = read else { return };
                let is_meant = asked[..read].windows(words.len()).any(|window| window == words);
                let trouble = if is_meant { shared.trouble() } else { None };
                if trouble == Some(Trouble::LoseRequest) {
                    return shared.meet();
                }
                if trouble == Some(Trouble::HoldRequest) {
                    shared.meet();
                    shared.until_let_go().await;
                }
                if far.write_all(&asked[..read]).await.is_err() {
                    return;
                }
                let Some(trouble) = trouble else { continue };
                let Ok(read @ 1..) = far.read(&mut answer).await else { return };
                match trouble {
                    Trouble::LoseAnswer => return shared.meet(),
                    Trouble::HoldAnswer => {
                        shared.meet();
                        shared.until_let_go().await;
                    }
                    Trouble::LoseRequest | Trouble::HoldRequest => {}
                }
                // Who waited for it may be gone by now.
                drop(near.write_all(&answer[..read]).await);
                shared.answered.send_modify(|answered| *answered += 1);
            }
            read = far.read(&mut answer) => {
                let Ok(read @ 1..) = read else { return };
                if near.write_all(&answer[..read]).await.is_err() {
                    return;
                }
            }
        }
    }
}

impl Shared {
    fn trouble(&self) -> Option<Trouble> {
        let mut troubles = self.troubles.lock().expect("no thread panics while it holds the lock");
        let (left, trouble) = *troubles;
        troubles.0 = left.checked_sub(1)?;
        Some(trouble)
    }

    fn meet(&self) {
        self.met.send_modify(|met| *met += 1);
    }

    async fn until_let_go(&self) {
        self.let_go.subscribe().wait_for(|let_go| *let_go).await.expect("the line is there");
    }
}
