//! An agent whose tools are no calls: statements, a child, a step of a worker, a question to a person.

use std::collections::BTreeMap;

use libtest_mimic::Trial;
use semel::Error;
use semel::clock::Clock as _;
use semel::id::{NodeId, WorkspaceId};
use semel::rules::status::Status;
use semel::testing::{Crasher, Scene};
use semel_server::api::Choice;
use semel_server::approvals::{Approvals, Decided};
use serde_json::json;

use super::crashes::{print_labels, replayed, told};
use super::play::Stage;
use crate::databases::number;

pub(super) fn trials() -> Vec<Trial> {
    vec![Trial::test(
        "tasks::the_tools_of_an_agent_do_their_work_once_whatever_write_the_engine_dies_at",
        || {
            tools();
            Ok(())
        },
    )]
}

const AGENT: &str = "semel: 1
name: tested
steps:
  - name: work
    agent:
      on: model
      prompt: Do it.
      tools:
        - {name: history, about: Reads., input: {owner: string}, sql: {on: bank, read: 'SELECT cents FROM account WHERE owner = :who', args: {who: '{{ call.owner }}'}}}
        - {name: debit, about: Debits., input: {n: integer}, sql: {on: bank, run: 'UPDATE account SET cents = cents - :n WHERE owner = :who', args: {n: '{{ call.n }}', who: ann}, expect: 1}}
        - {name: below, about: Starts., input: {path: string}, child: {run: leaf, input: {path: '{{ call.path }}'}, later: true}}
        - {name: label, about: Prints., input: {n: integer}, worker: {queue: labels, input: {n: '{{ call.n }}', key: '{{ effect.key }}'}}}
        - {name: ask, about: Asks., input: {what: string}, approval: {title: '{{ call.what }}', timeout: 2d}}
      limits: {rounds: 3}
return: '{{ steps.work.text }}'";

const LEAF: &str = "semel: 1
name: leaf
steps: [{name: told, http: {on: for-ever, post: '/{{ input.path }}'}}]
return: {path: '{{ input.path }}'}";

/// Approves what is open.
async fn approve(scene: &Scene<Stage>) -> Result<(), Error> {
    let approvals = Approvals::new(scene.store().clone());
    let (open, _) = approvals.page(WorkspaceId::DEFAULT, None, 100).await?;
    for (id, approval) in open {
        assert_eq!(approval.title, "May I?");
        let (at, call) = (scene.clock().now(), scene.clock().uuid());
        let decision = Some(Choice::Approved);
        let decided = Decided { decision, content: None, comment: None, by: "Ada".to_owned(), at, call };
        approvals.decide(id, &decided).await?;
    }
    Ok(())
}

fn tools() {
    let documents = [AGENT.to_owned(), LEAF.to_owned()];
    let crasher = Crasher::new(
        move || Stage::new(&documents, false).with_bank(),
        Stage::engine,
        async |scene: Scene<Stage>| {
            scene.world().account.says(json!([
                [
                    ["history", {"owner": "ben"}],
                    ["debit", {"n": 30}],
                    ["below", {"path": "below"}],
                    ["label", {"n": 7}],
                    ["ask", {"what": "May I?"}]
                ],
                "done"
            ]));
            let run = Stage::start(&scene, &json!({})).await?;
            let node = NodeId(scene.clock().uuid());
            let work = async || -> Result<bool, Error> {
                print_labels(&scene, node).await?;
                approve(&scene).await?;
                Ok(scene.status(run.id()).await.is_ok_and(Status::is_terminal))
            };
            scene.until(async || work().await.expect("the store of the others lives")).await;
            let value = run.outcome().await.map(told)?;
            replayed(&scene).await?;
            Ok(value)
        },
    );
    let plays = crasher.every_boundary(|ended| {
        assert_eq!(ended.value, json!("done"), "{:?}", ended.world);
        let account = ended.world.account;
        let all = [("/keyed/below", 1), ("/labels", 1), ("/model/chat/completions", 2)];
        let all: BTreeMap<_, _> = all.map(|(path, times)| (path.to_owned(), times)).into();
        assert_eq!(account.all_times(), all);
        assert_eq!(
            account.refused(),
            Vec::<String>::new(),
            "each question is asked again with the same text"
        );
        assert!(account.writes() <= 3 + ended.crashes.len(), "one call more for each crash at most");
        let bank = ended.world.bank.as_ref().expect("it has one");
        assert_eq!(number(bank, "SELECT cents FROM account WHERE owner = 'ann'"), 970);
        let asked = account.done().pop().expect("the last effect is the second question").body;
        for told in ["1000", "affected", "below", "approved"] {
            assert!(asked.contains(told), "the model is not told of {told}: {asked}");
        }
    });
    assert!(plays > 20, "{plays}");
}
