//! The same random calls on every store, compared answer by answer with the memory store.

use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
use semel::testing::differential::{Call, calls, compare};
use semel::testing::suite::{Stores, World};

use crate::{runtime, stores};

/// How many sequences are played, unless `SEMEL_DIFFERENTIAL_CASES` says it: some seconds on all stores.
const CASES: u32 = 30;

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test("differential::all_stores_agree", all_stores_agree)]
}

fn all_stores_agree() -> Result<(), Failed> {
    let cases = match std::env::var("SEMEL_DIFFERENTIAL_CASES") {
        Ok(text) => text.parse()?,
        Err(_) => CASES,
    };
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 2_000, ..Config::default() };
    let mut stores = stores::all();
    // Alone it is compared with itself, and each of them is looked at for its soundness all the same.
    if stores.len() == 1 {
        stores.push(stores[0].clone());
    }
    let runtime = runtime(false);
    let outcome = TestRunner::new(config).run(&calls(), |calls| {
        runtime.block_on(play(&stores, &calls)).map_err(|e| TestCaseError::fail(e.to_string()))
    });
    match outcome {
        Ok(()) => Ok(()),
        Err(TestError::Fail(reason, calls)) => {
            let listed: Vec<String> =
                calls.iter().enumerate().map(|(n, call)| format!("  {n}: {call:?}")).collect();
            Err(format!("{reason}\nwith these calls:\n{}", listed.join("\n")).into())
        }
        Err(error) => Err(error.to_string().into()),
    }
}

async fn play(stores: &[Arc<dyn Stores>], calls: &[Call]) -> Result<(), Box<dyn std::error::Error>> {
    let mut worlds = Vec::new();
    for stores in stores {
        worlds.push(World::new(&**stores).await?);
    }
    let compared = compare(&worlds, calls).await;
    for world in worlds {
        world.discard().await;
    }
    Ok(compared?)
}
