// The recipes of docs/typescript.md for query builders: what stands between the marks stands in the page.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { eq, sql } from 'drizzle-orm';
import { drizzle } from 'drizzle-orm/node-postgres';
import { bigint, pgTable as table, text } from 'drizzle-orm/pg-core';
import makeKnex from 'knex';
import { Kysely, PostgresDialect } from 'kysely';
import pgDriver, { type PoolClient } from 'pg';
import { workflow } from '../src/index.js';
import { pg, pgTable } from '../src/pg.js';
import { TestServer } from '../src/testing.js';

const url = process.env['SEMEL_TEST_POSTGRES'];
if (url === undefined) throw new Error('run this under scripts/with-postgres');

const account = table('ts_builders', { owner: text().primaryKey(), cents: bigint({ mode: 'number' }).notNull() });
interface Tables { ts_builders: { owner: string; cents: number } }

// recipe
const knex = makeKnex({ client: 'pg' });

/** Kysely on the connection of one transaction. */
function kysely(db: PoolClient): Kysely<Tables> {
  const connection = { query: db.query.bind(db) as never, release: () => undefined };
  return new Kysely<Tables>({ dialect: new PostgresDialect({ pool: { connect: async () => connection, end: async () => undefined } }) });
}
// end

const pool = new pgDriver.Pool({ connectionString: url, max: 5 });
const shop = pg<PoolClient>(pool, { table: 'ts_builders_fence' });

const debits = workflow('builders', async (ctx, owner: string) => {
// recipe
  await ctx.tx('drizzle', shop, async db => {
    await drizzle(db).update(account).set({ cents: sql`${account.cents} - 1` }).where(eq(account.owner, owner));
  });
  await ctx.tx('kysely', shop, async db => {
    await kysely(db).updateTable('ts_builders').set(row => ({ cents: row('cents', '-', 1) })).where('owner', '=', owner).execute();
  });
  await ctx.tx('knex', shop, async db => {
    const { sql, bindings } = knex('ts_builders').where({ owner }).decrement('cents', 1).toSQL().toNative();
    await db.query(sql, [...bindings]);
  });
// end
  await ctx.tx('refused', shop, async db => {
    await drizzle(db).update(account).set({ cents: 0 });
    throw new Error('no');
  }, { retry: { maxAttempts: 1 } }).catch(() => undefined);
});

test('query builders write in the transaction of a step', async () => {
  await pool.query(pgTable('ts_builders_fence'));
  await pool.query('CREATE TABLE IF NOT EXISTS ts_builders (owner text PRIMARY KEY, cents bigint NOT NULL)');
  await pool.query("INSERT INTO ts_builders VALUES ('ada', 100)");
  await using server = await TestServer.start();
  const semel = server.client();
  await using worker = semel.worker({ workflows: [debits], log: () => undefined });
  await worker.start();
  await (await semel.start(debits, 'ada')).result({ timeout: '20s' });
  const { rows } = await pool.query("SELECT cents FROM ts_builders WHERE owner = 'ada'");
  assert.equal(Number(rows[0].cents), 97, 'each of them once, and what was refused not at all');
  semel.close();
  await pool.end();
});

test('the recipes stand in the page', () => {
  const read = (path: string) => readFileSync(new URL(path, import.meta.url), 'utf8');
  const recipes = [...read('../../test/builders.test.ts').matchAll(/^\/\/ recipe\n(.*?)^\/\/ end\n/gms)];
  assert.equal(recipes.length, 2);
  const page = read('../../../../../../docs/typescript.md');
  for (const [, recipe] of recipes) {
    const margin = /^ */.exec(recipe!)![0];
    const text = recipe!.split('\n').map(line => line.startsWith(margin) ? line.slice(margin.length) : line).join('\n').trim();
    assert.ok(page.includes(text), text);
  }
});
