import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { effectKey, effectUuid, type Effect } from '../src/keys.js';
import { guarded, pgTable } from '../src/pg.js';
import { next } from '../src/retry.js';
import { sqliteStatements, sqliteTable } from '../src/sqlite.js';
import { statements } from '../src/tx.js';

interface Vector<G, E> { why: string; given: G; expected: E }

function vectors<G, E>(name: string, atLeast: number): Vector<G, E>[] {
  const all = JSON.parse(readFileSync(new URL(`../../../../../../vectors/${name}.json`, import.meta.url), 'utf8')) as Vector<G, E>[];
  assert.ok(all.length >= atLeast, name);
  return all;
}

type Check = (vector: Vector<any, any>) => void;

/** What each kind of vectors must be, and how many there are at least. */
const CHECKS: { [kind: string]: { atLeast: number; check: Check } } = {
  effect_keys: {
    atLeast: 10,
    check: ({ why, given, expected }: Vector<Effect, { key: string; uuid: string }>) => {
      assert.deepEqual({ key: effectKey(given), uuid: effectUuid(given) }, expected, why);
    },
  },
  fence: {
    atLeast: 4,
    check: ({ why, given: { dialect, table }, expected }: Vector<{ dialect: string; table: string }, { create: string; find: string; put: string }>) => {
      const ofPg = dialect === 'postgres';
      // The parameters of SQLite have names, which end with their numbers.
      const { find: found, put: written } = ofPg ? statements(table, n => `$${n}`, guarded) : sqliteStatements(table);
      const [find, put] = [found, written].map(text => ofPg ? text : text.replace(/:p(\d)/g, '?$1'));
      assert.deepEqual({ create: (ofPg ? pgTable : sqliteTable)(table), find, put }, { create: expected.create, find: expected.find, put: expected.put }, why);
    },
  },
  retry: {
    atLeast: 20,
    check: ({ why, given, expected }: Vector<Tried, { pauseMs: number } | string>) => {
      const { policy: { initialMs: initial, maxDelayMs: maxDelay, ...rest }, attempt, kind, random } = given;
      const found = next({ initial, maxDelay, ...rest }, attempt, kind, random);
      assert.deepEqual(typeof found === 'number' ? { pauseMs: found } : found, expected, why);
    },
  },
};

interface Tried {
  policy: { maxAttempts: number; initialMs: number; factor: number; maxDelayMs: number; jitter: number };
  attempt: number;
  kind: 'retryable';
  random: number;
}

/** Other than what is expected, in one place. */
function altered(expected: unknown): unknown {
  if (typeof expected === 'number') return expected + 1;
  if (typeof expected === 'string') return `${expected} `;
  return Object.fromEntries(Object.entries(expected as object).map(([name, value], i) => [name, i === 0 ? altered(value) : value]));
}

for (const [kind, { atLeast, check }] of Object.entries(CHECKS)) {
  // There is no source for MySQL.
  const all = () => vectors<{ dialect?: string }, unknown>(kind, atLeast).filter(({ given }) => given.dialect !== 'mysql');
  test(`${kind} are those of the golden vectors`, () => all().forEach(check));
  test(`an altered vector of ${kind} is found`, () => {
    const vector = all().at(-1)!;
    assert.throws(() => check({ ...vector, expected: altered(vector.expected) }), assert.AssertionError);
  });
}
