// Plays programs of the language of crates/semel/tests/programs (`Act`), which a Rust test draws. Each line of stdin is a program as
// JSON, `{"key": "…", "place": "p", "acts": [{"Step": {"n": 1, "fails": 0}}, …]}`; each line of stdout tells what happened, as it
// happens: `{"ready": true}`, `{"run": "…", "key": "…"}`, `{"applied": "s1", "key": "e1…"}`, `{"ended": "key", "status": "…", "result": […]}`.
// Effects of keys that were applied before count again: a provider that recognises keys is on the other side.
import { createInterface } from 'node:readline';
import { fatal, RunFailed, Semel, workflow, Cancelled, Fail, type Attempt, type Ctx } from '../src/index.js';

type Program = [place: string, acts: Act[]];
type Act = { [kind: string]: any };

const FIXED = { initial: '1s', factor: 1, jitter: 0, maxAttempts: 4 };
/** How often an effect took place, by key. */
const applied = new Map<string, number>();

function tell(what: object): void {
  process.stdout.write(`${JSON.stringify(what)}\n`);
}

function apply(name: string, key: string): void {
  applied.set(key, (applied.get(key) ?? 0) + 1);
  tell({ applied: name, key });
}

function effect<T>(name: string, value: T): (a: Attempt) => T {
  return a => {
    apply(name, a.key);
    return value;
  };
}

const shared = (n: number) => `q${n % 2}`;

async function playAll(ctx: Ctx, place: string, acts: Act[]): Promise<string[]> {
  const values: string[] = [];
  for (const act of acts) {
    const [kind, of] = Object.entries(act)[0]!;
    const player = players[kind];
    if (player === undefined) throw fatal(`there is no act ${kind}`);
    values.push(...await player(ctx, place, of));
  }
  return values;
}

const players: { [kind: string]: (ctx: Ctx, place: string, of: any) => Promise<string[]> } = {
  Step: async (ctx, _, { n, fails }) => [await ctx.step(`s${n}`, a => {
    if (a.number <= fails) throw new Error('as planned');
    return effect(`s${n}`, `s${n}`)(a);
  }, { retry: FIXED })],
  Fatal: async (ctx, _, { n }) => {
    const failed = await ctx.step(`f${n}`, a => { apply(`f${n}`, a.key); throw fatal('as planned'); }).catch((fail: Fail) => fail);
    if (failed instanceof Cancelled) throw failed;
    return [`f${n} failed`];
  },
  Fails: async (ctx, _, { n, times }) => [await ctx.step(`x${n}`, a => {
    const before = applied.get(a.key) ?? 0;
    apply(`x${n}`, a.key);
    if (before < times) throw fatal('the run is to fail here');
    return `x${n}`;
  })],
  Letter: async (ctx, _, { n }) => [await ctx.step(`m${n}`, effect(`m${n}`, `m${n}`), { atMostOnce: true })],
  Asked: async (ctx, _, { n, lost }) => [await ctx.step(`a${n}`, a => {
    apply(`a${n}`, a.key);
    if (lost) throw new Error('as planned');
    return `a${n}`;
  }, { retry: { maxAttempts: 1 }, reconcile: a => (applied.has(a.key) ? `a${n}` : undefined) })],
  Repeat: async (ctx, _, { n, times, indexed }) => {
    const values: string[] = [];
    for (let i = 0; i < times; i++) values.push(`r${n}.${await ctx.step(`r${n}`, effect(`r${n}`, i), indexed ? { indexed } : { key: i })}`);
    return values;
  },
  Loop: async (ctx, place, { n, times, acts }) => {
    const values: string[] = [];
    for (let i = 0; i < times; i++) values.push(...await playAll(ctx.scope(`l${n}-${i}`), `${place}/l${n}-${i}`, acts));
    return values;
  },
  Join: async (ctx, place, { n, left, right }) => {
    const both = await ctx.all({ [`left${n}`]: c => playAll(c, place, left), [`right${n}`]: c => playAll(c, place, right) });
    return [...both[`left${n}`]!, ...both[`right${n}`]!];
  },
  Race: async (ctx, place, { n, late, limit, acts }) => {
    const won = await ctx.race(`race${n}`, {
      part: async c => {
        const values = await playAll(c, place, acts);
        if (late) {
          await c.sleep(`too long ${n}`, limit * 1000);
          await c.step(`never ${n}`, () => { throw fatal('this is never reached'); });
        }
        return values;
      },
      limit: c => c.sleep(`limit${n}`, limit),
    });
    return won.winner === 'part' ? won.value as string[] : ['too late'];
  },
  Close: async (ctx, _, { n, millis }) => {
    const { winner } = await ctx.race(`close${n}`, { long: c => c.sleep(`long${n}`, millis * 2), short: c => c.sleep(`short${n}`, millis) });
    await ctx.step(`c${n} ${winner}`, effect(`c${n}`, null));
    await ctx.sleep(`after ${n}`, millis * 2);
    return [winner];
  },
  Sleep: async (ctx, _, { n, millis }) => {
    await ctx.sleep(`sl${n}`, millis);
    return ['slept'];
  },
  Hook: async (ctx, place, { n, recv, recv_for, in_vain }) => {
    const hook = ctx.hook<number>(`${place}:h${n}`), values: unknown[] = [];
    for (let i = 0; i < recv; i++) values.push(await hook.recv());
    for (let i = 0; i < recv_for; i++) values.push(await hook.recvFor('1h'));
    if (in_vain != null) values.push(await hook.recvFor(in_vain));
    return values.map((value, i) => (i < recv ? String(value) : value === undefined ? 'None' : `Some(${value})`));
  },
  Door: async (ctx, _, { n, millis }) => {
    if (await ctx.hook(`door ${n % 2}`).conflict() !== undefined) return ['taken'];
    await ctx.sleep(`d${n}`, millis);
    return ['through'];
  },
  Child: async (ctx, place, { n, acts }) => (await ctx.child(execute, [`${place}/c${n}`, acts] satisfies Program, { key: n })).result(),
  Once: async (ctx, place, { n, shared: all }) => {
    const name = all ? shared(n) : `o${n}`, label = all ? name : `${place}/o${n}`;
    const value = await ctx.runOnce(label, () => { apply(name, label); return `${name} made by call ${applied.get(label)}`; }, { scope: all ? 'workspace' : 'run' });
    return [value.split(' ')[0]!];
  },
  Values: async (ctx, _, { n }) => {
    const values = [(await ctx.now(`v${n}`)).getTime(), await ctx.uuid(`v${n}`)];
    const noted = await ctx.step(`v${n}`, () => values);
    await ctx.sleep(`v${n} later`, '1s');
    if (JSON.stringify(noted) !== JSON.stringify(values)) throw fatal('a value has changed');
    return ['the same'];
  },
};

const execute = workflow<Program, string[]>('execute', async (ctx, [place, acts]) => {
  try {
    return await playAll(ctx, place, acts);
  } catch (fail) {
    if (!(fail instanceof Cancelled)) throw fail;
    for (const part of ['one', 'two']) {
      await ctx.cleanup().step('clean up', effect('clean up', null), { key: part });
      await ctx.cleanup().sleep(`after ${part}`, '1s');
    }
    throw fail;
  }
});

const semel = new Semel();
const worker = await semel.worker({ workflows: [execute], lease: process.env['SEMEL_LEASE'] ?? '10s' }).start();
tell({ ready: true });
const ends: Promise<void>[] = [];
for await (const line of createInterface({ input: process.stdin })) {
  const { key, place, acts } = JSON.parse(line) as { key: string; place: string; acts: Act[] };
  const run = await semel.start(execute, [place, acts], { key });
  tell({ run: run.id, key });
  ends.push(run.result().then(
    result => tell({ ended: key, status: 'COMPLETED', result }),
    (fail: RunFailed) => tell({ ended: key, status: fail.run?.status ?? 'UNKNOWN', error: fail.message }),
  ));
}
await Promise.all(ends);
await worker.stop();
semel.close();
