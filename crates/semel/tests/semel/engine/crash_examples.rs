//! The workflows of the examples, each killed before and after every durable write it makes.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use libtest_mimic::Trial;
use semel::rules::entry::{Outcome, Resolution};
use semel::rules::json::Payload;
use semel::rules::status::Status;
use semel::testing::{Crasher, Scene};
use semel::tx::SqliteDb;
use semel::{Engine, Error, Limits};
use tempfile::TempDir;
use tokio::runtime::Builder as Runtime;

macro_rules! examples {
    ($($name:ident $file:literal),* $(,)?) => {
        $(
            #[path = $file]
            #[expect(dead_code, reason = "only the workflow is used here; the example's `main` is run as a program")]
            mod $name;
        )*
    };
}

examples![
    approval "../../../examples/approval.rs",
    charge_once "../../../examples/charge_once.rs",
    children "../../../examples/children.rs",
    duplicates "../../../examples/duplicates.rs",
    fan_out "../../../examples/fan_out.rs",
    hello "../../../examples/hello.rs",
    reconcile "../../../examples/reconcile.rs",
    replay_ci "../../../examples/replay_ci.rs",
    saga "../../../examples/saga.rs",
    several_engines "../../../examples/several_engines.rs",
    transactional "../../../examples/transactional.rs",
];

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, test: fn()| {
        Trial::test(format!("engine::crash_examples::{name}"), move || {
            test();
            Ok(())
        })
    };
    vec![
        trial("hello", greets),
        trial("charge_once", charges),
        trial("reconcile", reconciles),
        trial("approval", approves),
        trial("duplicates", forwards),
        trial("duplicates_adopt_in_an_engine_with_one_place", adopts),
        trial("fan_out", fans_out),
        trial("children", has_children),
        trial("saga", cleans_up),
        trial("several_engines", works),
        trial("replay_ci", orders),
        trial("transactional", pays),
    ]
}

fn greets() {
    let crasher = Crasher::new(
        || (),
        |(), engine| engine.workflow("greet", hello::greet),
        async |scene: Scene<()>| {
            scene.engine().start(hello::greet, "world".to_owned()).key("k").await?.result().await
        },
    );
    assert!(crasher.every_boundary(|ended| assert_eq!(ended.value, "Hello, world!")) > 5);
}

fn charges() {
    let crasher = Crasher::new(
        Arc::<charge_once::Provider>::default,
        |provider, engine| engine.shared_state(provider.clone()).workflow("charge", charge_once::charge),
        async |scene: Scene<Arc<charge_once::Provider>>| {
            scene.engine().start(charge_once::charge, 1999).key("order-7").await?.result().await
        },
    );
    crasher.every_boundary(|ended| assert_eq!(ended.value, 1, "one key, one charge"));
}

fn reconciles() {
    let crasher = Crasher::new(
        Arc::<reconcile::Printer>::default,
        |printer, engine| engine.shared_state(printer.clone()).workflow("send", reconcile::send),
        async |scene: Scene<Arc<reconcile::Printer>>| {
            scene.engine().start(reconcile::send, "Dear A".to_owned()).key("k").await?.result().await
        },
    );
    crasher.every_boundary(|ended| {
        assert_eq!(ended.value, "found: Dear A");
        assert_eq!(ended.world.printed(), 1, "the printer takes no keys, and prints once all the same");
    });
}

fn approves() {
    let crasher = Crasher::new(
        || (),
        |(), engine| engine.workflow("order", approval::order),
        async |scene: Scene<()>| {
            let run = scene.engine().start(approval::order, 7).key("k").await?;
            scene.deliver("order:7", approval::Approval { by: "Ada".to_owned(), yes: true }, "click").await?;
            run.result().await
        },
    );
    crasher.every_boundary(|ended| assert_eq!(ended.value, "approved by Ada"));
}

fn forwards() {
    let crasher = Crasher::new(
        || (),
        |(), engine| engine.state(OnceLock::<Engine>::new()).workflow("collect", duplicates::collect),
        async |scene: Scene<()>| {
            let engine = scene.engine();
            engine.state::<OnceLock<Engine>>().expect("given").get_or_init(|| engine.clone());
            let start = |name: &str, key: &str| {
                engine.start(duplicates::collect, ("cart:7".to_owned(), name.to_owned())).key(key)
            };
            let owner = start("first", "owner").await?;
            let ready = async || {
                let ended = scene.status(owner.id()).await.is_ok_and(Status::is_terminal);
                ended || matches!(scene.owner("cart:7").await, Ok(Some(_)))
            };
            scene.until(ready).await;
            let one = start("forward", "one").await?.result().await?;
            let two = start("forward", "two").await?.result().await?;
            if !scene.status(owner.id()).await?.is_terminal() {
                scene.deliver("cart:7", 0u64, "end").await?;
            }
            Ok::<_, Error>((one, two, owner.result().await?))
        },
    );
    crasher.every_boundary(|ended| assert_eq!(ended.value, (0, 0, 10), "each is handed over once"));
}

/// Two runs wait for the owner's result on an engine with one slot: they must leave the slot to the owner.
fn adopts() {
    let crasher = Crasher::new(
        || (),
        |(), engine| {
            let lease = Duration::from_hours(24 * 365 * 100);
            let engine = engine.limits(Limits { driven: 1, lease, ..Limits::default() });
            engine.state(OnceLock::<Engine>::new()).workflow("collect", duplicates::collect)
        },
        async |scene: Scene<()>| {
            let engine = scene.engine();
            engine.state::<OnceLock<Engine>>().expect("given").get_or_init(|| engine.clone());
            let start = |name: &str, key: &str| {
                engine.start(duplicates::collect, ("cart:7".to_owned(), name.to_owned())).key(key)
            };
            let owner = start("first", "owner").await?;
            // A run that asks when the owner has ended (the script is played again) has found the owner before.
            scene.until_status(owner.id(), Status::Waiting).await;
            let (one, two) = (start("adopt", "one").await?, start("adopt", "two").await?);
            for run in [&one, &two] {
                scene.until_status(run.id(), Status::Waiting).await;
            }
            scene.deliver("cart:7", 5u64, "five").await?;
            scene.deliver("cart:7", 0u64, "end").await?;
            Ok::<_, Error>((owner.result().await?, one.result().await?, two.result().await?))
        },
    );
    crasher.every_boundary(|ended| assert_eq!(ended.value, (5, 5, 5), "all have what the owner has"));
}

fn fans_out() {
    let crasher = Crasher::new(
        || (),
        |(), engine| engine.workflow("measure", fan_out::measure),
        async |scene: Scene<()>| {
            let cities = ["Ulm", "Bern", "Roma"].map(str::to_owned).to_vec();
            scene.engine().start(fan_out::measure, cities).key("k").await?.result().await
        },
    );
    crasher.every_boundary(|ended| assert_eq!(ended.value, "3 cities, 220 and 220, quick true"));
}

fn has_children() {
    let crasher = Crasher::new(
        || (),
        |(), engine| engine.workflow("price-of", children::price_of).workflow("total-of", children::total_of),
        async |scene: Scene<()>| {
            let items = ["ink", "pens"].map(str::to_owned).to_vec();
            scene.engine().start(children::total_of, items).key("k").await?.result().await
        },
    );
    crasher.every_boundary(|ended| {
        assert_eq!(ended.value, 700);
        assert_eq!(ended.runs.len(), 4, "the parent and its three children, each started once");
    });
}

fn cleans_up() {
    let crasher = Crasher::new(
        Arc::<saga::Agency>::default,
        |agency, engine| engine.shared_state(agency.clone()).workflow("trip", saga::trip),
        async |scene: Scene<Arc<saga::Agency>>| {
            let parts = ["hotel", "train"].map(str::to_owned).to_vec();
            let run = scene.engine().start(saga::trip, parts).key("k").await?;
            scene.until_status(run.id(), Status::Waiting).await;
            run.call_id("enough").request_cancel("enough").await?;
            run_outcome(&scene, "k").await
        },
    );
    crasher.every_boundary(|ended| {
        assert_eq!(ended.value, Outcome::Cancelled("enough".to_owned()));
        assert_eq!(ended.world.booked(), [""; 0], "everything is unbooked");
    });
}

async fn run_outcome<W>(scene: &Scene<W>, key: &str) -> Result<Outcome, Error> {
    let run = scene.engine().run_by_key(key).await?.expect("it was started");
    scene.settle(&run, |_, _| Resolution::Happened(Payload::null())).await
}

fn works() {
    let crasher = Crasher::new(
        || (),
        |(), engine| engine.workflow("work", several_engines::work),
        async |scene: Scene<()>| {
            scene.engine().start(several_engines::work, 2).key("k").await?.result().await
        },
    );
    crasher.every_boundary(|ended| assert_eq!(ended.value, 30));
}

/// The code whose histories are replayed. The replay itself writes nothing, and so has no boundary of its own.
fn orders() {
    let crasher = Crasher::new(
        || (),
        |(), engine| engine.workflow("order", replay_ci::order),
        async |scene: Scene<()>| {
            let run = scene.engine().start(replay_ci::order, 700).key("k").await?;
            // The letter is written at most once, so a crash may leave it in doubt.
            scene.settled(&run, |_, _| Resolution::Happened(Payload::null())).await
        },
    );
    crasher.every_boundary(|ended| assert_eq!(ended.value, "charged 700"));
}

/// A bank in a folder that is deleted with the last reference to the bank.
#[derive(Clone, Debug)]
struct SharedBank(SqliteDb, #[expect(dead_code, reason = "kept for its drop")] Arc<TempDir>);

impl SharedBank {
    fn fresh() -> Self {
        let folder = TempDir::new().expect("a folder for the file");
        let bank = now(transactional::account(folder.path()));
        Self(bank, Arc::new(folder))
    }
}

/// Waits for the bank.
pub(super) fn now<T>(future: impl Future<Output = semel::Result<T>>) -> T {
    let runtime = Runtime::new_current_thread().enable_all().build().expect("a runtime can be made");
    runtime.block_on(future).expect("the bank works")
}

fn pays() {
    let crasher = Crasher::new(
        SharedBank::fresh,
        |bank, engine| {
            let engine = engine.state(bank.0.clone()).state(transactional::Dies(false));
            engine.workflow("pay", transactional::pay)
        },
        async |scene: Scene<SharedBank>| {
            scene.engine().start(transactional::pay, 30).key("order-7").await?.result().await
        },
    );
    let plays = crasher.every_boundary(|ended| {
        assert_eq!(ended.value, 970);
        assert_eq!(now(transactional::balance(&ended.world.0)), 970, "debited once");
    });
    assert!(plays >= 4, "before and after the start, before and after the commit");
}
