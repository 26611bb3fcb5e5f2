//! One try at a step, as its body sees it.

use std::sync::{Arc, OnceLock};

use uuid::Uuid;

use crate::clock::Clock;
use crate::engine::cell::Cell;
use crate::id::RunId;
use crate::rules::key::EffectKey;
use crate::rules::path::Visit;
use crate::sabotage::{self, Bug};

/// One try at a step. Its [key](Attempt::key) is the same on every try, over crashes, restarts and takeovers: hand it to
/// whoever is asked to do something, so that they can tell a repetition.
#[derive(Clone, Debug)]
pub struct Attempt {
    cell: Arc<Cell>,
    visit: Visit,
    number: u32,
    fence: u64,
    key: OnceLock<String>,
}

impl Attempt {
    pub(crate) fn new(cell: Arc<Cell>, visit: Visit, number: u32) -> Self {
        let fence = cell.lock().ledger.fence();
        Self { cell, visit, number, fence, key: OnceLock::new() }
    }

    /// The clock of its engine.
    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.cell.core.clock
    }

    /// Which try this is: 1, 2, 3 …
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The effect key: 34 characters.
    pub fn key(&self) -> &str {
        self.key.get_or_init(|| match sabotage::commits(Bug::KeyPerTry) {
            true => self.effect_key(&self.fence.to_string()).to_string(),
            false => self.effect_key("").to_string(),
        })
    }

    /// The effect key for those who want a UUID.
    pub fn key_uuid(&self) -> Uuid {
        self.effect_key("").uuid()
    }

    /// The key of one of several effects of the same step.
    pub fn key_for(&self, label: &str) -> String {
        self.effect_key(label).to_string()
    }

    fn effect_key(&self, label: &str) -> EffectKey {
        self.cell.lock().ledger.effect_key(&self.visit, label)
    }

    /// The version of the claim under which this try is made. It only ever grows: a database that remembers the highest
    /// it has seen can refuse whoever comes with a lower one.
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// Whether the result will be of no use: the run was taken over, or was asked to end.
    pub fn is_cancelled(&self) -> bool {
        self.cell.is_stopped()
    }

    /// The run it belongs to.
    pub fn run_id(&self) -> RunId {
        self.cell.id
    }

    /// Where in the run this is, as in the ledger.
    pub fn path(&self) -> String {
        self.visit.to_string()
    }
}
