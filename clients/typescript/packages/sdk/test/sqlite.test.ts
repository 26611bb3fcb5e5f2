import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fatal, RunFailed, workflow } from '../src/index.js';
import { sqlite, sqliteTable, type SqliteDb } from '../src/sqlite.js';
import { crashEverywhere, TestServer } from '../src/testing.js';

/** What of node:sqlite is used; its types come with later versions of Node. */
type Database = SqliteDb & { close(): void };

const major = Number(process.versions.node.split('.')[0]);
const skip = major < 22 ? 'node:sqlite needs Node 22; scripts/check-clients runs this file with a later Node' : false;

const TABLES = `CREATE TABLE account (owner TEXT PRIMARY KEY, cents INTEGER NOT NULL); ${sqliteTable('ts_fence')}`;

test('rows and outcome are one commit in SQLite, whatever boundary the worker dies at', { skip }, async () => {
  const { DatabaseSync } = await import('node:sqlite' as string) as { DatabaseSync: new (path: string) => Database };
  const folder = await mkdtemp(join(tmpdir(), 'semel-sqlite-'));
  const db = new DatabaseSync(join(folder, 'shop.db'));
  db.exec(TABLES);
  await using server = await TestServer.start();
  const semel = server.client();
  const source = sqlite(db, { table: 'ts_fence' });
  const cents = (owner: string) => (db.prepare('SELECT cents FROM account WHERE owner = ?').get(owner) as { cents: number }).cents;
  const debit = workflow('sqlite-debit', async (ctx, owner: string) => ctx.tx('debit', source, own => {
    const row = own.prepare('UPDATE account SET cents = cents - 1 WHERE owner = ? AND cents > 0 RETURNING cents').get(owner) as { cents: number } | undefined;
    if (row === undefined) throw fatal('not enough money', { code: 'POOR' });
    return row.cents;
  }));
  const waits = workflow('sqlite-waits', async (ctx, owner: string) => ctx.tx('debit', source, async own => {
    own.prepare('UPDATE account SET cents = 0 WHERE owner = ?').run(owner);
  }));
  const account = (owner: string, balance: number) => db.prepare('INSERT INTO account VALUES (?, ?)').run(owner, balance);
  const count = await crashEverywhere({
    semel,
    worker: () => ({ workflows: [debit], lease: '5s' }),
    start: async play => {
      account(play, 100);
      return semel.start(debit, play, { key: play });
    },
    check: (run, boundary) => assert.deepEqual([run.status, run.result, cents(run.key)], ['COMPLETED', 99, 99], boundary),
  });
  assert.ok(count >= 4, `${count} boundaries`);
  await using worker = semel.worker({ workflows: [debit, waits] });
  await worker.start();
  account('poor', 0);
  const poor = await semel.start(debit, 'poor');
  await assert.rejects(poor.result({ timeout: '20s' }), (e: RunFailed) => e.run.error?.code === 'POOR');
  account('slow', 5);
  const slow = await semel.start(waits, 'slow');
  await assert.rejects(slow.result({ timeout: '20s' }), (e: RunFailed) => /must not be async/.test(e.message));
  assert.equal(cents('slow'), 5, 'what the body has written is rolled back');
  semel.close();
  db.close();
  await rm(folder, { recursive: true });
});
