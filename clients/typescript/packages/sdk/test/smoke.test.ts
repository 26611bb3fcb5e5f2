import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Cancelled, fatal, RunFailed, Semel, SemelError, workflow } from '../src/index.js';
import { TestServer } from '../src/testing.js';

let server: TestServer, semel: Semel;

before(async () => {
  server = await TestServer.start();
  semel = server.client();
});

after(async () => {
  semel.close();
  await server.stop();
});

test('steps, sleeps, scopes and values', async () => {
  const calls: string[] = [];
  const order = workflow('order', async (ctx, o: { id: string; items: string[] }) => {
    const charge = await ctx.step('charge', a => {
      calls.push(a.key);
      return { id: `ch_${o.id}` };
    });
    for (const item of o.items) await ctx.step('pack', () => { calls.push(item); }, { key: item });
    await ctx.sleep('nap', '50ms');
    const at = await ctx.now('t');
    const { left, right } = await ctx.all({ left: c => c.step('ship', () => 'L'), right: c => c.step('ship', () => 'R') });
    const once = await ctx.runOnce('rate', () => 0.94);
    return { charge: charge.id, left, right, once, at: at instanceof Date };
  });
  await using worker = semel.worker({ workflows: [order] });
  await worker.start();
  const run = await semel.start(order, { id: '7', items: ['ink', 'pens'] }, { key: 'order-7' });
  assert.equal(run.verdict, 'created');
  assert.deepEqual(await run.result({ timeout: '20s' }), { charge: 'ch_7', left: 'L', right: 'R', once: 0.94, at: true });
  assert.equal(calls.length, 3);
  assert.match(calls[0]!, /^e1[0-9a-z]{32}$/);
  const again = await semel.start(order, { id: '7', items: ['ink', 'pens'] }, { key: 'order-7' });
  assert.deepEqual([again.verdict, again.created, again.id], ['replayed', false, run.id]);
  await assert.rejects(semel.start(order, { id: '8', items: [] }, { key: 'order-7' }), (e: SemelError) => e.code === 'KEY_REUSED' && e.pointers.includes('/input/id'));
});

test('a sleep of seven days is over when the clock of the server moves', async () => {
  await using dev = await TestServer.start({ clock: 'manual' });
  const client = dev.client();
  const nap = workflow('nap', async (ctx, _: null) => {
    await ctx.sleep('week', '7d');
    return 'rested';
  });
  {
    await using worker = client.worker({ workflows: [nap] });
    await worker.start();
    const run = await client.start(nap, null, { key: 'nap' });
    while ((await run.get()).status !== 'WAITING') await new Promise(resolve => setImmediate(resolve));
    await dev.advance('7d');
    assert.equal(await run.result({ timeout: '20s' }), 'rested');
  }
  client.close();
});

test('hooks, races, children and failures', async () => {
  const price = workflow('price', async (_ctx, sku: string) => sku.length * 100);
  const buy = workflow('buy', async (ctx, id: string) => {
    await using approval = ctx.hook<{ ok: boolean }>(`approve-${id}`);
    if (await approval.conflict()) throw fatal('a duplicate');
    const gate = await ctx.race('gate', { answer: () => approval.recv(), patience: c => c.sleep('patience', '7d') });
    if (gate.winner === 'patience' || !gate.value.ok) throw fatal('not approved', { code: 'REFUSED' });
    const child = await ctx.child(price, 'ink');
    return { total: await child.result() };
  });
  await using worker = semel.worker({ workflows: [buy, price] });
  await worker.start();
  const run = await semel.start(buy, '7', { key: 'buy-7' });
  const deliver = async (token: string, payload: unknown) => {
    for (;;) {
      if (await semel.hook(token)) return semel.deliver(token, payload, { id: 'click-1' });
      await new Promise(resolve => setImmediate(resolve));
    }
  };
  await deliver('approve-7', { ok: true });
  assert.deepEqual(await run.result({ timeout: '20s' }), { total: 300 });
  const refused = await semel.start(buy, '8', { key: 'buy-8' });
  await deliver('approve-8', { ok: false });
  await assert.rejects(refused.result({ timeout: '20s' }), (e: RunFailed) => e.run.error?.code === 'REFUSED');
});

test('a graceful cancel lets the code clean up', async () => {
  const seen: string[] = [];
  const long = workflow('long', async ctx => {
    try {
      await ctx.sleep('a while', '7d');
    } catch (error) {
      if (!(error instanceof Cancelled)) throw error;
      await ctx.cleanup().step('refund', () => { seen.push('refunded'); });
      throw error;
    }
  });
  await using worker = semel.worker({ workflows: [long] });
  await worker.start();
  const run = await semel.start(long, null, { key: 'long' });
  while ((await run.get()).status !== 'WAITING') await new Promise(resolve => setImmediate(resolve));
  await run.cancel('enough', { graceful: true });
  await assert.rejects(run.result({ timeout: '20s' }), (e: RunFailed) => e.run.status === 'CANCELLED');
  assert.deepEqual(seen, ['refunded']);
});

test('a failed attempt is tried again under the same key', async () => {
  const keys: string[] = [];
  const flaky = workflow('flaky', async ctx => ctx.step('pay', a => {
    keys.push(a.key);
    if (a.number < 3) throw new Error('busy');
    return a.number;
  }, { retry: { initial: '30ms', jitter: 0 } }));
  await using worker = semel.worker({ workflows: [flaky] });
  await worker.start();
  const run = await semel.start(flaky, null);
  assert.equal(await run.result({ timeout: '20s' }), 3);
  assert.equal(new Set(keys).size, 1);
});
