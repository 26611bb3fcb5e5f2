// A transactional step on SQLite, for each of the packages that `sqlite` takes.
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fatal, RunFailed, workflow } from '../src/index.js';
import { sqlite, sqliteTable, type SqliteDb } from '../src/sqlite.js';
import { crashEverywhere, TestServer } from '../src/testing.js';

/** What of a database the test uses itself. */
export type Database = SqliteDb & { close(): unknown };

const TABLES = `CREATE TABLE account (owner TEXT PRIMARY KEY, cents INTEGER NOT NULL); ${sqliteTable('ts_fence')}`;

/** Plays a transactional step with a crash at every boundary, and one whose body waits. */
export async function playSqlite(open: (path: string) => Database): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'semel-sqlite-'));
  const db = open(join(folder, 'shop.db'));
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
}
