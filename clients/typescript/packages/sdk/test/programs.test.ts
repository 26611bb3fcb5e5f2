import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import pgDriver from 'pg';
import { playPrograms, type Program } from './programs.js';

const url = process.env['SEMEL_TEST_POSTGRES'];
if (url === undefined) throw new Error('run this under scripts/with-postgres');

/** Those of the repository; `make conformance` has others drawn. */
const file = process.env['SEMEL_PROGRAMS_FILE'] ?? new URL('../../../../../programs.jsonl', import.meta.url);

test('drawn programs end as they should, whatever boundary a worker dies at', async t => {
  const programs = readFileSync(file, 'utf8').trim().split('\n').map(line => JSON.parse(line) as Program);
  const pool = new pgDriver.Pool({ connectionString: url, max: 10 });
  try {
    const crashes = await playPrograms(pool, programs);
    t.diagnostic(`${programs.length} programs, ${crashes} crashes, 0 wrong`);
    assert.ok(crashes > programs.length * 5, `${crashes} crashes in ${programs.length} programs`);
  } finally {
    await pool.end();
  }
});
