//! The order, with an engine that dies before and after every durable write, and with a provider on a bad day.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use semel::clock::{Clock, Time, Until};
use semel::testing::{Crasher, Ended, Scene};
use semel::tx::rusqlite::{Connection, OptionalExtension as _, params};
use semel::tx::{Dialect, FenceMark, FenceRow, SQLITE, Tx, TxSource};
use semel::{Error, Result};

use super::*;
use crate::demo::provider::{Books, Desk, Event, Temper, Wire, notes};
use crate::demo::shop;

/// A till whose statements are executed on the spot: time stands still in these tests, so waiting for a thread would never end.
#[derive(Clone)]
struct Drawer(Arc<Mutex<Connection>>);

impl Drawer {
    fn new() -> Self {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(SQLITE).unwrap();
        shop::prepare(&conn).unwrap();
        Self(Arc::new(Mutex::new(conn)))
    }

    fn conn(&self) -> MutexGuard<'_, Connection> {
        self.0.lock().unwrap()
    }

    fn debits(&self) -> (u32, i64) {
        let all = "SELECT count(*), (SELECT cents FROM account) FROM debits";
        self.conn().query_row(all, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
    }
}

/// Rolled back when it is dropped.
struct Opened(Drawer);

impl Drop for Opened {
    fn drop(&mut self) {
        let conn = self.0.conn();
        if !conn.is_autocommit() {
            conn.execute_batch("ROLLBACK").unwrap();
        }
    }
}

impl TxSource for Drawer {
    type Open = Opened;
    type Conn = Opened;
    const DIALECT: Dialect = Dialect::Sqlite;

    async fn begin(&self) -> Result<Opened> {
        self.conn().execute_batch("BEGIN IMMEDIATE")?;
        Ok(Opened(self.clone()))
    }

    async fn script(&self, sql: &str) -> Result<()> {
        Ok(self.conn().execute_batch(sql)?)
    }

    async fn find(open: &mut Opened, sql: &str, key: &str) -> Result<Option<FenceRow>> {
        let held = |row: &semel::tx::rusqlite::Row<'_>| {
            Ok(FenceRow { run: row.get(0)?, fence: row.get(1)?, attempt: row.get(2)?, outcome: row.get(3)? })
        };
        Ok(open.0.conn().query_row(sql, [key], held).optional()?)
    }

    async fn put(open: &mut Opened, sql: &str, mark: &FenceMark, outcome: Option<&str>) -> Result<u64> {
        let FenceMark { key, run, step, fence, attempt } = mark;
        Ok(open.0.conn().execute(sql, params![key, run, step, fence, attempt, outcome])? as u64)
    }

    async fn commit(open: Opened) -> Result<()> {
        Ok(open.0.conn().execute_batch("COMMIT")?)
    }

    async fn rollback(open: Opened) -> Result<()> {
        Ok(open.0.conn().execute_batch("ROLLBACK")?)
    }

    fn conn(open: &Opened) -> &Opened {
        open
    }

    fn conn_mut(open: &mut Opened) -> &mut Opened {
        open
    }
}

impl Till for Drawer {
    async fn debit(tx: &mut Tx<Self>, order: &str, cents: u64) -> Result<i64> {
        shop::debit(&tx.0.conn(), order, cents)
    }
}

/// It is always late enough.
struct Hurried;

impl Clock for Hurried {
    fn now(&self) -> Time {
        Time(0)
    }

    fn uuid(&self) -> uuid::Uuid {
        unreachable!("the shop draws no ids")
    }

    fn until(&self, _: Time) -> Until {
        Box::pin(std::future::ready(()))
    }
}

/// What survives every crash.
#[derive(Clone)]
struct World {
    folder: Arc<tempfile::TempDir>,
    desk: Arc<Desk>,
    till: Drawer,
}

impl World {
    fn new(seed: u64) -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let books = Books::open(&folder.path().join("provider.jsonl")).unwrap();
        let desk = Arc::new(Desk::new(books, Temper::bad(seed), Arc::new(Hurried), |_| {}));
        Self { folder, desk, till: Drawer::new() }
    }

    fn shop(&self) -> Shop<Drawer> {
        let provider = Wire::Here(self.desk.clone());
        Shop { till: self.till.clone(), provider, clock: Arc::new(Hurried) }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("provider.jsonl")
    }

    fn applied(&self, kind: EffectKind) -> usize {
        let notes = notes(&self.file()).unwrap();
        notes.iter().filter(|note| note.ask.kind == kind && matches!(note.event, Event::Applied(_))).count()
    }
}

async fn play(scene: Scene<World>, approval: bool) -> Result<Receipt, Error> {
    let input = Order { order: "7".to_owned(), amount: 1999, approval: Some(approval) };
    let run = scene.engine().start(order::<Drawer>, input).key("order-7").await?;
    if approval {
        let yes = OrderApproval { approved: true, by: "Ada".to_owned() };
        scene.deliver(&token("7"), yes, "click-1").await?;
    }
    run.result().await
}

fn check(ended: &Ended<World, String>) {
    let (debits, left) = ended.world.till.debits();
    assert_eq!((debits, left), (1, shop::OPENING - 1999), "one debit");
    for kind in [EffectKind::Charge, EffectKind::Letter, EffectKind::Receipt] {
        assert_eq!(ended.world.applied(kind), 1, "one {}", kind.name());
    }
    assert_eq!(ended.runs.len(), 1);
}

#[test]
fn an_order_has_every_effect_once_wherever_its_engine_dies() {
    for (seed, approval) in [(1, true), (2, true), (3, false), (4, false)] {
        let crasher = Crasher::new(
            move || World::new(seed),
            |world, engine| engine.state(world.shop()).workflow(NAME, order::<Drawer>),
            // Which effect gets the first number depends on the crash; that there is one of each does not.
            async move |scene: Scene<World>| {
                let receipt = play(scene, approval).await?;
                Ok(format!("{} {} {:?}", receipt.order, receipt.balance, receipt.approved_by))
            },
        );
        let plays = crasher.every_boundary(check);
        assert!(plays > 10, "{plays} plays");
        crasher.every_fault(check);
    }
}

#[test]
fn a_refused_order_costs_nothing() {
    let crasher = Crasher::new(
        || World::new(1),
        |world, engine| engine.state(world.shop()).workflow(NAME, order::<Drawer>),
        async |scene: Scene<World>| {
            let input = Order { order: "7".to_owned(), amount: 1999, approval: Some(true) };
            let run = scene.engine().start(order::<Drawer>, input).key("order-7").await?;
            let no = OrderApproval { approved: false, by: "Ada".to_owned() };
            scene.deliver(&token("7"), no, "click-1").await?;
            let refused = run.result().await.expect_err("it was refused").to_string();
            // It depends on the run's id, which is another one if the first start was lost.
            Ok(refused.split_once(' ').expect("an id and words").1.to_owned())
        },
    );
    crasher.every_boundary(|ended| {
        assert_eq!(ended.value, "has failed: 7 was refused by Ada");
        assert_eq!((ended.world.applied(EffectKind::Charge), ended.world.till.debits().0), (0, 0));
    });
}

#[test]
fn what_cannot_be_ordered_is_refused_with_a_reason() {
    let order = |order: &str, amount| Order { order: order.to_owned(), amount, approval: None };
    for (wrong, why) in [
        (order("", 1), "name"),
        (order(&"x".repeat(101), 1), "name"),
        (order("7", 0), "costs"),
        (order("7", LARGEST + 1), "costs"),
    ] {
        let refused = wrong.check().unwrap_err();
        assert!(refused.is_fatal() && refused.to_string().contains(why), "{refused}");
    }
    assert!(order("7", LARGEST).check().is_ok());
    assert!(order("7", NEEDS_APPROVAL).needs_approval());
    assert!(!order("7", NEEDS_APPROVAL - 1).needs_approval());
}
