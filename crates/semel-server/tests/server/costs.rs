//! `GET /workflow-runs/{id}/cost`: recorded calls of models, added up over runs.

use semel::{Ctx, WorkflowName};
use serde_json::{Value, json};

use crate::world::{World, cases};

cases![costs_are_added_up_with_those_of_children, a_run_that_has_called_no_model_has_no_cost];

fn answer(model: &str, cost: Option<f64>) -> Value {
    let used = json!({"connection": "model", "model": model, "usage": {"in": 100, "out": 10}, "cost": cost});
    json!({"semel:model": used})
}

/// Asks two models, and lets as many children do the same.
async fn asks(ctx: Ctx, children: u32) -> semel::Result<()> {
    for n in 1..=2 {
        ctx.step("model").key(n).run(async |_| Ok(answer("small", Some(0.0002)))).await?;
    }
    ctx.step("other").run(async |_| Ok(answer("large", None))).await?;
    ctx.step("plain").run(async |_| Ok(json!({"text": "semel:model"}))).await?;
    for n in 0..children {
        ctx.child(WorkflowName::new("asks"), children - 1).key(n).await?.outcome().await?;
    }
    Ok(())
}

async fn costs_are_added_up_with_those_of_children(world: World) {
    let _engine = world.engine(|builder| builder.workflow("asks", asks)).await;
    // Two children, with one child each.
    let run = world.client.start("asks", "k", "2").await;
    world.client.ended(&run).await;
    let cost = world.client.get(&format!("/workflow-runs/{run}/cost")).await.ok();
    let sum = |calls: u64, cost: f64, unpriced: u64| json!({"calls": calls, "usage": {"in": calls * 100, "out": calls * 10}, "cost": cost, "unpriced": unpriced});
    let with = |mut value: Value, rest: Value| {
        value.as_object_mut().expect("an object").extend(rest.as_object().expect("an object").clone());
        value
    };
    let models = json!([
        with(sum(5, 0.0, 5), json!({"connection": "model", "model": "large"})),
        with(sum(10, 0.002, 0), json!({"connection": "model", "model": "small"})),
    ]);
    assert_eq!(
        cost,
        with(sum(15, 0.002, 5), json!({"run": run, "runs": 5, "complete": true, "models": models}))
    );
}

async fn a_run_that_has_called_no_model_has_no_cost(world: World) {
    let _engine = world.doubling().await;
    let run = world.client.start("double", "k", "2").await;
    world.client.ended(&run).await;
    let cost = world.client.get(&format!("/workflow-runs/{run}/cost")).await.ok();
    assert_eq!((&cost["calls"], &cost["models"], &cost["complete"]), (&json!(0), &json!([]), &json!(true)));
    world.client.get("/workflow-runs/run_01j0000000e00800000000007z/cost").await.problem(404, "NOT_FOUND");
}
