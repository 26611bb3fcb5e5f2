//! `agent` and `planner`: tools and their arguments, failures, limits, choices.

use serde_json::json;

use super::server::Say;
use super::{failure, ran, scripted, text, value};
use crate::definitions::check::check;
use crate::definitions::graph::Graph;

/// An agent with a tool of the definition, and tools of an MCP server.
const AGENT: &str = "steps:
  - name: opinion
    retry: {first: 1ms}
    agent:
      on: model
      system: You judge orders.
      prompt: 'Order {{ input.order }}'
      tools:
        - {name: charge, about: Charges., input: {n: integer}, http: {on: shop, post: /effects/charge, json: {n: '{{ call.n }}'}}, keep: '{{ this.body.n }}'}
        - {mcp: crm, only: [find, book, fails]}
      output: {type: object, required: [risk], properties: {risk: {enum: [low, high]}}}
      limits: {rounds: 5}";

#[tokio::test]
async fn tools_are_called_and_their_results_are_told() {
    let server = scripted(|round, _, question| match round {
        0 => {
            let tools: Vec<_> =
                question["tools"].as_array().unwrap().iter().map(|tool| &tool["function"]["name"]).collect();
            assert_eq!(tools, ["charge", "find", "book", "fails"]);
            Say::Tools(vec![
                ("charge", json!({"n": 7})),
                ("find", json!({"n": 8})),
                ("book", json!({"n": 9})),
            ])
        }
        _ => {
            let messages = question["messages"].as_array().unwrap();
            let told: Vec<_> = messages.iter().filter(|message| message["role"] == "tool").collect();
            assert_eq!((&told[0]["tool_call_id"], &told[0]["content"]), (&json!("c0-0"), &json!("7")));
            assert!(told[1]["content"].as_str().unwrap().contains("find of 8"), "{told:?}");
            assert!(told[2]["content"].as_str().unwrap().contains("book of 9"), "{told:?}");
            text(r#"{"risk":"low"}"#)
        }
    });
    let ran = ran(&server, AGENT).await;
    let semel::rules::entry::Outcome::Completed(told) = ran.outcome else { panic!("{:?}", ran.outcome) };
    let told: serde_json::Value = told.read().unwrap();
    assert_eq!((&told["output"], &told["calls"]), (&json!({"risk": "low"}), &json!(2)));
    assert_eq!(
        (server.count("charge"), server.count("find"), server.count("book")),
        (1, 1, 2),
        "one answer was lost"
    );
    assert_eq!(server.keys("book").len(), 1);
    for path in
        ["opinion/model#2", "opinion/tool[1-1]/charge", "opinion/tool[1-2]/find", "opinion/tools[crm]"]
    {
        assert!(ran.history.contains(&format!("\"{path}\"")), "{path}: {}", ran.history);
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_call_is_told_to_the_model_and_not_carried_out() {
    let server = scripted(|round, _, question| match round {
        0 => Say::Tools(vec![
            ("charge", json!({"n": "seven"})),
            ("charge", json!("{")),
            ("pay", json!({})),
            ("fails", json!({"n": 1})),
        ]),
        _ => {
            let messages = question["messages"].as_array().unwrap();
            let told: Vec<_> = messages.iter().filter(|message| message["role"] == "tool").collect();
            for (told, why) in told.iter().zip(["/n", "no JSON", "no tool `pay`", "has failed"]) {
                assert!(told["content"].as_str().unwrap().contains(why), "{told}");
            }
            text(r#"{"risk":"high"}"#)
        }
    });
    assert_eq!(value(&server, AGENT).await["output"], json!({"risk": "high"}));
    assert_eq!((server.count("charge"), server.count("fails")), (0, 1));
}

#[tokio::test]
async fn an_agent_ends_at_its_limits() {
    let server = scripted(|round, _, _| Say::Tools(vec![("charge", json!({"n": round}))]));
    let failed = failure(&server, AGENT).await;
    assert_eq!(
        (failed.code.as_deref(), server.count("model"), server.count("charge")),
        (Some("LIMIT"), 5, 5)
    );
    let server = scripted(|round, _, _| Say::Tools(vec![("charge", json!({"n": round}))]));
    let failed = failure(&server, &AGENT.replace("rounds: 5", "tokens: 200")).await;
    assert_eq!((failed.code.as_deref(), server.count("model")), (Some("LIMIT"), 2));
}

#[tokio::test]
async fn an_agent_speaks_messages_too() {
    let server = scripted(|round, _, question| match round {
        0 => Say::Tools(vec![("charge", json!({"n": 7}))]),
        _ => {
            let last = question["messages"].as_array().unwrap().last().unwrap();
            assert_eq!(last["content"][0]["tool_use_id"], "c0-0", "{last}");
            text(r#"{"risk":"low"}"#)
        }
    });
    assert_eq!(
        value(&server, &AGENT.replace("on: model", "on: claude")).await["output"],
        json!({"risk": "low"})
    );
    assert_eq!(server.count("charge"), 1);
}

#[tokio::test]
async fn a_tool_that_the_server_does_not_have_is_noticed_before_the_model_is_asked() {
    let server = scripted(|_, _, _| text("{}"));
    let failed = failure(&server, &AGENT.replace("only: [find", "only: [findd")).await;
    assert_eq!((failed.code.as_deref(), server.count("model")), (Some("MCP"), 0), "{}", failed.message);
}

/// The guide, whose example is played.
const GUIDE: &str = include_str!("../../../../../../docs/agents.md");

fn block(kind: &str) -> &'static str {
    let rest = GUIDE.split_once(&format!("```{kind}\n")).unwrap().1;
    rest.split_once("```").unwrap().0
}

#[tokio::test]
async fn the_example_of_the_guide_does_what_it_says() {
    let config: toml::Table = toml::from_str(block("toml")).unwrap();
    crate::connections::check(config["connections"].as_table().unwrap(), block("toml")).unwrap();
    let server = scripted(|round, _, _| match round {
        0 => Say::Tools(vec![("find", json!({"n": 1})), ("charge", json!({"n": 2}))]),
        _ => text(r#"{"risk":"low"}"#),
    });
    let steps = block("yaml").split_once("name: judge-order\n").unwrap().1;
    let ran = ran(&server, steps).await;
    let semel::rules::entry::Outcome::Completed(told) = ran.outcome else { panic!("{:?}", ran.outcome) };
    assert_eq!(told.read::<serde_json::Value>().unwrap(), json!({"risk": "low", "cost": 0.0004}));
    for row in GUIDE.lines().filter(|line| line.starts_with("| `opinion/")) {
        let path = row.split('`').nth(1).unwrap();
        assert!(ran.history.contains(&format!("\"{path}\"")), "{path}: {}", ran.history);
    }
}

const PLAN: &str = "steps:
  - name: plan
    planner:
      on: model
      prompt: Ship the order.
      steps:
        - {name: look, about: Looks., mcp: {on: crm, tool: find, args: {n: 1}}, keep: '{{ this.text }}'}
        - {name: charge, about: Charges., input: {n: integer}, http: {on: shop, post: /effects/charge, json: {n: '{{ call.n }}'}}}
      limits: {rounds: 8}";

fn chosen(step: &str, rest: &serde_json::Value) -> Say {
    let mut next = json!({"step": step, "why": "it is next"});
    next.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    text(&json!({"next": next}).to_string())
}

#[tokio::test]
async fn a_planner_carries_out_what_is_chosen_until_it_is_done() {
    let server = scripted(|round, _, question| {
        let last = question["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap();
        match round {
            0 => chosen("look", &json!({"input": {}})),
            1 => {
                assert!(last.contains("find of 1"), "{last}");
                chosen("charge", &json!({"input": {"n": "x"}}))
            }
            2 => {
                assert!(last.contains("/n"), "{last}");
                chosen("fly", &json!({"input": {}}))
            }
            3 => {
                assert!(last.contains("no tool `fly`"), "{last}");
                chosen("charge", &json!({"input": {"n": 5}}))
            }
            _ => chosen("done", &json!({"result": {"shipped": true}})),
        }
    });
    let ran = ran(&server, PLAN).await;
    let semel::rules::entry::Outcome::Completed(told) = ran.outcome else { panic!("{:?}", ran.outcome) };
    let told: serde_json::Value = told.read().unwrap();
    assert_eq!(told["result"], json!({"shipped": true}));
    assert_eq!(
        told["steps"],
        json!([{"step": "look", "input": {}, "failed": false}, {"step": "charge", "input": {"n": 5}, "failed": false}])
    );
    assert_eq!((server.count("model"), server.count("find"), server.count("charge")), (5, 1, 1));
    assert!(ran.history.contains("\"plan/step[2]/charge\""), "{}", ran.history);
}

#[test]
fn models_tools_and_choices_are_nodes_of_the_graph() {
    for (steps, expected) in [
        (
            AGENT,
            vec![
                "opinion agent none -",
                "opinion/model model keyed model",
                "opinion/tool[*]/charge http by-connection shop",
                "opinion/tool[*]/find mcp by-connection crm",
                "opinion/tool[*]/book mcp by-connection crm",
                "opinion/tool[*]/fails mcp by-connection crm",
            ],
        ),
        (
            PLAN,
            vec![
                "plan planner none -",
                "plan/model model keyed model",
                "plan/step[*]/look mcp by-connection crm",
                "plan/step[*]/charge http by-connection shop",
            ],
        ),
    ] {
        let graph = Graph::of(&check(&format!("semel: 1\nname: tested\n{steps}")).unwrap().definition);
        let nodes: Vec<_> = graph
            .nodes
            .iter()
            .map(|node| {
                let class = serde_json::to_value(node.class).unwrap();
                let (class, on) = (class.as_str().unwrap(), node.connection.as_deref().unwrap_or("-"));
                format!(
                    "{} {} {class} {}",
                    node.path,
                    node.kind,
                    if node.parent.is_some() { on } else { "-" }
                )
            })
            .collect();
        assert_eq!(nodes, expected);
        assert_eq!(graph.edges.len(), expected.len() - 1, "each part follows its step");
    }
}
