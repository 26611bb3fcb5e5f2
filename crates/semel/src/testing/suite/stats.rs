//! Figures over time: what is counted, and for how long it is kept.

use super::world::{STRANGER, WORKSPACE, World, code, name, payload};
use crate::clock::Time;
use crate::rules::control::ControlAction;
use crate::rules::entry::Resolution;
use crate::rules::start::Start;
use crate::rules::stats::Stats;
use crate::store::{StatsQuery, StatsSeries};

promises![
    figures_tell_what_has_happened,
    figures_of_a_workspace_are_its_own,
    figures_of_minutes_add_up_to_steps_and_hours,
    figures_are_told_by_workflow,
    figures_outlive_the_process,
    old_figures_are_forgotten_some_at_a_time,
];

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;

/// The figures of the last days.
fn query(world: &World, step: u32) -> StatsQuery {
    let from = Time(world.now().0 - (u64::from(step) * 1_000 * MINUTE) as i64);
    StatsQuery { workspace: WORKSPACE, from, to: world.after(1), step, workflows: false }
}

async fn read(world: &World, query: StatsQuery) -> StatsSeries {
    world.store().stats(query).await.expect("figures")
}

fn sum(series: &StatsSeries) -> Stats {
    let mut sum = Stats::default();
    series.buckets.iter().for_each(|bucket| sum.add(&bucket.stats));
    sum
}

async fn figures_tell_what_has_happened(world: World) {
    let mut driver = world.driven("k").await;
    driver.open("t").await;
    world.start("k").await;
    let other = Start { input: payload("2"), ..world.request("k") };
    assert_eq!(code(world.try_start(other).await), "KEY_REUSED");
    for _ in 0..2 {
        world.deliver_as("d", "t", "1").await.expect("accepted or absorbed");
    }
    let mut zombie = driver.clone();
    driver.step("a").await.expect("ours");
    assert_eq!(code(zombie.step("late").await), "CONCURRENCY_ERROR");
    driver.doubt("charge").await;
    let (step, resolution) = (super::world::visit("charge"), Resolution::Happened(payload("1")));
    world.control(driver.id(), ControlAction::Resolve { step, resolution }).await.expect("resolved");
    world.pass(1_500);
    world
        .control(driver.id(), ControlAction::Cancel { reason: "enough".to_owned() })
        .await
        .expect("cancelled");
    world
        .control(driver.id(), ControlAction::Cancel { reason: "enough".to_owned() })
        .await
        .expect("absorbed");
    let sum = sum(&read(&world, query(&world, 1)).await);
    assert_eq!((sum.created, sum.attached, sum.refused), (1, 1, 1), "{sum:?}");
    assert_eq!((sum.deliveries, sum.duplicate_deliveries, sum.duplicate_controls), (1, 1, 1), "{sum:?}");
    assert_eq!((sum.steps, sum.stale, sum.doubts_opened, sum.doubts_settled), (1, 1, 1, 1), "{sum:?}");
    assert_eq!((sum.cancelled, sum.completed, sum.duration.quantile(1_000)), (1, 0, Some(2_000)), "{sum:?}");
}

async fn figures_of_a_workspace_are_its_own(world: World) {
    world.start("k").await;
    let theirs = StatsQuery { workspace: STRANGER, ..query(&world, 1) };
    assert_eq!(read(&world, theirs).await, StatsSeries::default());
    let long = StatsQuery { from: Time(0), ..query(&world, 1) };
    assert_eq!(code(world.store().stats(long).await), "VALIDATION_ERROR", "too many buckets");
}

async fn figures_of_minutes_add_up_to_steps_and_hours(world: World) {
    // From the beginning of an hour on.
    world.pass(HOUR - world.now().0.unsigned_abs() % HOUR);
    let began = world.now();
    for n in 0..4 {
        world.start(&format!("k{n}")).await;
        world.pass(MINUTE);
    }
    world.pass(HOUR);
    world.start("later").await;
    let shown = |series: &StatsSeries| -> Vec<_> {
        series.buckets.iter().map(|bucket| (bucket.at.0 - began.0, bucket.stats.created)).collect()
    };
    let minute = MINUTE as i64;
    let by_minute = read(&world, query(&world, 1)).await;
    assert_eq!(shown(&by_minute)[..4], [0, 1, 2, 3].map(|n| (n * minute, 1)));
    let by_two = read(&world, query(&world, 2)).await;
    assert_eq!(shown(&by_two), [(0, 2), (2 * minute, 2), (64 * minute, 1)]);
    let by_hour = read(&world, query(&world, 60)).await;
    assert_eq!(shown(&by_hour), [(0, 4), (60 * minute, 1)]);
    let later = StatsQuery { from: Time(began.0 + 2 * minute), ..query(&world, 1) };
    assert_eq!(shown(&read(&world, later).await).len(), 3);
}

async fn figures_are_told_by_workflow(world: World) {
    world.start("a").await;
    world.begin(Start { workflow: name("letter"), ..world.request("b") }).await;
    world.begin(Start { workflow: name("letter"), ..world.request("c") }).await;
    let series = read(&world, StatsQuery { workflows: true, ..query(&world, 1) }).await;
    let created: Vec<_> =
        series.workflows.named.iter().map(|(name, stats)| (name.as_str(), stats.created)).collect();
    assert_eq!((created, &series.workflows.other), (vec![("letter", 2), ("order", 1)], &None));
    assert_eq!(sum(&series).created, 3);
}

async fn figures_outlive_the_process(mut world: World) {
    world.start("a").await;
    world.reopen().await;
    world.start("b").await;
    assert_eq!(sum(&read(&world, query(&world, 1)).await).created, 2);
}

async fn old_figures_are_forgotten_some_at_a_time(world: World) {
    for n in 0..3 {
        world.start(&format!("k{n}")).await;
        world.pass(MINUTE);
    }
    let minutes = async |world: &World| {
        let from = Time(world.now().0 - (8 * 24 * HOUR) as i64);
        read(world, StatsQuery { from, ..query(world, 59) }).await.buckets.len()
    };
    let hours = async |world: &World| sum(&read(world, query(world, 180)).await).created;
    assert!(minutes(&world).await > 0);
    world.pass(7 * 24 * HOUR + MINUTE);
    assert_eq!(world.sweep(2).await.stats, 2);
    assert_eq!((world.sweep(2).await.stats, minutes(&world).await, hours(&world).await), (1, 0, 3));
    world.pass(83 * 24 * HOUR + HOUR);
    let swept = world.sweep(10).await.stats;
    assert!(swept == 1 || swept == 2, "the hours in which they were: {swept}");
    assert_eq!(hours(&world).await, 0);
}
