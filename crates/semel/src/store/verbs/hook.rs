//! Listing open hooks.

use crate::error::Result;
use crate::store::tx::{StoreTx, Verb};
use crate::store::{HookPage, HookQuery, OpenHook};

impl Verb for HookQuery {
    type Answer = HookPage;
    const READS: bool = true;
    const SCANS: bool = true;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<HookPage> {
        if self.limit == 0 {
            return Ok(HookPage::default());
        }
        // One more than is shown tells whether there is a next page.
        let mut hooks = tx.open_hooks(self, self.limit.saturating_add(1)).await?;
        let full = hooks.len() > self.limit;
        hooks.truncate(self.limit);
        let next = hooks.last().filter(|_| full).map(OpenHook::place);
        Ok(HookPage { hooks, next })
    }
}
