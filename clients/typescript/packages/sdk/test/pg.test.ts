import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import pgDriver from 'pg';
import { fatal, RunFailed, Semel, workflow } from '../src/index.js';
import { pg, pgTable } from '../src/pg.js';
import { crashEverywhere, TestServer } from '../src/testing.js';

const url = process.env['SEMEL_TEST_POSTGRES'];
if (url === undefined) throw new Error('run this under scripts/with-postgres');

let server: TestServer, semel: Semel, pool: pgDriver.Pool;

before(async () => {
  server = await TestServer.start();
  semel = server.client();
  pool = new pgDriver.Pool({ connectionString: url, max: 10 });
  await pool.query(pgTable('ts_fence'));
  await pool.query('CREATE TABLE IF NOT EXISTS ts_account (owner text PRIMARY KEY, cents bigint NOT NULL)');
});

after(async () => {
  await pool.end();
  semel.close();
  await server.stop();
});

const debit = workflow('ts-debit', async (ctx, owner: string) => ctx.tx('debit', pg(pool, { table: 'ts_fence' }), async db => {
  const { rows } = await db.query('UPDATE ts_account SET cents = cents - 1 WHERE owner = $1 AND cents > 0 RETURNING cents', [owner]);
  if (rows[0] === undefined) throw fatal('not enough money', { code: 'POOR' });
  return Number(rows[0].cents);
}));

test('rows and outcome are one commit, whatever boundary the worker dies at', async () => {
  const count = await crashEverywhere({
    semel,
    worker: () => ({ workflows: [debit], lease: '5s' }),
    start: async play => {
      await pool.query('INSERT INTO ts_account VALUES ($1, 100)', [play]);
      return semel.start(debit, play, { key: play });
    },
    check: async (run, boundary) => {
      assert.deepEqual([run.status, run.result], ['COMPLETED', 99], boundary);
      const { rows } = await pool.query('SELECT cents FROM ts_account WHERE owner = $1', [run.key]);
      assert.equal(Number(rows[0].cents), 99, boundary);
    },
  });
  assert.ok(count >= 4, `${count} boundaries`);
});

test('a body that fails leaves no rows', async () => {
  await pool.query("INSERT INTO ts_account VALUES ('poor', 0)");
  await using worker = semel.worker({ workflows: [debit] });
  await worker.start();
  const run = await semel.start(debit, 'poor');
  await assert.rejects(run.result({ timeout: '20s' }), (e: RunFailed) => e.run.error?.code === 'POOR');
});

test('a connection that breaks while a body waits does not end the process', async () => {
  let tries = 0;
  const broken = workflow('ts-broken', async ctx => ctx.tx('read', pg(pool, { table: 'ts_fence' }), async db => {
    tries += 1;
    if (tries === 1) {
      const { rows } = await db.query('SELECT pg_backend_pid() AS pid');
      const ended = new Promise(resolve => (db as unknown as pgDriver.PoolClient).once('end', resolve));
      await pool.query('SELECT pg_terminate_backend($1)', [rows[0].pid]);
      await ended;
    }
    return (await db.query('SELECT 7 AS seven')).rows[0].seven as number;
  }, { retry: { initial: 10 } }));
  await using worker = semel.worker({ workflows: [broken], log: () => undefined });
  await worker.start();
  assert.equal(await (await semel.start(broken, null)).result({ timeout: '20s' }), 7);
  assert.equal(tries, 2);
});
