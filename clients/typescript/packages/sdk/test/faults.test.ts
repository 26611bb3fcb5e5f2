import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';
import { Cancelled, fatal, RunFailed, Semel, workflow, type RunHandle } from '../src/index.js';
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

const quiet = () => undefined;
const turn = () => new Promise(resolve => setImmediate(resolve));

function latch() {
  let open!: () => void;
  const opened = new Promise<void>(resolve => { open = resolve; });
  return { open, opened };
}

/** Whether a call claims runs, and does not only look for them. */
function isClaim(url: unknown, init?: RequestInit): boolean {
  return String(url).endsWith('/workers/claim') && !String(init?.body).includes('"look":true');
}

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

test('what cannot be recorded fails its own run and no other', async () => {
  const bad = workflow('bad', async (ctx, what: string) => {
    if (what === 'data') throw fatal('it has data', { data: 10n });
    if (what === 'half') throw fatal('half \ud83d of a character');
    if (what === 'step') return ctx.step('half', () => 'half \ud83d', { retry: { maxAttempts: 1 } });
    return ctx.step('whole', () => 'text \\ud83d, and 😀');
  });
  await using worker = semel.worker({ workflows: [bad], log: quiet });
  await worker.start();
  const [data, half, step, good] = await Promise.all(['data', 'half', 'step', 'good'].map(what => semel.start<string, string>(bad, what)));
  await assert.rejects(data!.result({ timeout: '20s' }), (e: RunFailed) => /its data cannot be kept/.test(e.message));
  await assert.rejects(half!.result({ timeout: '20s' }), (e: RunFailed) => /half \ufffd of/.test(e.message));
  await assert.rejects(step!.result({ timeout: '20s' }), (e: RunFailed) => /surrogate/.test(e.message));
  assert.equal(await good!.result({ timeout: '20s' }), 'text \\ud83d, and 😀');
});

test('a payload with a large integer loses digits, and the worker lives', async () => {
  const big = workflow('big', async ctx => typeof (await ctx.hook('big').recv()));
  await using worker = semel.worker({ workflows: [big], log: quiet });
  await worker.start();
  const run = await semel.start(big, null);
  while ((await semel.hook('big')) === undefined) await turn();
  const call = { body: '1152921504606846977', headers: { 'idempotency-key': 'big' } };
  await semel.transport.call('/hooks/big', call);
  assert.equal(await run.result({ timeout: '20s' }), 'number');
  await assert.rejects(semel.start(big, 2 ** 60), /2\^53/);
});

test('values of more than a request holds are sent in parts', async () => {
  const text = 'x'.repeat(1_900_000);
  const large = workflow('large', async ctx => {
    const all = await Promise.all(Array.from({ length: 12 }, (_, i) => ctx.step('part', () => text, { key: i })));
    await ctx.hook('large').recv();
    return all.map(part => part.length).reduce((sum, length) => sum + length, 0);
  });
  await using worker = semel.worker({ workflows: [large] });
  await worker.start();
  const run = await semel.start(large, null);
  await delivered('large', 1);
  assert.equal(await run.result({ timeout: '60s' }), 12 * 1_900_000);
});

test('a worker that stops lets a body end and begins no other', async () => {
  const entered = latch(), leave = latch();
  const began: string[] = [];
  const two = workflow('two', async ctx => {
    await ctx.step('one', async () => { began.push('one'); entered.open(); await leave.opened; });
    await ctx.step('two', () => { began.push('two'); });
  });
  const told: string[] = [];
  const first = await semel.worker({ workflows: [two], log: (_, message) => told.push(message) }).start();
  const run = await semel.start(two, null);
  await entered.opened;
  const stopped = first.stop();
  leave.open();
  await stopped;
  assert.deepEqual([began, told], [['one'], []]);
  await using second = semel.worker({ workflows: [two] });
  await second.start();
  await run.result({ timeout: '20s' });
  assert.deepEqual(began, ['one', 'two']);
});

test('a worker whose slots are full stops too', async () => {
  const entered = latch(), leave = latch();
  const full = workflow('full', async ctx => ctx.step('one', async () => { entered.open(); await leave.opened; }));
  const worker = await semel.worker({ workflows: [full], slots: 1 }).start();
  await semel.start(full, null);
  await entered.opened;
  const stopped = worker.stop();
  leave.open();
  await stopped;
});

test('a delivery is heard of while a long body runs, which then is aborted', async () => {
  const entered = latch();
  let aborted = false;
  const gate = workflow('gate', async ctx => {
    const hook = ctx.hook<number>('gate');
    return ctx.race('gate', {
      long: c => c.step('long', a => new Promise<never>((_, reject) => {
        a.signal.addEventListener('abort', () => { aborted = true; reject(a.signal.reason); });
        entered.open();
      })),
      answer: () => hook.recv(),
    });
  });
  await using worker = semel.worker({ workflows: [gate], lease: '1s' });
  await worker.start();
  const run = await semel.start(gate, null);
  await entered.opened;
  await delivered('gate', 5);
  assert.deepEqual(await run.result({ timeout: '20s' }), { winner: 'answer', value: 5 });
  assert.ok(aborted);
});

test('a cancel aborts the body, and reaches every wait before the run rests', async () => {
  const entered = latch();
  const seen: string[] = [];
  const busy = workflow('busy', async ctx => {
    const shielded = ctx.cleanup().hook('busy-later').recv();
    try {
      await ctx.all({
        body: c => c.step('body', a => new Promise<never>((_, reject) => {
          a.signal.addEventListener('abort', () => reject(new Error('stopped')));
          entered.open();
        })),
        wait: c => c.sleep('long', '7d'),
      });
    } catch (error) {
      if (!(error instanceof Cancelled)) throw error;
      await ctx.cleanup().step('refund', () => { seen.push('refund'); });
      seen.push(String(await shielded));
      throw error;
    }
  });
  await using worker = semel.worker({ workflows: [busy], lease: '1s', log: quiet });
  await worker.start();
  const run = await semel.start(busy, null);
  await entered.opened;
  await run.cancel('enough', { graceful: true });
  while (seen.length === 0) await turn();
  await delivered('busy-later', 'later');
  await assert.rejects(run.result({ timeout: '20s' }), (e: RunFailed) => e.run.status === 'CANCELLED');
  assert.deepEqual([seen[0], seen.at(-1)], ['refund', 'later']);
});

test('an effect at most once that lost a race is in doubt at the end', async () => {
  let calls = 0;
  const entered = latch();
  const lost = workflow('lost', async (ctx, _: null) => {
    const hook = ctx.hook('lost');
    await ctx.race('gate', {
      charge: c => c.step('charge', () => { calls += 1; entered.open(); return new Promise<never>(() => undefined); }, { atMostOnce: true }),
      answer: () => hook.recv(),
    });
    return 'over';
  });
  await using worker = semel.worker({ workflows: [lost], lease: '1s', log: quiet });
  await worker.start();
  const run = await semel.start<null, string>(lost, null);
  await entered.opened;
  await delivered('lost', 1);
  await status(run, 'PAUSED');
  await run.resolve('gate/charge/charge', { happened: 1 });
  assert.equal(await run.result({ timeout: '20s' }), 'over');
  assert.equal(calls, 1);
});

test('a worker that has lost its lease joins anew and goes on under the same keys', async () => {
  const entered = latch(), leave = latch();
  const keys: string[] = [];
  const kept = workflow('kept', async ctx => ctx.step('one', async a => {
    keys.push(a.key);
    entered.open();
    if (keys.length === 1) await leave.opened;
  }));
  const worker = semel.worker({ workflows: [kept], lease: '1s', log: quiet });
  await worker.start();
  const run = await semel.start(kept, null);
  await entered.opened;
  await semel.transport.call('/workers/release', { body: JSON.stringify({ node: (worker as unknown as { node: string }).node }) });
  await run.result({ timeout: '20s' });
  leave.open();
  await worker.stop();
  assert.equal(keys.length, 2);
  assert.equal(new Set(keys).size, 1);
});

test('the second owner of a token is told of the first', async () => {
  const once = workflow('once-only', async (ctx, n: number) => {
    await using hook = ctx.hook('once-only');
    const owner = await hook.conflict();
    if (owner !== undefined) return owner.runId;
    await hook.recv();
    return `run ${n}`;
  });
  await using worker = semel.worker({ workflows: [once] });
  await worker.start();
  const first = await semel.start<number, string>(once, 1);
  await status(first, 'WAITING');
  const second = await semel.start<number, string>(once, 2);
  assert.equal(await second.result({ timeout: '20s' }), first.id);
  await delivered('once-only', 1);
  assert.equal(await first.result({ timeout: '20s' }), 'run 1');
});

test('a step of a queue is done elsewhere, with its retries and its key', async () => {
  const keys: string[] = [];
  const shop = workflow('shop', async (ctx, cents: number) => {
    const charge = await ctx.remote<{ cents: number }>('charge', 'payments', cents, { retry: { initial: '20ms', jitter: 0 } });
    const refused = await ctx.remote('refuse', 'payments', 'no').catch((e: { kind: string; code: string }) => `${e.kind} ${e.code}`);
    return { charge, refused };
  });
  const payments = (input: unknown, task: { key: string; attempt: number }) => {
    if (input === 'no') throw fatal('declined', { code: 'DECLINED' });
    keys.push(task.key);
    if (task.attempt < 2) throw new Error('busy');
    return { cents: input };
  };
  await using driver = semel.worker({ workflows: [shop] });
  await driver.start();
  await using hands = semel.worker({ queues: { payments } });
  await hands.start();
  const run = await semel.start(shop, 1999);
  assert.deepEqual(await run.result({ timeout: '20s' }), { charge: { cents: 1999 }, refused: 'fatal DECLINED' });
  assert.equal(keys.length, 2);
  assert.equal(new Set(keys).size, 1);
});

test('a key may have any characters', async () => {
  const echo = workflow('echo', async (ctx, n: number) => `${ctx.key} ${n}`);
  await using worker = semel.worker({ workflows: [echo] });
  await worker.start();
  const run = await semel.start(echo, 1, { key: 'Bestellung „7“ \\ 日' });
  assert.equal(await run.result({ timeout: '20s' }), 'Bestellung „7“ \\ 日 1');
  assert.equal((await semel.start(echo, 1, { key: 'Bestellung „7“ \\ 日' })).verdict, 'replayed');
});

test('a worker whose claim is not answered joins anew, and the runs that it was given are due again', async () => {
  const lost = new Set<string>();
  // The answers to the claims of the first node are lost.
  const unreliable: typeof fetch = async (url, init) => {
    const answer = await fetch(url, init);
    if (!isClaim(url, init)) return answer;
    const { node } = JSON.parse(String(init?.body)) as { node: string };
    if (lost.size > 0 && !lost.has(node)) return answer;
    lost.add(node);
    await answer.text();
    throw new TypeError('the answer is lost');
  };
  const far = new Semel({ url: server.url, fetch: unreliable });
  const echo = workflow('unanswered', async (_, n: number) => n);
  const run = await semel.start(echo, 7);
  await using worker = far.worker({ workflows: [echo], lease: '1s', log: quiet });
  await worker.start();
  assert.equal(await run.result({ timeout: '20s' }), 7);
  assert.equal(lost.size, 1);
});

test('a worker whose lost claim is not known to the server any more joins anew, and its runs are due at once', async () => {
  let claims = 0;
  // The first claim takes place and its answer is lost; its repetition reaches a server that has no memory of the id.
  const forgetful: typeof fetch = async (url, init) => {
    if (!isClaim(url, init) || ++claims > 2) return fetch(url, init);
    if (claims === 2) return fetch(url, { ...init!, headers: { ...init!.headers as object, 'idempotency-key': 'unknown' } });
    await (await fetch(url, init)).text();
    throw new TypeError('the answer is lost');
  };
  const far = new Semel({ url: server.url, fetch: forgetful });
  const echo = workflow('forgotten', async (_, n: number) => n);
  const run = await semel.start(echo, 7);
  await using worker = far.worker({ workflows: [echo], lease: '1h', log: quiet });
  await worker.start();
  assert.equal(await run.result({ timeout: '20s' }), 7);
});

test('a worker keeps its runs and its steps of queues while the server cannot be reached', async () => {
  const entered = [latch(), latch()], leave = latch(), downs = latch(), lost = latch();
  const bodies: string[] = [], told: string[] = [];
  let refused = 0, down = false;
  const restarted: typeof fetch = async (url, init) => {
    if (!down) {
      const answer = fetch(url, init), gone = lost.opened.then(() => { throw new TypeError('the server was killed'); });
      return Promise.race([answer, gone]);
    }
    if (++refused === 8) downs.open();
    throw new TypeError('fetch failed', { cause: Object.assign(new Error('refused'), { code: 'ECONNREFUSED' }) });
  };
  const body = (name: string, i: number) => async () => {
    bodies.push(name);
    entered[i]!.open();
    await leave.opened;
    return name;
  };
  const both = workflow('both', async ctx => ctx.all({
    letter: c => c.step('letter', body('letter', 0), { atMostOnce: true }),
    parcel: c => c.remote('parcel', 'parcels', null),
  }));
  const far = new Semel({ url: server.url, fetch: restarted });
  const worker = await far.worker({ workflows: [both], queues: { parcels: body('parcel', 1) }, lease: '1h', log: (_, message) => told.push(message) }).start();
  const run = await semel.start(both, null);
  await Promise.all(entered.map(one => one.opened));
  down = true;
  // Calls that wait at the server are lost with it.
  lost.open();
  await downs.opened;
  down = false;
  lost.opened = new Promise(() => undefined);
  leave.open();
  assert.deepEqual(await run.result({ timeout: '20s' }), { letter: 'letter', parcel: 'parcel' });
  assert.deepEqual([bodies.sort(), told.filter(message => /joins anew/.test(message))], [['letter', 'parcel'], []]);
  await worker.stop();
});

test('a claim without a connection is made again for as long as it takes, and nothing is given up', async () => {
  const entered = latch(), leave = latch(), told: string[] = [], bodies: number[] = [];
  let refused = 0, down = false, looks = 0;
  const noClaims: typeof fetch = async (url, init) => {
    // A proxy in between fails at a look, which is not a claim.
    if (String(url).endsWith('/workers/claim') && !isClaim(url, init) && ++looks === 2) return new Response('<html>', { status: 502 });
    if (!down || !isClaim(url, init)) return fetch(url, init);
    // By now half of the lease is over, after which a claim that was sent is given up.
    if (++refused === 6) down = false;
    throw new TypeError('fetch failed', { cause: Object.assign(new Error('refused'), { code: 'ECONNREFUSED' }) });
  };
  const letter = workflow('letter', async (ctx, n: number) => ctx.step('letter', async () => {
    bodies.push(n);
    if (n === 1) {
      entered.open();
      await leave.opened;
    }
    return n;
  }, { atMostOnce: true }));
  const far = new Semel({ url: server.url, fetch: noClaims });
  const worker = await far.worker({ workflows: [letter], lease: '900ms', log: (_, message) => told.push(message) }).start();
  const first = await semel.start(letter, 1);
  await entered.opened;
  down = true;
  const second = await semel.start(letter, 2);
  assert.equal(await second.result({ timeout: '20s' }), 2);
  leave.open();
  assert.equal(await first.result({ timeout: '20s' }), 1);
  await worker.stop();
  assert.deepEqual([bodies, refused, told.filter(message => /joins anew/.test(message))], [[1, 2], 6, []]);
});

test('after a restart a run is given the end of its child again', async () => {
  let plays = 0, prices = 0;
  const part = workflow('restart-part', async ctx => ctx.step('price', () => { prices += 1; return 300; }));
  const whole = workflow('restart-whole', async ctx => {
    const price = await (await ctx.child(part, null)).result();
    await ctx.step('count', () => { if (++plays === 1) throw fatal('the first time'); });
    return price;
  });
  await using worker = semel.worker({ workflows: [whole, part] });
  await worker.start();
  const run = await semel.start(whole, null, { key: 'restart' });
  await assert.rejects(run.result({ timeout: '20s' }));
  await semel.transport.call(`/workflow-runs/${run.id}/restart`, { body: '{}' });
  const again = (await semel.key('restart'))!.run;
  assert.equal(await semel.run(again.id).result({ timeout: '20s' }), 300);
  assert.deepEqual([plays, prices], [2, 1]);
});

test('a server that speaks another protocol is refused with a sentence that says what to do', async () => {
  const other = createServer((_, response) => {
    response.writeHead(200, { 'content-type': 'application/json', 'semel-protocol': '2' }).end('{"node":"node_1","until":2,"now":1}');
  }).listen(0, '127.0.0.1');
  await once(other, 'listening');
  const far = new Semel({ url: `http://127.0.0.1:${(other.address() as AddressInfo).port}` });
  const idle = workflow('idle', async () => null);
  const sentence = 'the server speaks version 2 of the worker protocol, and this SDK version 1: install the SDK of the server\'s release';
  await assert.rejects(far.worker({ workflows: [idle], log: quiet }).start(), { message: sentence });
  far.close();
  other.close();
});
