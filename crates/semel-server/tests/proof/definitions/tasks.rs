//! The parts of the tasks that work with other products: databases, brokers, mails and messages, models, tools, documents. They are branches of
//! one block, so that a kill meets many of them at once. A task that is added to the language gets a branch or a step here, its effects
//! in [`TASKS`], and its other side in [`super::components`].

use super::parts::PartSort::{Doubtable, Sure};
use super::parts::{Part, effect};

/// The databases, with one statement and one message each, and a transaction over two of them.
const DATABASES: &str = "
      bank:
        - {name: row, sql: {on: bank, run: 'INSERT INTO deed (place) VALUES (:at)', args: {at: 'PLACE work/bank/row'}, expect: 1}, STAY}
        - {name: told, publish: {on: bank, subject: done, data: {at: 'PLACE work/bank/told'}}, STAY}
      stock:
        - {name: row, sql: {on: stock, run: 'INSERT INTO deed (place) VALUES (:at)', args: {at: 'PLACE work/stock/row'}, expect: 1}, STAY}
        - {name: told, publish: {on: stock, subject: done, data: {at: 'PLACE work/stock/told'}}, STAY}
      till:
        - {name: row, sql: {on: till, run: 'INSERT INTO deed (place) VALUES (:at)', args: {at: 'PLACE work/till/row'}, expect: 1}, STAY}
        - {name: told, publish: {on: till, subject: done, data: {at: 'PLACE work/till/told'}}, STAY}
      both:
        - name: book
          STAY
          transaction:
            - {name: debit, sql: {on: bank, run: 'INSERT INTO deed (place) VALUES (:at)', args: {at: 'PLACE work/both/book/debit'}, expect: 1}}
            - {name: reserve, sql: {on: stock, run: 'INSERT INTO deed (place) VALUES (:at)', args: {at: 'PLACE work/both/book/reserve'}, expect: 1}}
            - {name: told, publish: {on: bank, subject: booked, data: {at: 'PLACE work/both/book/told'}}}";

const BROKERS: &str = "
      brokers:
        - {name: nats, publish: {on: events, subject: STREAM.done, data: {at: 'PLACE work/brokers/nats'}}, STAY}
        - {name: brief, publish: {on: events, subject: STREAMbrief.done, data: {at: 'PLACE work/brokers/brief'}}, STAY}
        - {name: redis, publish: {on: cache, stream: STREAM, data: {at: 'PLACE work/brokers/redis'}}, STAY}";

const LETTERS: &str = "
      letters:
        - {name: post, mail: {on: post, to: ann@example.com, subject: 'PLACE work/letters/post', text: Hello}, STAY, keep: {id: '{{ this.id }}'}}
        - {name: keyed, mail: {on: letters, to: ann@example.com, subject: 'PLACE work/letters/keyed', text: Hello}, RETRY, KEEP}
        - {name: text, sms: {on: texts, to: '+41791234567', text: 'PLACE work/letters/text'}, RETRY, KEEP}
        - {name: ring, call: {on: voice, to: '+41791234567', text: 'PLACE work/letters/ring'}, RETRY, KEEP}
        - {name: told, set: {letter: '{{ steps.keyed.n }}', text: '{{ steps.text.n }}', ring: '{{ steps.ring.n }}'}}";

const MODELS: &str = "
      models:
        - {name: asked, llm: {on: model, prompt: 'PLACE work/models/asked', output: {type: object, required: [n], properties: {n: {type: integer}}}}, STAY}
        - {name: spoken, llm: {on: claude, prompt: 'PLACE work/models/spoken'}, STAY}
        - {name: once, class: at-most-once, llm: {on: model, prompt: 'PLACE work/models/once'}, STAY}
        - {name: told, set: {asked: '{{ steps.asked.output.n }}', spoken: '{{ steps.spoken.text|int }}', paid: '{{ steps.once.text|int }}'}}";

const AGENTS: &str = "
      agents:
        - name: agent
          STAY
          agent:
            on: model
            prompt: 'PLACE work/agents/agent'
            tools:
              - {name: charge, about: Charges., input: {at: string}, http: {on: key, post: /effects, json: {at: '{{ call.at }}'}}, RETRY, KEEP}
              - {name: keep, about: Keeps., input: {at: string}, mcp: {on: tools, tool: book, args: {at: '{{ call.at }}'}}, STAY}
              - {name: push, about: Pushes., input: {at: string}, mcp: {on: tools, tool: push, args: {at: '{{ call.at }}'}}, STAY}
              - {mcp: tools, only: [find]}
        - name: plan
          STAY
          planner:
            on: model
            prompt: 'PLACE work/agents/plan'
            steps: [{name: charge, about: Charges., input: {at: string}, http: {on: key, post: /effects, json: {at: '{{ call.at }}'}}, RETRY, KEEP}]
        - {name: told, set: {agreed: '{{ steps.agent.text|int }}', planned: '{{ steps.plan.result }}'}}";

const LIBRARY: &str = "
      library:
        - {name: know, ingest: {on: library, embed: {on: model}, document: 'PLACE work/library/know', text: 'PLACE work/library/know/embed'}, STAY}";

const TOOLS: &str = "
      tools:
        - {name: book, mcp: {on: tools, tool: book, args: {at: 'PLACE work/tools/book'}}, STAY, keep: {n: '{{ this.output.n }}'}}
        - {name: push, mcp: {on: tools, tool: push, args: {at: 'PLACE work/tools/push'}}, STAY, keep: {n: '{{ this.output.n }}'}}
        - {name: told, set: {booked: '{{ steps.book.n }}', pushed: '{{ steps.push.n }}'}}";

/// The block around them.
const WORK: &str = "
  - name: work
    parallel:";

/// The effects of a step of `transaction`: all of them are there, or none.
pub(super) const TOGETHER: [&str; 3] =
    ["work/both/book/debit", "work/both/book/reserve", "work/both/book/told"];

/// All of them.
pub(super) const TASKS: &[Part] = &[
    Part { steps: WORK, effects: &[] },
    Part {
        steps: DATABASES,
        effects: &[
            effect("work/bank/row", Sure, ""),
            effect("work/bank/told", Sure, ""),
            effect("work/stock/row", Sure, ""),
            effect("work/stock/told", Sure, ""),
            effect("work/till/row", Sure, ""),
            effect("work/till/told", Sure, ""),
            effect(TOGETHER[0], Sure, ""),
            effect(TOGETHER[1], Sure, ""),
            effect(TOGETHER[2], Sure, ""),
        ],
    },
    Part {
        steps: BROKERS,
        effects: &[
            effect("work/brokers/nats", Sure, ""),
            effect("work/brokers/brief", Sure, ""),
            effect("work/brokers/redis", Sure, ""),
        ],
    },
    Part {
        steps: LETTERS,
        effects: &[
            effect("work/letters/post", Doubtable, ""),
            effect("work/letters/keyed", Sure, "work/letters/letter"),
            effect("work/letters/text", Doubtable, "work/letters/text"),
            effect("work/letters/ring", Sure, "work/letters/ring"),
        ],
    },
    Part {
        steps: MODELS,
        effects: &[
            effect("work/models/asked/model", Sure, ""),
            effect("work/models/asked/model#2", Sure, "work/models/asked"),
            effect("work/models/spoken/model", Sure, "work/models/spoken"),
            effect("work/models/once/model", Doubtable, "work/models/paid"),
        ],
    },
    Part {
        steps: AGENTS,
        effects: &[
            effect("work/agents/agent/model", Sure, ""),
            effect("work/agents/agent/tool[1-1]/charge", Sure, ""),
            effect("work/agents/agent/tool[1-3]/keep", Sure, ""),
            effect("work/agents/agent/model#2", Sure, ""),
            effect("work/agents/agent/tool[2-1]/push", Doubtable, ""),
            effect("work/agents/agent/model#3", Sure, "work/agents/agreed"),
            effect("work/agents/plan/model", Sure, ""),
            effect("work/agents/plan/step[1]/charge", Sure, ""),
            effect("work/agents/plan/model#2", Sure, "work/agents/planned"),
        ],
    },
    Part {
        steps: TOOLS,
        effects: &[
            effect("work/tools/book", Sure, "work/tools/booked"),
            effect("work/tools/push", Doubtable, "work/tools/pushed"),
        ],
    },
    Part {
        steps: LIBRARY,
        effects: &[effect("work/library/know/embed", Sure, ""), effect("work/library/know", Sure, "")],
    },
];

/// The connections to a provider of mails, text messages and calls, as the server's file has them.
pub(super) fn channels(base: &str) -> String {
    let channel = |name: &str, from: &str, profile: &str, json: &str| {
        format!(
            "[connections.{name}]\nkind = \"http\"\nbase = \"{base}/{name}\"\ntimeout = \"500ms\"\nfrom = \"{from}\"\n\
             [connections.{name}.profile]\n{profile}\npost = \"/effects\"\nid = \"{{{{ body.n }}}}\"\njson = {json}\n"
        )
    };
    let (number, key) = ("+41440000000", "by = \"key\"\nheader = \"Idempotency-Key\"\nwindow");
    let (mail, short) = (
        "{ at = \"{{ message.subject }}\", to = \"{{ message.to_text | join(', ') }}\", text = \"{{ message.text }}\" }",
        "{ at = \"{{ message.text }}\", to = \"{{ message.to }}\" }",
    );
    [
        channel(
            "letters",
            "shop@example.com",
            &format!("{key} = \"for-ever\"\n[connections.letters.profile.mail]"),
            mail,
        ),
        channel("texts", number, "by = \"nothing\"\n[connections.texts.profile.sms]", short),
        channel("voice", number, &format!("{key} = \"24h\"\n[connections.voice.profile.call]"), short),
    ]
    .concat()
}
