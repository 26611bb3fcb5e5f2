import assert from 'node:assert/strict';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';
import { serve } from '@hono/node-server';
import express from 'express';
import { Hono } from 'hono';
import { Semel, workflow } from '../src/index.js';
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

interface Order { id: string }
const order = workflow('web-order', async (_ctx, o: Order) => o.id);

type Ask = (body: string, key?: string) => Promise<Response>;

/** One start, the same again, another input under the key, no key, and a body that is not JSON. */
async function asked(ask: Ask, key: string): Promise<void> {
  const first = await ask('{"id":"7"}', key);
  const { run } = await first.json() as { run: { id: string; key: string } };
  assert.deepEqual([first.status, first.headers.get('idempotent-replayed'), run.key], [201, null, key]);
  const again = await ask('{"id":"7"}', `"${key}"`);
  assert.deepEqual([again.status, again.headers.get('idempotent-replayed')], [200, 'true']);
  assert.equal((await again.json() as typeof Object & { run: { id: string } }).run.id, run.id);
  const other = await ask('{"id":"8"}', key);
  const { code, owner, pointers } = await other.json() as { code: string; owner: string; pointers: string[] };
  assert.deepEqual([other.status, code, owner, pointers], [422, 'KEY_REUSED', run.id, ['/input/id']]);
  assert.equal((await ask('{"id":"7"}')).status, 201);
  assert.equal((await ask('{')).status, 400);
}

function post(server: Server | ReturnType<typeof serve>): Ask {
  const { port } = server.address() as AddressInfo;
  return (body, key) => fetch(`http://127.0.0.1:${port}/orders`, {
    method: 'POST',
    body,
    headers: { 'content-type': 'application/json', ...(key !== undefined && { 'idempotency-key': key }) },
  });
}

test('Express', async () => {
  const app = express().use(express.json()).post('/orders', semel.express(order));
  const listening = await new Promise<Server>(resolve => { const made: Server = app.listen(0, '127.0.0.1', () => resolve(made)); });
  await asked(post(listening), 'express-7');
  listening.close();
});

test('Hono', async () => {
  const app = new Hono().post('/orders', semel.hono(order));
  const listening = await new Promise<ReturnType<typeof serve>>(resolve => { const made = serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' }, () => resolve(made)); });
  await asked(post(listening), 'hono-7');
  listening.close();
});

test('a route of Next', async () => {
  const POST = semel.next(order, { onConflict: 'attach' });
  await asked((body, key) => POST(new Request('http://shop/orders', { method: 'POST', body, headers: key === undefined ? {} : { 'idempotency-key': key } })), 'next-7');
});
