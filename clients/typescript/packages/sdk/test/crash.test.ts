import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Semel, workflow, type RunHandle, type RunView } from '../src/index.js';
import { effectKey } from '../src/keys.js';
import { crashEverywhere, effects, TestServer } from '../src/testing.js';
import { playTie } from './tie.js';

let server: TestServer, semel: Semel;

before(async () => {
  server = await TestServer.start();
  semel = server.client();
});

after(async () => {
  semel.close();
  await server.stop();
});

/** The workspace of a server without tenants. */
const WORKSPACE = `ws_${'0'.repeat(26)}`;

async function delivered(token: string, payload: unknown): Promise<void> {
  while ((await semel.hook(token)) === undefined) await new Promise(resolve => setImmediate(resolve));
  await semel.deliver(token, payload, { id: 'once' });
}

test('every boundary of steps, races, hooks, children and once', async () => {
  const outside = effects();
  const part = workflow('part', async (ctx, n: number) => ctx.step('part', a => { outside.take(a.key, () => a.key); return n * 2; }));
  const whole = workflow('whole', async (ctx, play: string) => {
    const first = await ctx.step('first', a => outside.take(a.key, () => a.key));
    const letter = await ctx.step('letter', a => outside.take(a.key, () => a.key), { reconcile: a => (outside.calls.has(a.key) ? a.key : undefined) });
    const { left, right } = await ctx.all({ left: c => c.step('go', a => outside.take(a.key, () => a.key)), right: c => c.step('go', a => outside.take(a.key, () => a.key)) });
    const hook = ctx.hook<number>(`hook-${play}`);
    const gate = await ctx.race('gate', { answer: () => hook.recv(), patience: c => c.sleep('patience', '1h') });
    const child = await ctx.child(part, 21);
    const twice = await child.result();
    const once = await ctx.runOnce('rate', () => 7);
    const shared = await ctx.runOnce(`shared-${play}`, () => 8, { scope: 'workspace' });
    await ctx.sleep('nap', 5);
    const patched = await ctx.patched('new');
    hook.close();
    return { keys: new Set([first, letter, left, right]).size, gate, twice, once, shared, patched };
  });
  const known = new Set<string>();
  const count = await crashEverywhere({
    semel,
    worker: () => ({ workflows: [whole, part], lease: '5s' }),
    start: play => semel.start(whole, play, { key: play }),
    during: (play: string, _: RunHandle) => delivered(`hook-${play}`, 5),
    check: (run, boundary) => {
      const { children } = run as RunView & { children: { path: string; run: string }[] };
      const at = (lineage: string, path: string) => known.add(effectKey({ workspace: WORKSPACE, lineage, path, tick: 1, label: '' }));
      for (const path of ['first', 'letter', 'left/go', 'right/go']) at(run.id, path);
      at(children.find(child => child.path === 'part')!.run, 'part');
      assert.equal(run.status, 'COMPLETED', `${boundary}: ${JSON.stringify(run)}`);
      assert.deepEqual(run.result, { keys: 4, gate: { winner: 'answer', value: 5 }, twice: 42, once: 7, shared: 8, patched: true }, boundary);
    },
  });
  assert.ok(count > 30, `${count} boundaries`);
  assert.deepEqual([...outside.calls.keys()].sort(), [...known].sort());
  // A crash between a body and its record repeats the body once, under the same key.
  for (const [key, calls] of outside.calls) assert.ok(calls <= 2, `${key} ${calls}`);
});

test('a race whose branches end at the same moment is decided once', async () => {
  assert.ok(await playTie() > 8);
});

test('a workflow that no worker executes is not taken for one that survives', async () => {
  const here = workflow('here', async () => 1), elsewhere = workflow('elsewhere', async () => 1);
  const kit = crashEverywhere({
    semel,
    worker: () => ({ workflows: [here] }),
    start: play => semel.start(elsewhere, null, { key: play }),
    during: async (_, run) => { await run.cancel('no worker has it'); },
    check: () => undefined,
  });
  await assert.rejects(kit, /no boundary was reached/);
});

test('a step at most once is in doubt if a crash hides its end, and is never repeated', async () => {
  let calls = 0, doubts = 0;
  const careful = workflow('careful', async ctx => ctx.step('charge', () => { calls += 1; return 1; }, { atMostOnce: true }));
  let plays = 0;
  await crashEverywhere({
    semel,
    worker: () => ({ workflows: [careful], lease: '5s' }),
    start: async play => { plays += 1; calls = 0; return semel.start(careful, null, { key: play }); },
    during: async (_, run) => {
      for (;;) {
        const { status } = await run.get();
        if (status === 'COMPLETED') return;
        if (status === 'PAUSED') {
          doubts += 1;
          assert.ok(calls <= 1);
          return run.resolve('charge', { happened: 1 });
        }
        await new Promise(resolve => setImmediate(resolve));
      }
    },
    check: (run, boundary) => {
      assert.equal(run.status, 'COMPLETED', boundary);
      assert.ok(calls <= 1, boundary);
    },
  });
  assert.ok(plays > 4 && doubts > 0, `${plays} plays, ${doubts} doubts`);
});

test('code that does not fit pauses the run and begins nothing', async () => {
  const began: string[] = [];
  const before = workflow('changed', async ctx => {
    await ctx.step('a', () => 1);
    await ctx.hook('changed').recv();
  });
  const afterwards = workflow('changed', async ctx => {
    await ctx.step('b', () => { began.push('b'); });
    await ctx.hook('changed').recv();
  });
  const first = await semel.worker({ workflows: [before] }).start();
  const run = await semel.start(before, null);
  while ((await run.get()).status !== 'WAITING') await new Promise(resolve => setImmediate(resolve));
  await first.stop();
  await using second = semel.worker({ workflows: [afterwards], log: () => undefined });
  await second.start();
  await semel.deliver('changed', 1);
  for (;;) {
    const { status, pauseReason } = await run.get();
    if (status === 'PAUSED') {
      assert.match(pauseReason ?? '', /`a` is in the ledger and the code asks for .*`b`/);
      break;
    }
    await new Promise(resolve => setImmediate(resolve));
  }
  assert.deepEqual(began, []);
  await run.cancel('a test');
});
