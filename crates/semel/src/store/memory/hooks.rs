//! Hooks: tokens and the runs that own them.

use super::{HeldToken, MemoryTx};
use crate::clock::Time;
use crate::error::Result;
use crate::id::{RunId, WorkspaceId};
use crate::rules::entry::Message;
use crate::rules::key::Token;
use crate::rules::run::Run;
use crate::store::tx::{COUNTED_MESSAGES, HookRows, NewHook, tokens_of};
use crate::store::verbs::message_of;
use crate::store::{Capped, HookOrder, HookQuery, OpenHook};

impl HookRows for MemoryTx<'_> {
    async fn insert_hook(&mut self, hook: NewHook<'_>) -> Result<bool> {
        let NewHook { workspace, token, num, visit, opened } = hook;
        let at = (workspace, token.clone());
        if self.tables.hooks.contains_key(&at) {
            return Ok(false);
        }
        self.write().hooks.insert(at, HeldToken { num, visit: visit.cloned(), opened });
        Ok(true)
    }

    async fn hook_owner(&mut self, workspace: WorkspaceId, token: &Token) -> Result<Option<RunId>> {
        Ok(self.hook(workspace, token).await?.map(|run| run.id()))
    }

    async fn hook(&mut self, workspace: WorkspaceId, token: &Token) -> Result<Option<Run>> {
        let held = self.tables.hooks.get(&(workspace, token.clone()));
        Ok(held.map(|held| self.tables.runs[&held.num].clone()))
    }

    async fn delete_hook(&mut self, workspace: WorkspaceId, token: &Token, num: i64) -> Result<()> {
        let at = (workspace, token.clone());
        if self.tables.hooks.get(&at).is_some_and(|held| held.num == num) {
            self.write().hooks.remove(&at);
        }
        Ok(())
    }

    async fn delete_hooks(&mut self, num: i64) -> Result<()> {
        self.write().hooks.retain(|_, held| held.num != num);
        Ok(())
    }

    async fn open_hooks(&mut self, query: &HookQuery, limit: usize) -> Result<Vec<OpenHook>> {
        let (after, prefix, end) = tokens_of(query);
        let after = (query.after.as_ref().map_or(Time(i64::MIN), |place| place.opened), after);
        let wanted = |opened: Time, token: &str| match query.order {
            HookOrder::Token => token > after.1 && token >= prefix && token < end.as_str(),
            HookOrder::Age => (opened, token) > after,
        };
        let all = self.tables.hooks.iter().filter(|((workspace, _), _)| *workspace == query.workspace);
        let mut found: Vec<_> =
            all.filter(|((_, token), held)| wanted(held.opened, token.as_str())).collect();
        if query.order == HookOrder::Age {
            found.sort_by_key(|((_, token), held)| (held.opened, token));
        }
        let shown = |((_, token), held): (&(WorkspaceId, Token), &HeldToken)| {
            let HeldToken { num, visit, opened } = held.clone();
            let (token, run) = (token.clone(), self.tables.runs[&num].clone());
            let deliveries = self.deliveries(num, &token)?;
            Ok(OpenHook { token, run, visit, opened, deliveries })
        };
        found.into_iter().take(limit).map(shown).collect()
    }
}

impl MemoryTx<'_> {
    fn deliveries(&self, num: i64, token: &Token) -> Result<Capped> {
        let inbox = self.tables.inbox.get(&num);
        let mut deliveries = Capped::default();
        for row in inbox.into_iter().flatten().map(|(_, row)| row).take(COUNTED_MESSAGES) {
            let of =
                |message: &Message| matches!(message, Message::Delivery { token: to, .. } if to == token);
            deliveries.count += u64::from(of(&message_of(row)?));
        }
        deliveries.more = inbox.is_some_and(|inbox| inbox.len() > COUNTED_MESSAGES);
        Ok(deliveries)
    }
}
