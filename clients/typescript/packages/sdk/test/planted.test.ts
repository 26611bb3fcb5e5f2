// Bugs that are planted in a copy of this SDK: the drawn programs find each of them. A planted text that is not there any more is a failure.
import assert from 'node:assert/strict';
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import pgDriver from 'pg';
import type { playPrograms, Program } from './programs.js';
import type { playTie } from './tie.js';

const url = process.env['SEMEL_TEST_POSTGRES'];
if (url === undefined) throw new Error('run this under scripts/with-postgres');

interface Bug {
  file: string;
  /** Text of the compiled file, and what stands there instead. */
  is: string;
  becomes: string;
  /** Programs in which it can show, or the race that both branches end. */
  shows: ((line: string) => boolean) | 'tie';
  found: RegExp;
}

const BUGS: { [name: string]: Bug } = {
  'a body begins before what came earlier is durable': {
    file: 'run.js',
    is: 'await this.written(stand);\n        // What has changed since',
    becomes: '// What has changed since',
    shows: line => /"Repeat":{"n":\d+,"times":[23]/.test(line) && line.includes('"atOnce":1'),
    found: /the crash has repeated 2 effects, of which 1 can be at work at once/,
  },
  'an attempt with a hidden end is made again, whatever its class': {
    file: 'ctx.js',
    is: "if (of === 'keyed' || of === 'tx') {",
    becomes: "if (of !== 'tx' || of === 'tx') {",
    shows: line => line.includes('"Letter"'),
    found: /the server has refused a commit of/,
  },
  'the winner of a race is not recorded': {
    file: 'ctx.js',
    is: 'if (recorded === undefined) {',
    becomes: 'if (recorded !== recorded) {',
    shows: 'tie',
    found: /the race is (CANCELLED|COMPLETED with a, and went on after b,a)/,
  },
  'a timer fires early': {
    file: 'ctx.js',
    is: 'if (now < due)',
    becomes: 'if (now < due - 60_000)',
    shows: line => line.includes('"Sleep"'),
    found: /the timer .* has fired after/,
  },
  'the key of a counted step is without its count': {
    file: 'ctx.js',
    is: 'path, tick, label }',
    becomes: 'path, tick: 1, label }',
    shows: line => /"times":[23],"indexed":true/.test(line),
    found: /r\d+ took place 1 times/,
  },
};

/** How long a run may take that a bug has stopped, in milliseconds. */
const PATIENCE = 10_000;

const dist = new URL('..', import.meta.url);
const lines = readFileSync(new URL('../../../../programs.jsonl', dist), 'utf8').trim().split('\n');

type Players = { playPrograms: typeof playPrograms; playTie: typeof playTie };

/** The players of a copy of the built SDK with a bug in it, which is beside the original, so that packages are found. */
async function planted(bug: Bug, number: number): Promise<Players> {
  const copy = new URL(`planted-${number}/`, dist), players = ['test/programs.js', 'test/tie.js'];
  rmSync(copy, { recursive: true, force: true });
  mkdirSync(new URL('test/', copy), { recursive: true });
  for (const part of ['src', ...players]) cpSync(new URL(part, dist), new URL(part, copy), { recursive: true });
  const file = new URL(`src/${bug.file}`, copy), text = readFileSync(file, 'utf8');
  assert.equal(text.split(bug.is).length, 2, `${fileURLToPath(file)} has not ${JSON.stringify(bug.is)} in one place`);
  writeFileSync(file, text.replace(bug.is, bug.becomes));
  const modules = await Promise.all(players.map(player => import(new URL(player, copy).href)));
  return Object.assign({}, ...modules);
}

for (const [number, [name, { shows, found, ...bug }]] of Object.entries(BUGS).entries()) {
  test(`found: ${name}`, async () => {
    const players = await planted({ shows, found, ...bug }, number);
    if (shows === 'tie') return assert.rejects(players.playTie(), found);
    const programs = lines.filter(shows).map(line => JSON.parse(line) as Program);
    assert.ok(programs.length > 0, 'no program has what shows it');
    const pool = new pgDriver.Pool({ connectionString: url, max: 10 });
    try {
      await assert.rejects(players.playPrograms(pool, programs, { lanes: 2, patience: PATIENCE }), found);
    } finally {
      await pool.end();
    }
  });
}
