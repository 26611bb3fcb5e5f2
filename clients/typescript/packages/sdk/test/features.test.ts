import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { retryAfter, RunFailed, Semel, workflow, type Fail, type RunHandle, type Schema, type SemelError, type StartedRun } from '../src/index.js';
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

const limit = { timeout: '20s' } as const;
const quiet = () => undefined;
const turn = () => new Promise(resolve => setImmediate(resolve));

async function status(run: RunHandle, wanted: string) {
  for (;;) {
    const view = await run.get();
    if (view.status === wanted) return view;
    await turn();
  }
}

async function delivered(token: string, payload: unknown): Promise<void> {
  while ((await semel.hook(token)) === undefined) await turn();
  await semel.deliver(token, payload, { id: 'once' });
}

test('recorded values are the same in every replay', async () => {
  const seen: unknown[] = [];
  let drawn = 0;
  const values = workflow('values', async ctx => {
    const all = [await ctx.random('dice'), await ctx.uuid('id'), await ctx.now('t'), await ctx.record('counted', { n: drawn += 1 })];
    seen.push(all);
    await ctx.hook('values').recv();
    return all;
  });
  await using worker = semel.worker({ workflows: [values] });
  await worker.start();
  const run = await semel.start(values, null);
  await status(run, 'WAITING');
  await delivered('values', null);
  const result = await run.result(limit) as unknown[];
  assert.ok(seen.length === 2 && drawn === 2, 'it rested, and was played again');
  assert.deepEqual(seen[0], seen[1]);
  assert.deepEqual(result, JSON.parse(JSON.stringify(seen[0])));
  assert.ok((result[0] as number) >= 0 && (result[0] as number) < 1);
});

test('a time is waited for, and one that has passed is not', async () => {
  const until = workflow('until', async ctx => {
    const from = await ctx.now('from');
    await ctx.sleepUntil('then', new Date(from.getTime() + 60));
    await ctx.sleepUntil('long ago', new Date(0));
    return (await ctx.now('to')).getTime() - from.getTime();
  });
  await using worker = semel.worker({ workflows: [until] });
  await worker.start();
  const took = await (await semel.start(until, null)).result(limit);
  assert.ok(took >= 60 && took < 5_000, `${took} ms`);
});

test('a step that is not needed is recorded as skipped, and stays so', async () => {
  let plays = 0;
  const gift = workflow('gift', async ctx => {
    plays += 1;
    await ctx.skip('gift', 'not asked for');
    await ctx.hook('gift').recv();
    await ctx.skip('card', 'neither');
    return 'packed';
  });
  await using worker = semel.worker({ workflows: [gift] });
  await worker.start();
  const run = await semel.start(gift, null);
  await status(run, 'WAITING');
  await delivered('gift', null);
  assert.deepEqual([await run.result(limit), plays], ['packed', 2]);
});

test('an attempt that takes too long is aborted and fails, each time', async () => {
  const aborted: number[] = [];
  const slow = workflow('slow', async ctx => ctx.step('slow', a => new Promise<never>(() => {
    a.signal.addEventListener('abort', () => aborted.push(a.number));
  }), { timeout: '30ms', retry: { maxAttempts: 2, initial: '10ms', jitter: 0 } }));
  await using worker = semel.worker({ workflows: [slow] });
  await worker.start();
  const run = await semel.start(slow, null);
  await assert.rejects(run.result(limit), (e: RunFailed) => e.run.error?.kind === 'timeout' && /30 ms/.test(e.message));
  assert.deepEqual(aborted, [1, 2]);
});

test('the pause that a body asks for counts before that of its policy', async () => {
  const tried: number[] = [];
  const busy = workflow('busy-provider', async ctx => ctx.step('call', () => {
    tried.push(performance.now());
    if (tried.length === 1) throw retryAfter('busy', '60ms', { code: 'SLOW_DOWN' });
    return tried.length;
  }, { retry: { initial: '1h' } }));
  await using worker = semel.worker({ workflows: [busy] });
  await worker.start();
  assert.equal(await (await semel.start(busy, null)).result(limit), 2);
  assert.ok(tried[1]! - tried[0]! >= 59, `${tried[1]! - tried[0]!} ms`);
});

test('ctx inside of a body pauses the run with a sentence, and runOnce is allowed there', async () => {
  let inner = 0;
  const nested = workflow('nested', async ctx => ctx.step('outer', () => ctx.step('inner', () => { inner += 1; })));
  const allowed = workflow('allowed', async ctx => ctx.step('outer', () => ctx.runOnce('token', () => 5)));
  await using worker = semel.worker({ workflows: [nested, allowed], log: quiet });
  await worker.start();
  const paused = await status(await semel.start(nested, null), 'PAUSED');
  assert.match(paused.pauseReason ?? '', /`inner` is asked for inside of the body/);
  assert.equal(inner, 0);
  assert.equal(await (await semel.start(allowed, null)).result(limit), 5);
});

test('runs are listed, newest first, by workflow, status, key and time', async () => {
  const listed = workflow('listed', async (_, n: number) => n);
  await using worker = semel.worker({ workflows: [listed] });
  await worker.start();
  const started = [];
  for (const n of [1, 2, 3]) started.push(await semel.start(listed, n, { key: `listed-${n}` }));
  for (const run of started) await run.result(limit);
  const ids = async (options: Parameters<Semel['list']>[0]) => {
    const all = [];
    for await (const run of semel.list(options)) all.push(run.id);
    return all;
  };
  const [one, two, three] = started.map(run => run.id);
  assert.deepEqual(await ids({ workflow: 'listed' }), [three, two, one]);
  assert.deepEqual(await ids({ workflow: 'listed', status: 'COMPLETED' }), [three, two, one]);
  assert.deepEqual(await ids({ workflow: 'listed', status: 'FAILED' }), []);
  assert.deepEqual(await ids({ workflow: 'listed', key: 'listed-2' }), [two]);
  assert.deepEqual(await ids({ workflow: 'listed', since: new Date(Date.now() + 3_600_000) }), []);
  assert.equal((await semel.key('listed-1'))?.run.id, one);
});

test('a paused run takes a delivery and goes on when it is resumed', async () => {
  const gate = workflow('pausable', async ctx => ctx.hook<number>('pausable').recv());
  await using worker = semel.worker({ workflows: [gate] });
  await worker.start();
  const run = await semel.start(gate, null);
  await status(run, 'WAITING');
  assert.equal((await run.pause()).status, 'PAUSED');
  await delivered('pausable', 7);
  assert.equal((await run.get()).status, 'PAUSED');
  assert.notEqual((await run.resume()).status, 'PAUSED');
  assert.equal(await run.result(limit), 7);
});

test('a failed run is tried again from where it failed', async () => {
  let broken = true;
  const calls: string[] = [];
  const repaired = workflow('repaired', async ctx => {
    await ctx.step('first', () => { calls.push('first'); });
    return ctx.step('second', a => {
      calls.push(a.key);
      if (broken) throw new Error('out of order');
      return 'done';
    }, { retry: { maxAttempts: 1 } });
  });
  await using worker = semel.worker({ workflows: [repaired] });
  await worker.start();
  const run = await semel.start(repaired, null);
  await assert.rejects(run.result(limit), (e: RunFailed) => e.run.status === 'FAILED');
  broken = false;
  await run.retry();
  assert.equal(await run.result(limit), 'done');
  assert.deepEqual([calls[0], calls.length, calls[1] === calls[2]], ['first', 3, true], 'the same key, and the first step once');
});

/** What zod, valibot and others are to the SDK: a member with one function. */
function amount(): Schema<{ cents: bigint }> {
  return { '~standard': {
    validate: value => {
      const given = (value as { cents?: unknown } | null)?.cents;
      return Number.isSafeInteger(given)
        ? { value: { cents: BigInt(given as number) } }
        : { issues: [{ message: 'expected a whole number', path: ['order', { key: 'cents' }] }] };
    },
  } };
}

test('a schema checks and converts the input and the payloads of hooks', async () => {
  const pay = workflow('schema', { input: amount() }, async (ctx, input) => {
    const tip = await ctx.hook('schema-tip', amount()).recv();
    return String(input.cents + tip.cents);
  });
  await using worker = semel.worker({ workflows: [pay] });
  await worker.start();
  const good = { cents: 3 } as unknown as { cents: bigint };
  await assert.rejects(semel.start(pay, { cents: 'three' } as never), (e: Fail) => e.code === 'INPUT_INVALID' && /order\.cents: expected/.test(e.message));
  const run = await semel.start(pay, good);
  await delivered('schema-tip', { cents: 4 });
  assert.equal(await run.result(limit), '7');
  const unchecked = await semel.start('schema', { cents: 'three' });
  await assert.rejects(unchecked.result(limit), (e: RunFailed) => e.run.error?.code === 'INPUT_INVALID' && e.run.error.kind === 'fatal');
  const tipped = await semel.start(pay, good);
  await delivered('schema-tip', 'much');
  await assert.rejects(tipped.result(limit), (e: RunFailed) => /expected a whole number/.test(e.message));
});

test('a commit tells of a delivery, long before the next heartbeat', async () => {
  let entered!: () => void, leave!: () => void;
  const isEntered = new Promise<void>(resolve => { entered = resolve; });
  const mayLeave = new Promise<void>(resolve => { leave = resolve; });
  const heard = workflow('heard', async ctx => {
    const hook = ctx.hook<number>('heard');
    return ctx.race('gate', {
      // A body that runs keeps the run in this worker, which so looks at no inbox by itself.
      long: c => c.step('long', a => new Promise<never>((_, reject) => a.signal.addEventListener('abort', () => reject(a.signal.reason)))),
      short: async c => {
        await c.step('short', async () => { entered(); await mayLeave; });
        await c.sleep('then', '1h');
      },
      answer: () => hook.recv(),
    });
  });
  // The next heartbeat is twenty minutes away.
  await using worker = semel.worker({ workflows: [heard], lease: '1h' });
  await worker.start();
  const run = await semel.start(heard, null);
  await isEntered;
  await delivered('heard', 5);
  leave();
  assert.deepEqual(await run.result(limit), { winner: 'answer', value: 5 });
});

test('a client restarts, forks, frees keys and starts many runs', async () => {
  let broken = true;
  const calls: string[] = [];
  const verbs = workflow('verbs', async (ctx, n: number) => {
    await ctx.step('charge', a => { calls.push(a.key); });
    await ctx.step('check', () => { if (broken) throw retryAfter('not now', '1ms'); }, { retry: { maxAttempts: 1 } });
    return n;
  });
  await using worker = semel.worker({ workflows: [verbs], log: quiet });
  await worker.start();
  const run = await semel.start(verbs, 7, { key: 'verbs' });
  await assert.rejects(run.result(limit), (e: RunFailed) => e.run.status === 'FAILED');
  broken = false;
  assert.equal((await run.restart({ from: 'beginning' })).id, run.id);
  assert.equal(await run.result(limit), 7);
  const fork = await run.fork({ at: 1, key: 'verbs-again' });
  assert.notEqual(fork.id, run.id);
  assert.equal(await fork.result(limit), 7);
  assert.equal(calls.length, 3, 'the beginning, the restart from there, and the fork');
  assert.equal(new Set(calls).size, 1, 'all of them under one key');
  assert.equal((await semel.releaseKey('verbs')).id, run.id);
  assert.equal(await semel.key('verbs'), undefined);
  const starts = [{ input: 1, key: 'verbs-again' }, { input: 2, key: 'verbs' }, { input: 3 }];
  const many = await semel.startMany(verbs, starts, { id: 'many' });
  const [other, second, third] = many as [SemelError, StartedRun<number>, StartedRun<number>];
  assert.deepEqual([other.code, other.owner], ['KEY_REUSED', fork.id]);
  assert.deepEqual([second.verdict, third.verdict], ['created', 'created']);
  assert.deepEqual(await Promise.all([second.result(limit), third.result(limit)]), [2, 3]);
  const again = await semel.startMany(verbs, starts, { id: 'many' }) as StartedRun<number>[];
  assert.deepEqual([again[2]!.id, again[2]!.verdict], [third.id, 'replayed']);
});
