import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { effectKey, effectUuid, type Effect } from '../src/keys.js';
import { guarded, pgTable } from '../src/pg.js';
import { next } from '../src/retry.js';
import { sqliteTable } from '../src/sqlite.js';
import { statements } from '../src/tx.js';

interface Vector<G, E> { why: string; given: G; expected: E }

function vectors<G, E>(name: string, atLeast: number): Vector<G, E>[] {
  const all = JSON.parse(readFileSync(new URL(`../../../../../../vectors/${name}.json`, import.meta.url), 'utf8')) as Vector<G, E>[];
  assert.ok(all.length >= atLeast, name);
  return all;
}

test('effect keys are those of the golden vectors', () => {
  for (const { why, given, expected } of vectors<Effect, { key: string; uuid: string }>('effect_keys', 10)) {
    assert.deepEqual({ key: effectKey(given), uuid: effectUuid(given) }, expected, why);
  }
});

test('statements of the fence table are those of the golden vectors', () => {
  interface Statements { create: string; find: string; put: string }
  for (const { why, given: { dialect, table }, expected } of vectors<{ dialect: string; table: string }, Statements>('fence', 6)) {
    // There is no source for MySQL.
    if (dialect === 'mysql') continue;
    const ofPg = dialect === 'postgres';
    const texts = ofPg ? statements(table, n => `$${n}`, guarded) : statements(table, n => `?${n}`);
    const { create, find, put } = expected;
    assert.deepEqual({ create: (ofPg ? pgTable : sqliteTable)(table), ...texts }, { create, find, put }, why);
  }
});

test('pauses between attempts are those of the golden vectors', () => {
  interface Policy { maxAttempts: number; initialMs: number; factor: number; maxDelayMs: number; jitter: number }
  interface Given { policy: Policy; attempt: number; kind: 'retryable'; random: number }
  for (const { why, given, expected } of vectors<Given, { pauseMs: number } | string>('retry', 20)) {
    const { policy: { initialMs: initial, maxDelayMs: maxDelay, ...rest }, attempt, kind, random } = given;
    const found = next({ initial, maxDelay, ...rest }, attempt, kind, random);
    assert.deepEqual(typeof found === 'number' ? { pauseMs: found } : found, expected, why);
  }
});
