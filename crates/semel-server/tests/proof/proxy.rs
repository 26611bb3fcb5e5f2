//! A TCP proxy between two parties that must survive what networks do: cuts, silence, delay, and another address.
//!
//! It stands in front of PostgreSQL or of a server; clients connect to its [`address`](Proxy::address).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::clock::SystemClock;
use semel::remote::{Options, RemoteStore};
use semel::store::Store;
use semel::{Ctx, Engine};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::said::PATIENCE;
use crate::victim::Victim;

/// What all connections on the line are told. Numbers of cuts and silences only grow: a connection compares them with those that
/// it was born with.
#[derive(Clone, Copy)]
struct Orders {
    target: SocketAddr,
    delay: Duration,
    /// Connections are swallowed as soon as they are made.
    silent: bool,
    silences: u64,
    cuts: u64,
    cut: Cut,
}

/// How connections end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// With a reset, as from a machine that has restarted.
    Reset,
    /// In good order, as from a process that ends.
    Close,
}

/// A proxy that listens on a port of its own until it is dropped.
pub(crate) struct Proxy {
    address: SocketAddr,
    orders: watch::Sender<Orders>,
    /// How many connections it has taken up.
    taken: watch::Sender<u64>,
    /// Each connection that there is has one of it.
    used: Arc<()>,
    listening: JoinHandle<()>,
}

impl Proxy {
    /// Passes everything on to an address.
    pub(crate) async fn to(target: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let orders = watch::Sender::new(Orders {
            target,
            delay: Duration::ZERO,
            silent: false,
            silences: 0,
            cuts: 0,
            cut: Cut::Close,
        });
        let told = orders.clone();
        let taken = watch::Sender::new(0);
        let counted = taken.clone();
        let used = Arc::new(());
        let using = used.clone();
        let listening = tokio::spawn(async move {
            while let Ok((inbound, _)) = listener.accept().await {
                let mut told = told.subscribe();
                let born = *told.borrow_and_update();
                counted.send_modify(|taken| *taken += 1);
                let using = using.clone();
                tokio::spawn(async move {
                    carry(inbound, told, born).await;
                    drop(using);
                });
            }
        });
        Ok(Self { address, orders, taken, used, listening })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether a client is connected.
    pub(crate) fn is_used(&self) -> bool {
        // One is held here, one by the listener.
        Arc::strong_count(&self.used) > 2
    }

    /// Waits until it has taken up so many connections, each under the orders of that moment.
    async fn has_taken(&self, connections: u64) -> Result<(), Failed> {
        self.taken.subscribe().wait_for(|taken| *taken >= connections).await?;
        Ok(())
    }

    /// New connections go to another address from now on; those that there are stay where they are.
    pub(crate) fn retarget(&self, target: SocketAddr) {
        self.orders.send_modify(|orders| orders.target = target);
    }

    /// Ends all connections, on both sides.
    pub(crate) fn cut(&self, cut: Cut) {
        self.orders.send_modify(|orders| {
            orders.cut = cut;
            orders.cuts += 1;
        });
    }

    /// Half-open: all connections stay, and whatever is said on them, or on new ones, is swallowed. Neither side hears that
    /// the other has gone.
    pub(crate) fn silence(&self) {
        self.orders.send_modify(|orders| {
            orders.silent = true;
            orders.silences += 1;
        });
    }

    /// New connections pass again, without delay. Those that were silenced stay so until they are cut: a real
    /// network would not tell them either.
    pub(crate) fn pass(&self) {
        self.orders.send_modify(|orders| {
            orders.silent = false;
            orders.delay = Duration::ZERO;
        });
    }

    /// Everything takes this much longer, in each direction.
    pub(crate) fn delay(&self, delay: Duration) {
        self.orders.send_modify(|orders| orders.delay = delay);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listening.abort();
        self.cut(Cut::Reset);
    }
}

/// One connection, from its beginning to its end.
async fn carry(mut inbound: TcpStream, orders: watch::Receiver<Orders>, born: Orders) {
    let mut outbound = match born.silent {
        true => None,
        false => match TcpStream::connect(born.target).await {
            Ok(outbound) => Some(outbound),
            // The target is down: the client is told by the end of the connection.
            Err(_) => return,
        },
    };
    let mut told = orders.clone();
    let cut = tokio::select! {
        told = told.wait_for(|now| now.cuts > born.cuts) => told.map_or(Cut::Reset, |now| now.cut),
        ended = exchange(&mut inbound, outbound.as_mut(), &orders, born) => match ended {
            Ok(()) => Cut::Close,
            Err(_) => Cut::Reset,
        },
    };
    if cut == Cut::Reset {
        for stream in outbound.iter().chain([&inbound]) {
            // One that is gone already needs no reset.
            drop(stream.set_zero_linger());
        }
    }
}

async fn exchange(
    inbound: &mut TcpStream,
    outbound: Option<&mut TcpStream>,
    orders: &watch::Receiver<Orders>,
    born: Orders,
) -> io::Result<()> {
    inbound.set_nodelay(true)?;
    let Some(outbound) = outbound else {
        let (mut from, _to) = inbound.split();
        return swallow(&mut from).await;
    };
    outbound.set_nodelay(true)?;
    let ((here, there), (back, forth)) = (inbound.split(), outbound.split());
    tokio::try_join!(pump(here, forth, orders.clone(), born), pump(back, there, orders.clone(), born))
        .map(drop)
}

/// One direction. An end is passed on; but not by a line that has fallen silent.
async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut orders: watch::Receiver<Orders>,
    born: Orders,
) -> io::Result<()> {
    let mut bytes = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut bytes).await;
        let delay = orders.borrow().delay;
        if delay > Duration::ZERO {
            // A cut comes through at once.
            drop(tokio::time::timeout(delay, orders.wait_for(|now| now.cuts > born.cuts)).await);
        }
        if orders.borrow().silences > born.silences {
            return swallow(&mut from).await;
        }
        match read? {
            0 => return to.shutdown().await,
            read => to.write_all(&bytes[..read]).await?,
        }
    }
}

/// Reads and discards what comes, and never ends by itself: an end is not told to the other side either.
async fn swallow(from: &mut ReadHalf<'_>) -> io::Result<()> {
    let mut bytes = vec![0; 16 * 1024];
    while from.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
    std::future::pending().await
}

pub(crate) fn trials() -> Vec<Trial> {
    crate::trials![
        what_is_said_passes_both_ways_and_so_does_the_end,
        a_cut_is_heard_by_both_sides,
        a_silent_line_swallows_and_says_nothing,
        a_delay_delays,
        new_connections_go_to_the_new_address,
        a_worker_goes_on_whatever_becomes_of_its_connections,
    ]
}

/// Two ends of a line through a proxy.
async fn line(proxy: &Proxy, listener: &TcpListener) -> io::Result<(TcpStream, TcpStream)> {
    let (near, far) = tokio::join!(TcpStream::connect(proxy.address()), listener.accept());
    Ok((near?, far?.0))
}

async fn proxied() -> io::Result<(Proxy, TcpListener)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    Ok((Proxy::to(listener.local_addr()?).await?, listener))
}

async fn say(stream: &mut TcpStream, text: &[u8]) -> io::Result<()> {
    stream.write_all(text).await
}

async fn hear(stream: &mut TcpStream, text: &[u8]) -> Result<(), Failed> {
    let mut heard = vec![0; text.len()];
    stream.read_exact(&mut heard).await?;
    assert_eq!(heard, text);
    Ok(())
}

async fn what_is_said_passes_both_ways_and_so_does_the_end() -> Result<(), Failed> {
    let (proxy, listener) = proxied().await?;
    let (mut near, mut far) = line(&proxy, &listener).await?;
    say(&mut near, b"ping").await?;
    hear(&mut far, b"ping").await?;
    say(&mut far, b"pong").await?;
    hear(&mut near, b"pong").await?;
    near.shutdown().await?;
    assert_eq!(far.read(&mut [0; 8]).await?, 0, "the end is passed on");
    say(&mut far, b"late").await?;
    hear(&mut near, b"late").await
}

async fn a_cut_is_heard_by_both_sides() -> Result<(), Failed> {
    let (proxy, listener) = proxied().await?;
    for (cut, heard) in [(Cut::Close, Ok(0)), (Cut::Reset, Err(io::ErrorKind::ConnectionReset))] {
        let (mut near, mut far) = line(&proxy, &listener).await?;
        say(&mut near, b"ping").await?;
        hear(&mut far, b"ping").await?;
        proxy.cut(cut);
        for side in [&mut near, &mut far] {
            assert_eq!(side.read(&mut [0; 8]).await.map_err(|error| error.kind()), heard, "{cut:?}");
        }
    }
    Ok(())
}

async fn a_silent_line_swallows_and_says_nothing() -> Result<(), Failed> {
    let (proxy, listener) = proxied().await?;
    let (mut near, mut far) = line(&proxy, &listener).await?;
    say(&mut near, b"ping").await?;
    hear(&mut far, b"ping").await?;
    proxy.silence();
    say(&mut near, b"lost").await?;
    let mut during = TcpStream::connect(proxy.address()).await?;
    say(&mut during, b"lost").await?;
    proxy.has_taken(2).await?;
    proxy.pass();
    // A line that is made afterwards lives; what was said on the others before and since is lost, their end too.
    let (mut other, mut there) = line(&proxy, &listener).await?;
    say(&mut near, b"lost").await?;
    near.shutdown().await?;
    say(&mut other, b"ping").await?;
    hear(&mut there, b"ping").await?;
    let nothing = tokio::time::timeout(Duration::from_millis(200), far.read(&mut [0; 8])).await;
    assert!(nothing.is_err(), "the far side hears {nothing:?}");
    proxy.cut(Cut::Close);
    assert_eq!(far.read(&mut [0; 8]).await?, 0);
    assert_eq!(during.read(&mut [0; 8]).await?, 0);
    Ok(())
}

async fn a_delay_delays() -> Result<(), Failed> {
    const DELAY: Duration = Duration::from_millis(300);
    let (proxy, listener) = proxied().await?;
    let (mut near, mut far) = line(&proxy, &listener).await?;
    proxy.delay(DELAY);
    let clock = SystemClock::new();
    say(&mut near, b"ping").await?;
    hear(&mut far, b"ping").await?;
    assert!(clock.elapsed() >= DELAY);
    Ok(())
}

async fn new_connections_go_to_the_new_address() -> Result<(), Failed> {
    let (proxy, old) = proxied().await?;
    let (mut near, mut far) = line(&proxy, &old).await?;
    let new = TcpListener::bind("127.0.0.1:0").await?;
    proxy.retarget(new.local_addr()?);
    let (mut second, mut there) = line(&proxy, &new).await?;
    say(&mut second, b"new").await?;
    hear(&mut there, b"new").await?;
    say(&mut near, b"old").await?;
    hear(&mut far, b"old").await?;
    // The target is gone: the connection is accepted, and ends.
    drop(new);
    let mut refused = TcpStream::connect(proxy.address()).await?;
    assert_eq!(refused.read(&mut [0; 8]).await?, 0);
    Ok(())
}

async fn walk(ctx: Ctx, steps: u64) -> semel::Result<u64> {
    for step in 0..steps {
        ctx.step("walk").key(step.to_string()).run(async |_| Ok(step)).await?;
    }
    Ok(steps)
}

/// Every run ends in time: no lost answer, silence or delay between a worker and its server makes one hang.
async fn a_worker_goes_on_whatever_becomes_of_its_connections() -> Result<(), Failed> {
    const STEPS: u64 = 20;
    let victim = Victim::serve(Victim::command(), "memory:").await?;
    let proxy = Proxy::to(victim.address()?).await?;
    let options =
        Options { timeout: Duration::from_secs(2), ..Options::new(format!("http://{}", proxy.address())) };
    let store: Arc<dyn Store> = Arc::new(RemoteStore::open(options).await?);
    let engine = Engine::builder().store(store).workflow("walk", walk).open().await?;
    let disturbances: [fn(&Proxy); 4] = [
        |proxy| proxy.cut(Cut::Reset),
        |proxy| proxy.cut(Cut::Close),
        |proxy| proxy.delay(Duration::from_millis(20)),
        |proxy| {
            proxy.silence();
            proxy.pass();
        },
    ];
    for (n, disturb) in disturbances.iter().enumerate() {
        let mut runs = Vec::new();
        for place in 0..10 {
            runs.push(engine.start(walk, STEPS).key(format!("{n}-{place}")).await?);
            if place == 5 {
                disturb(&proxy);
            }
        }
        for run in runs {
            let ended = tokio::time::timeout(PATIENCE, run.result()).await;
            assert_eq!(ended.map_err(|_| format!("a run hangs after disturbance {n}"))??, STEPS);
        }
    }
    engine.shutdown(Duration::from_secs(1)).await?;
    Ok(())
}
